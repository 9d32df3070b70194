"""Our own lines: a run of N steps, many short runs over Celery, and how long things wait.

Every function sets Django up for the database it is given, so each belongs in a process
of its own. Steps are tool steps: decided by a function, performed by a tool without an
effect outside (a READ, where nothing else is said), recorded as everything is. Raises
Incomplete where a run did not finish, because a fast failure would look like a good figure.
"""

import json
import os
import time
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING
from uuid import UUID

import django
import httpx2

from tests.bench.sample import Sample, Wait

if TYPE_CHECKING:
    from runs.models import AgentRun

STEPS_PER_RUN = 10
OWNER = "bench"
FINISH_SECONDS = 300.0
IDLE_SECONDS = 0.1
SCOPES = "read,runs:write,operations:call:*"


class Incomplete(Exception):
    """A measured run did not do what was measured."""

    def __init__(self, *, done: int, expected: int, why: str = "") -> None:
        super().__init__(
            f"{done} of {expected} steps were recorded as committed{why and ': '}{why}"
        )
        self.done = done
        self.expected = expected
        self.why = why


def prepare(dsn: str) -> None:
    set_up(dsn)
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def measure(dsn: str, steps: int) -> Sample:
    """One run of `steps` tool steps, driven in this process in one turn, as peers do it."""
    return _measure_one(dsn, steps, tool="bench_noop")


def measure_writes(dsn: str, steps: int) -> Sample:
    """The same with writes: each has a key, an intent of its own and a settle window."""
    return _measure_one(dsn, steps, tool="bench_write")


def measure_transactions(dsn: str, steps: int) -> Sample:
    """The same with TRANSACTIONAL tools of one statement each."""
    return _measure_one(dsn, steps, tool="bench_transaction")


def _measure_one(dsn: str, steps: int, *, tool: str) -> Sample:
    set_up(dsn)
    from runs.engine import Slice, advance

    run = _start(steps, tool=tool)
    whole = Slice(steps=steps + 1, seconds=FINISH_SECONDS)
    started = time.perf_counter()
    advance(run_id=run.id, owner=OWNER, turn=whole)
    seconds = time.perf_counter() - started
    _require_complete([run.id], steps=steps)
    return Sample(steps=steps, seconds=seconds)


def measure_many(dsn: str, steps: int) -> Sample:
    """`steps` / 10 runs over the broker with one worker as it is configured by default.

    From the first run's creation to the end of the last one, by the database's clock.
    """
    set_up(dsn)
    from tests.bench.stack import working

    with working():
        runs = [_start(STEPS_PER_RUN) for _ in range(steps // STEPS_PER_RUN)]
        seconds = _wait_until_finished(runs)
    _require_complete([run.id for run in runs], steps=len(runs) * STEPS_PER_RUN)
    return Sample(steps=len(runs) * STEPS_PER_RUN, seconds=seconds)


def measure_resume(dsn: str, times: int, *lengths: int) -> list[Wait]:
    """Claim to release of one step, for a run of each length: taken in turn, `times` each."""
    set_up(dsn)
    from runs.engine import Slice, advance

    runs = {length: _start(length + times + 1) for length in lengths}
    for length, run in runs.items():
        advance(run_id=run.id, owner=OWNER, turn=Slice(steps=length, seconds=FINISH_SECONDS))
    seconds: dict[int, list[float]] = {length: [] for length in lengths}
    for _ in range(times):
        for length, run in runs.items():
            started = time.perf_counter()
            progress = advance(run_id=run.id, owner=OWNER, turn=Slice(steps=1))
            seconds[length].append(time.perf_counter() - started)
            if progress.steps != 1:
                raise Incomplete(done=progress.steps, expected=1)
    return [
        Wait(title=f"resume after {length:,} steps", seconds=seconds[length]) for length in lengths
    ]


def measure_first_step(dsn: str, times: int) -> list[Wait]:
    """`POST runs/` on an idle stack: until the first tool function is called, and answered.

    Client, web server, worker and tool share one machine, so one clock.
    """
    set_up(dsn)
    from tests.bench.stack import serving, working

    with working(), serving() as base, httpx2.Client(base_url=base, headers=token()) as client:
        _post_one(client)
        pairs = [_post_one(client) for _ in range(times)]
    return [
        Wait(title="POST runs/ to first step", seconds=[first for first, _ in pairs]),
        Wait(title="POST runs/ to its answer", seconds=[answer for _, answer in pairs]),
    ]


def _post_one(client: httpx2.Client) -> tuple[float, float]:
    """Seconds from sending to the first tool call, and to the answer."""
    # Idle, as between two users: workers wait for a message, connections are pooled.
    time.sleep(IDLE_SECONDS)
    sent = time.time()
    answer = client.post("/api/v1/runs/", json={"agent": "bench", "input": {"steps": 1}})
    answered = time.time()
    run = answer.raise_for_status().json()["id"]
    return _first_performed(run) - sent, answered - sent


def _first_performed(run_id: str) -> float:
    """The time at which the run's tool says that it was called."""
    from runs.models import ToolOperation

    deadline = time.monotonic() + FINISH_SECONDS
    while time.monotonic() < deadline:
        results = ToolOperation.objects.filter(run_id=run_id).values_list("result", flat=True)
        if result := results.first():
            at: float = result["at"]
            return at
        time.sleep(0.02)
    raise Incomplete(done=0, expected=1)


def token() -> dict[str, str]:
    """The headers of a caller who may start runs and call tools."""
    from django.core.management import call_command

    said = StringIO()
    call_command("create_token", OWNER, "--scopes", SCOPES, "--json", stdout=said)
    return {"Authorization": f"Token {json.loads(said.getvalue())['token']}"}


def set_up(dsn: str, *, apps: str = "tests.bench.load") -> None:
    """Django on this database, with the agents of the benchmark."""
    os.environ["DATABASE_URL"] = dsn
    os.environ["AGENTOPS_APPS"] = apps
    os.environ["DJANGO_SETTINGS_MODULE"] = "agentops.settings"
    django.setup()


def _start(steps: int, *, tool: str = "bench_noop") -> "AgentRun":
    from runs.access import operator
    from runs.commands import start_run

    given = {"steps": steps, "tool": tool}
    return start_run(actor=operator(OWNER), agent="bench", input=given).run


def _wait_until_finished(runs: Sequence["AgentRun"]) -> float:
    """Seconds from the first creation to the last end."""
    from runs.models import AgentRun

    ours = AgentRun.objects.filter(id__in=[run.id for run in runs])
    deadline = time.monotonic() + FINISH_SECONDS
    # Asking seldom keeps our own questions out of the counted commits.
    while ours.filter(finished_at=None).exists() and time.monotonic() < deadline:
        time.sleep(0.25)
    ends = [end for end in ours.values_list("finished_at", flat=True) if end is not None]
    if len(ends) < len(runs):
        raise Incomplete(done=len(ends), expected=len(runs))
    seconds: float = (max(ends) - min(run.created_at for run in runs)).total_seconds()
    return seconds


def _require_complete(run_ids: Sequence[UUID], *, steps: int) -> None:
    from runs.models import AgentRun, ToolOperation
    from runs.state import OperationStatus

    done = ToolOperation.objects.filter(
        run_id__in=run_ids, status=OperationStatus.COMMITTED
    ).count()
    if done != steps:
        ended = AgentRun.objects.filter(id__in=run_ids).values_list("state", "error").distinct()
        raise Incomplete(done=done, expected=steps, why=str(list(ended[:3])))

"""What the sweeps cost beside many sleeping rows, and how late many timers are.

As in `ours.py`, every function sets Django up for the database it is given and belongs in a
process of its own. Nothing is due while a sweep is timed: what is measured is what rows cost
that nobody is due for. Rows are written at once and without their journals.
"""

import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from uuid import UUID, uuid4

from tests.bench.ours import FINISH_SECONDS, Incomplete, set_up
from tests.bench.sample import Wait

DAY = 86_400.0
# Enough to have the worker idle, and its beat ticking, before they are due.
TIMERS_DUE_IN = 6.0


def measure_sweeps(dsn: str, times: int, *counts: int) -> list[Wait]:
    """One sweep of each kind, and one turn, with so many sleeping runs, a tenth as many watched
    operations and, up to 10,000 of them, pending approvals."""
    set_up(dsn)
    from django.db import connection

    from runs.models import AgentRun
    from tests.database.many import add_approvals, add_runs, add_watched

    found: list[Wait] = []
    for count in counts:
        more = count - AgentRun.objects.count()
        for agent in ("bench", "bench 2", "bench 3", "bench 4"):
            add_runs(more // 4, agent=agent, due_in=DAY, spread=30 * DAY)
        add_watched(more // 10)
        add_approvals(min(count, 10_000))
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        for name, sweep in _sweeps().items():
            sweep()
            found.append(
                Wait(title=f"{name}, {count:,} rows", seconds=[_time(sweep) for _ in range(times)])
            )
    return found


def measure_timers(dsn: str, count: int) -> list[Wait]:
    """So many timers that are due at one moment: to the end of their hints, and to their first
    steps with one worker as it is configured by default."""
    set_up(dsn)
    from celery import current_app

    from runs import sweeps
    from tests.bench.stack import ticking, working
    from tests.database.many import add_runs

    add_runs(count, agent="bench", due_in=0, given='{"steps": 1}')
    hinting = _time(lambda: _require_hinted(sweeps.run_once().hinted, count))
    current_app.control.purge()
    _empty()
    with working(), tempfile.TemporaryDirectory() as directory, ticking(Path(directory)):
        add_runs(count, agent="bench", due_in=TIMERS_DUE_IN, given='{"steps": 1}')
        started = _wait_until_started(count)
    return [
        Wait(title=f"{count:,} timers at once: one sweep hints at all", seconds=[hinting]),
        Wait(title=f"{count:,} timers at once: due to first step", seconds=started),
    ]


def _sweeps() -> dict[str, Callable[[], object]]:
    from approvals import sweeps as approval_sweeps
    from runs import delegation, sweeps, turns, watch

    return {
        "sweep: due runs": sweeps.run_once,
        "sweep: watched operations": watch.find_due,
        "sweep: untold parents": delegation.tell_untold_once,
        "sweep: approvals, questions": approval_sweeps.run_once,
        "a turn with nothing due": lambda: turns.choose(_NOBODY),
    }


_NOBODY: UUID = uuid4()


def _time(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _require_hinted(hinted: int, expected: int) -> None:
    if hinted != expected:
        raise Incomplete(done=hinted, expected=expected, why="not all were hinted at")


def _empty() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE runs_agentrun CASCADE")


def _wait_until_started(count: int) -> list[float]:
    """Seconds from the date of each run to its first step."""
    from runs.models import AgentRun, Step

    due: datetime | None = AgentRun.objects.values_list("wake_at", flat=True).first()
    deadline = time.monotonic() + FINISH_SECONDS
    while Step.objects.filter(number=1).count() < count and time.monotonic() < deadline:
        time.sleep(0.25)
    opened = list(Step.objects.filter(number=1).values_list("opened_at", flat=True))
    if len(opened) < count or due is None:
        raise Incomplete(done=len(opened), expected=count)
    return [(at - due).total_seconds() for at in opened]

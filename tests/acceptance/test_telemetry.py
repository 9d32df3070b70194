"""One run in the eyes of a collector, of Flower and of its own log lines: asked for by HTTP, its
worker killed in a call, signed by a person, failed and taken back, all by real processes."""

import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from django.contrib.auth.models import User

from agentops import processes
from agentops.telemetry import ids
from agentops.tokens import issue_token
from runs.access import RUNS_WRITE
from runs.models import AgentRun, Approval, ToolOperation
from tests.acceptance.soon import SOON
from tests.collecting import Collector, Exported, Shop, collecting, shop
from tests.database.approving import person, say
from tests.processes import Celery, Program, environment, of_this_test, wait_until

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(300),
    pytest.mark.django_db(transaction=True),
]

CARD, GOAL = "4000-1234-5678-9010", "send the lamp to Ada"
LOGIN = ("operator", "of nobody else")
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@dataclass(frozen=True)
class Story:
    """What is left to look at once everything has ended."""

    run: AgentRun
    collector: Collector
    shop: Shop
    # A moment at which the run waited for a signature, in nanoseconds since 1970.
    waiting_at: int
    key: str
    said: str
    # As Flower finds them by the run, each with what it shows of it.
    tasks: dict[str, dict[str, Any]]

    @property
    def spans(self) -> list[Exported]:
        return self.collector.of_trace(TRACE)

    def named(self, name: str) -> list[Exported]:
        return [span for span in self.spans if span.name == name]


def test_a_run_is_one_trace_through_crash_signature_and_compensation(tmp_path: Path) -> None:
    with collecting() as collector, shop() as provider:
        story = tell(collector, provider, tmp_path)
    assert_one_trace(story)
    assert_nothing_is_open_while_it_waits(story)
    assert_nothing_is_told_twice(story)
    assert_nothing_secret_left(story)
    assert_the_shop_heard_of_the_trace(story)
    assert_lines_name_what_they_are_about(story)
    assert_flower_finds_the_tasks_and_shows_ids_alone(story)


def tell(collector: Collector, provider: Shop, directory: Path) -> Story:
    env = {
        "AGENTOPS_APPS": "tests.acceptance.tracedapp",
        "TRACED_SHOP_URL": provider.url,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "AGENTOPS_LOG_LEVEL": "debug",
        "AGENTOPS_LOG_FORMAT": "json",
        # A busy machine is to take no lease away, and no call its time.
        "AGENTOPS_LEASE_SECONDS": "4",
        "FLOWER_BASIC_AUTH": ":".join(LOGIN),
    }
    servers = of_this_test()
    with Celery(servers, log_dir=directory, env=env) as celery:
        celery.beat()
        # The shop has done it, and the worker does not live to write that down.
        doomed = celery.worker("doomed", CRASH_AT="call_done:1:SIGKILL")
        given = environment(servers) | env
        with web(given, directory) as (url, served), flower(given, directory) as look:
            run, key = start(url)
            assert doomed.wait(seconds=90) == -signal.SIGKILL
            worker = celery.worker("replacement")
            waiting = Approval.objects.filter(run=run, status="pending")
            wait_until(waiting.exists, what="a signature is asked for", seconds=90)
            held = AgentRun.objects.filter(id=run.id, lease_expires_at__isnull=False)
            wait_until(lambda: not held.exists(), what="the run waits")
            waiting_at = time.time_ns()
            say(waiting.get(), person("grace", "finance"))
            ended = AgentRun.objects.filter(id=run.id, finished_at__isnull=False)
            wait_until(ended.exists, what="the run has ended", seconds=90)
            wait_until(lambda: str(run.id) in look(), what="Flower has heard of it", seconds=90)
            tasks = json.loads(look())
            # What is left in their queues leaves when they end.
            for program in (worker, served):
                program.terminate()
                assert program.wait(seconds=90) in (0, -signal.SIGTERM), program.said
        said = (directory / "replacement.log").read_text()
    run.refresh_from_db()
    return Story(run, collector, provider, waiting_at, key=key, said=said, tasks=tasks)


@contextmanager
def web(env: dict[str, str], directory: Path) -> Iterator[tuple[str, Program]]:
    port = free_port()
    arguments = ("-m", "uvicorn", *processes.web(host="127.0.0.1", port=port))
    with Program(*arguments, env=env, log=directory / "web.log", name="web") as program:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: status(f"{url}/healthz") == 200, what="web answers", seconds=90)
        yield url, program


@contextmanager
def flower(env: dict[str, str], directory: Path) -> Iterator[Callable[[], str]]:
    """What it finds when it is asked which tasks drove the one run that there is."""
    port = free_port()
    arguments = ("-m", "celery", *processes.flower_arguments(host="127.0.0.1", port=port))
    with Program(*arguments, env=env, log=directory / "flower.log", name="flower") as program:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: status(url) == 401, what="Flower asks who is there", seconds=90)
        assert listening_at(port) == {"0100007F"}
        assert status(f"{url}/api/tasks") == 401

        def look() -> str:
            query = {"search": f"result:{AgentRun.objects.get().id}"}
            found = httpx2.get(
                f"{url}/api/tasks", params=query, auth=LOGIN, timeout=SOON, trust_env=False
            )
            return found.text

        yield look
        print(f"-- flower said:\n{program.said}")


def listening_at(port: int) -> set[str]:
    """The addresses, in the kernel's form, at which somebody listens on the port."""
    listening = "0A"
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    pairs = [row[1].split(":") for row in rows if row[3] == listening]
    return {address for address, number in pairs if int(number, 16) == port}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def status(url: str) -> int:
    try:
        # Asked many times a second while programs start: a client of its own each time is dear.
        with urllib.request.urlopen(url, timeout=SOON) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def start(url: str) -> tuple[AgentRun, str]:
    user = User.objects.create(username="caller")
    token = issue_token(user=user, name="caller", scopes=[RUNS_WRITE])
    key = "the caller's own key"
    answer = httpx2.post(
        f"{url}/api/v1/runs/",
        json={"agent": "traced", "objective": GOAL, "input": {"card": CARD}},
        headers={
            "Authorization": f"Token {token.secret}",
            "Idempotency-Key": key,
            "traceparent": f"00-{TRACE}-{CALLER}-01",
        },
        timeout=SOON,
        trust_env=False,
    )
    assert answer.status_code == 201, answer.text
    return AgentRun.objects.get(id=answer.json()["id"]), token.secret


def assert_one_trace(story: Story) -> None:
    (request,) = story.named("POST /api/v1/runs/")
    assert request.parent_id == CALLER
    assert story.run.traceparent == f"00-{TRACE}-{request.span_id}-01"
    slices = {one.span_id: one for one in story.named("invoke_agent traced")}
    assert {one.parent_id for one in slices.values()} == {request.span_id}
    for number in range(2, story.run.fence_token + 1):
        # The one before is linked to, also where its worker took it along.
        found = slices[hexed(ids.of_slice(story.run.id, number))]
        assert found.links == (hexed(ids.of_slice(story.run.id, number - 1)),)
        assert found.attributes["agentops.fence_token"] == number
    # The first died with its worker.
    assert len(slices) == story.run.fence_token - 1
    below = [one for one in story.spans if one.span_id not in {request.span_id, *slices}]
    # What had ended before its worker was killed may have left in time, below what had not.
    assert {one.parent_id for one in below} <= {*slices, hexed(ids.of_slice(story.run.id, 1))}
    # One span for each send and look-up that the rows know of, but for what died with its worker.
    operations = {one.tool: one for one in ToolOperation.objects.filter(run=story.run)}
    assert set(operations) == {"book", "ship", "recall", "unbook"}
    told = {one.span_id: one for one in below if one.name != "decide traced"}
    assert {span_id: one.name for span_id, one in told.items()} == {
        span_id: name for span_id, name in named_by_rows(operations) if span_id != lost(story)
    }
    assert operations["book"].look_ups
    for span_id in looked_up(operations["book"]):
        assert told[span_id].links == (lost(story),)
    sent = told[hexed(ids.of_send(operations["ship"].id, 1))]
    assert (
        sent.attributes
        | {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "ship",
            "gen_ai.tool.call.id": operations["ship"].id,
            "gen_ai.agent.name": "traced",
            "gen_ai.conversation.id": str(story.run.id),
            "agentops.step": operations["ship"].step_number,
            "agentops.attempt": 1,
            "agentops.outcome": "committed",
        }
        == sent.attributes
    )
    assert {one.service for one in story.spans} == {"agentops"}


def assert_nothing_is_open_while_it_waits(story: Story) -> None:
    assert all(not one.start <= story.waiting_at <= one.end for one in story.spans)
    assert any(one.end < story.waiting_at for one in story.named("invoke_agent traced"))
    assert any(one.start > story.waiting_at for one in story.named("invoke_agent traced"))


def assert_nothing_is_told_twice(story: Story) -> None:
    times = Counter((one.trace_id, one.span_id) for one in story.collector.spans)
    assert set(times.values()) == {1}


def assert_nothing_secret_left(story: Story) -> None:
    operations = ToolOperation.objects.filter(run=story.run)
    keys = [operation.idempotency_key for operation in operations]
    ours = {operation.id for operation in operations}
    hidden = [CARD, GOAL, "lamp", "the parcel came back", "the caller's own key", story.key]
    for secret in [*hidden, *(key for key in keys if key not in ours)]:
        assert not any(secret.encode() in body for body in story.collector.raw), secret
    assert not any(one.message or one.events for one in story.collector.spans)


def assert_the_shop_heard_of_the_trace(story: Story) -> None:
    known = {one.span_id for one in story.spans}
    heard = [one.traceparent.split("-") for one in story.shop.asked]
    assert {trace_id for _, trace_id, _, _ in heard} == {TRACE}
    assert heard[0][2] == lost(story)
    assert {span_id for _, _, span_id, _ in heard} <= {lost(story), *known}
    # Each attempt names its own span, and what the shop compares is the same.
    assert all(b"traceparent" not in one.body for one in story.shop.asked)


def assert_lines_name_what_they_are_about(story: Story) -> None:
    # What Celery prints of its own end is no log line.
    lines = [json.loads(line) for line in story.said.splitlines() if line.startswith("{")]
    ship = ToolOperation.objects.get(run=story.run, tool="ship")
    about = {
        "run_id": str(story.run.id),
        "step": ship.step_number,
        "operation_id": ship.id,
        "fence_token": ship.fence_token,
    }
    (own,) = [one for one in lines if one["event"] == "shipping lamp"]
    assert own | about == own
    (kernel,) = [
        one for one in lines if one["event"] == "call_done" and one["operation_id"] == ship.id
    ]
    assert kernel | about | {"outcome": "committed", "level": "debug"} == kernel
    assert CARD not in story.said


def assert_flower_finds_the_tasks_and_shows_ids_alone(story: Story) -> None:
    assert story.tasks
    for task in story.tasks.values():
        assert task["name"] in ("runs.advance_run", "runs.reconcile_operation")
        assert task["result"] == f"'{story.run.id}'"
        # The run whose hint gave the turn, which may be another one's.
        assert re.fullmatch(r"\('[0-9a-z_-]+',\)|\['[0-9a-z_-]+'\]", task["args"]), task["args"]
        assert task["kwargs"] == "{}"


def named_by_rows(operations: dict[str, ToolOperation]) -> Iterator[tuple[str, str]]:
    """Of each send and look-up: the id that its span has, and the name."""
    for tool, one in operations.items():
        for number in range(1, one.attempts + 1):
            yield hexed(ids.of_send(one.id, number)), f"execute_tool {tool}"
        for span_id in looked_up(one):
            yield span_id, f"reconcile {tool}"


def looked_up(operation: ToolOperation) -> list[str]:
    """The ids of the spans of its look-ups, one for each that the rows know of."""
    seen = operation.observations.filter(source="look_up").order_by("id")
    tokens = seen.values_list("fence_token", flat=True)
    assert len(tokens) == operation.look_ups
    return [
        hexed(ids.of_look_up(operation.id, number, token))
        for number, token in enumerate(tokens, start=1)
    ]


def lost(story: Story) -> str:
    """The send in which the first worker was killed."""
    book = ToolOperation.objects.get(run=story.run, tool="book")
    return hexed(ids.of_send(book.id, 1))


def hexed(span_id: int) -> str:
    return f"{span_id:016x}"

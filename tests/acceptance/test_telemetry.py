"""One run in the eyes of a collector: asked for by HTTP, its worker killed in a call, signed by a
person, failed and taken back, all by real processes."""

import json
import signal
import socket
import time
from collections import Counter
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
    pytest.mark.timeout(120),
    pytest.mark.django_db(transaction=True),
]

CARD, GOAL = "4000-1234-5678-9010", "send the lamp to Ada"
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


def tell(collector: Collector, provider: Shop, directory: Path) -> Story:
    env = {
        "AGENTOPS_APPS": "tests.acceptance.tracedapp",
        "TRACED_SHOP_URL": provider.url,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "AGENTOPS_LOG_LEVEL": "debug",
        "AGENTOPS_LOG_FORMAT": "json",
    }
    servers = of_this_test()
    with Celery(servers, log_dir=directory, env=env) as celery:
        celery.beat()
        # The shop has done it, and the worker does not live to write that down.
        doomed = celery.worker("doomed", CRASH_AT="call_done:1:SIGKILL")
        with web(environment(servers) | env, directory) as (url, served):
            run, key = start(url)
            assert doomed.wait() == -signal.SIGKILL
            worker = celery.worker("replacement")
            waiting = Approval.objects.filter(run=run, status="pending")
            wait_until(waiting.exists, what="a signature is asked for", seconds=40)
            held = AgentRun.objects.filter(id=run.id, lease_expires_at__isnull=False)
            wait_until(lambda: not held.exists(), what="the run waits")
            waiting_at = time.time_ns()
            say(waiting.get(), person("grace", "finance"))
            ended = AgentRun.objects.filter(id=run.id, finished_at__isnull=False)
            wait_until(ended.exists, what="the run has ended", seconds=40)
            # What is left in their queues leaves when they end.
            for program in (worker, served):
                program.terminate()
                assert program.wait() in (0, -signal.SIGTERM), program.said
        said = (directory / "replacement.log").read_text()
    run.refresh_from_db()
    return Story(run, collector, provider, waiting_at, key=key, said=said)


def web(env: dict[str, str], directory: Path) -> Any:
    return _Web(env, directory)


class _Web:
    def __init__(self, env: dict[str, str], directory: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        arguments = processes.web(host="127.0.0.1", port=self.port)
        self.program = Program(
            "-m", "uvicorn", *arguments, env=env, log=directory / "web.log", name="web"
        )

    def __enter__(self) -> tuple[str, Program]:
        url = f"http://127.0.0.1:{self.port}"

        def answers() -> bool:
            try:
                return httpx2.get(f"{url}/healthz", timeout=SOON, trust_env=False).status_code == 200
            except httpx2.TransportError:
                return False

        wait_until(answers, what="the web process answers")
        return url, self.program

    def __exit__(self, *_: object) -> None:
        self.program.kill()
        print(f"-- web said:\n{self.program.said}")


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
    assert {one.parent_id for one in below} <= set(slices)
    assert Counter(one.name for one in below if one.name != "decide traced") == {
        "reconcile book": 1,
        "execute_tool ship": 1,
        "execute_tool recall": 1,
        "execute_tool unbook": 1,
    }
    operations = {one.tool: one for one in ToolOperation.objects.filter(run=story.run)}
    (found,) = story.named("reconcile book")
    assert found.links == (hexed(ids.of_send(operations["book"].id, 1)),)
    assert found.attributes["agentops.verdict"] == "committed"
    (sent,) = story.named("execute_tool ship")
    assert sent.span_id == hexed(ids.of_send(operations["ship"].id, 1))
    assert sent.attributes | {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "ship",
        "gen_ai.tool.call.id": operations["ship"].id,
        "gen_ai.agent.name": "traced",
        "gen_ai.conversation.id": str(story.run.id),
        "agentops.step": operations["ship"].step_number,
        "agentops.attempt": 1,
        "agentops.outcome": "committed",
    } == sent.attributes
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
    book = ToolOperation.objects.get(run=story.run, tool="book")
    of_the_dead = hexed(ids.of_send(book.id, 1))
    heard = [one.traceparent.split("-") for one in story.shop.asked]
    assert {trace_id for _, trace_id, _, _ in heard} == {TRACE}
    assert heard[0][2] == of_the_dead
    assert {span_id for _, _, span_id, _ in heard} <= {of_the_dead, *known}
    # Each attempt names its own span, and what the shop compares is the same.
    assert all(b"traceparent" not in one.body for one in story.shop.asked)


def assert_lines_name_what_they_are_about(story: Story) -> None:
    lines = [json.loads(line) for line in story.said.splitlines()]
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


def hexed(span_id: int) -> str:
    return f"{span_id:016x}"

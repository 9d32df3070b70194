"""Spans of runs: what stands below what, what links to what, and what is never told."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace

from agentops.telemetry import ids
from runs import Delegate, Finish, Script, ToolCall, events
from runs.access import RUNS_WRITE, Actor
from runs.commands import fork_run, start_run
from runs.models import AgentRun
from tests.database.calling import ELSEWHERE, NEVER, carry_out, send
from tests.database.delegating import child_of, delegate, worker
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    call_once,
    change,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    found,
    operation_of,
    scripted_tool,
)
from tests.database.kit import (
    Script as Answers,
)
from tests.database.spans import (
    Recorded,
    error_of,
    id_of,
    links_of,
    parent_of,
    recording,
    said,
    trace_of,
)
from tests.database.together import operations, pays, start_together, together_tool
from tests.llms.scripted import ScriptedLlm, call, say, using
from tools import Call, Reconciled, Rejected
from tools.tracing import current_traceparent

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
TRACE, CALLER = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
TRACEPARENT = f"00-{TRACE:032x}-{CALLER:016x}-01"
ASKER = Actor(name="asker", scopes=frozenset({RUNS_WRITE}), traceparent=TRACEPARENT)


@pytest.fixture
def spans() -> Iterator[Recorded]:
    with recording() as recorded:
        yield recorded


def test_a_run_that_nobody_traces_has_a_trace_by_its_own_id(start: Start, spans: Recorded) -> None:
    scripted_tool("paid")
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert {trace_of(span) for span in spans.spans} == {run.id.int}
    held = spans.only(f"invoke_agent {run.agent}")
    assert (parent_of(held), links_of(held)) == (None, [])
    assert id_of(held) == ids.of_slice(run.id, 1)
    assert said(held) | {"agentops.state": "COMPLETED", "agentops.steps": 2} == said(held)
    sent = spans.only("execute_tool pay")
    assert parent_of(sent) == id_of(held)
    assert id_of(sent) == ids.of_send(operation_of(run).id, 1)
    assert [parent_of(one) for one in spans.named(f"decide {run.agent}")] == [id_of(held)] * 2
    assert {error_of(span) for span in spans.spans} == {None}


def test_the_next_slice_links_to_the_one_before_and_stands_below_the_same_caller(
    start: Start, spans: Recorded
) -> None:
    look_up = Answers(found())
    scripted_tool(LOST, look_up=look_up)
    agent = start(decider=call_once(), tools=("pay",)).agent
    run = start_run(actor=ASKER, agent=agent).run
    drive(run)
    drive_when_due(run)
    first, second = spans.named(f"invoke_agent {agent}")
    assert [parent_of(first), parent_of(second)] == [CALLER, CALLER]
    assert (links_of(first), links_of(second)) == ([], [id_of(first)])
    assert {trace_of(first), trace_of(second)} == {TRACE}
    sent = spans.only("execute_tool pay")
    assert (error_of(sent), said(sent)["agentops.outcome"]) == ("unknown", "unknown")
    asked = spans.only("reconcile pay")
    assert (parent_of(asked), links_of(asked)) == (id_of(second), [id_of(sent)])
    assert said(asked)["agentops.verdict"] == "committed"


@pytest.mark.parametrize(
    ("answer", "outcome"), [(Rejected("no card 4000-12"), "rejected"), (LOST, "unknown")]
)
def test_what_went_wrong_is_a_class_and_no_words(
    start: Start, spans: Recorded, answer: Exception, outcome: str
) -> None:
    scripted_tool(answer)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert error_of(spans.only("execute_tool pay")) == outcome
    assert "4000-12" not in str([span.to_json() for span in spans.spans])


def test_nothing_of_a_worker_that_died_is_told_by_the_next_one(
    start: Start, spans: Recorded
) -> None:
    scripted_tool("paid", look_up=Answers(found()))
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_DONE):
        drive(run)
    expire_lease(run)
    drive_when_due(run)
    assert spans.names.count("execute_tool pay") == spans.names.count("reconcile pay") == 1
    assert len({id_of(span) for span in spans.spans}) == len(spans.spans)
    newest = spans.named(f"invoke_agent {run.agent}")[-1]
    assert links_of(newest) == [ids.of_slice(run.id, run.fence_token - 1)]


def test_two_look_ups_around_a_lost_lease_are_two_spans(start: Start, spans: Recorded) -> None:
    def lose_the_lease(_: Call) -> Reconciled[Any]:
        change("UPDATE runs_agentrun SET fence_token = fence_token + 1, version = version + 1")
        return Reconciled.indeterminate("not seen yet")

    scripted_tool(LOST, look_up=Answers(lose_the_lease, found()))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert drive_when_due(run).lease_lost
    expire_lease(run)
    drive_when_due(run)
    first, second = spans.named("reconcile pay")
    assert said(first)["agentops.look_up"] == said(second)["agentops.look_up"] == 1
    assert id_of(first) != id_of(second)


def test_what_an_interruption_left_open_is_closed_and_says_so(
    start: Start, spans: Recorded
) -> None:
    scripted_tool("paid")
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_STARTING):
        drive(run)
    assert error_of(spans.only("execute_tool pay")) == "interrupted"
    assert spans.only(f"invoke_agent {run.agent}").end_time is not None
    assert current_traceparent() == ""
    assert not trace.get_current_span().get_span_context().is_valid


def test_calls_that_leave_together_stand_side_by_side_each_with_its_own_context(
    start: Start, spans: Recorded
) -> None:
    told: dict[str, str] = {}

    def act(given: Call, number: int) -> int:
        told[given.operation_id] = given.trace_headers["traceparent"]
        current = trace.get_current_span().get_span_context()
        assert ids.write_context(current) == told[given.operation_id]
        return number

    together_tool(act)
    run = start_together(start, *pays(1, 2, 3))
    drive(run)
    sent = spans.named("execute_tool pay")
    assert {parent_of(span) for span in sent} == {ids.of_slice(run.id, 1)}
    expected = {
        one.id: f"00-{run.id.hex}-{ids.of_send(one.id, 1):016x}-01" for one in operations(run)
    }
    assert told == expected
    assert {id_of(span) for span in sent} == {ids.of_send(one, 1) for one in told}


def test_a_child_is_a_part_of_its_parents_trace(start: Start, spans: Recorded) -> None:
    worker(Script(Finish(3)))
    run = start(decider=delegate(Delegate("helper", "add up", {})))
    drive(run)
    child = child_of(run)
    assert child.traceparent == f"00-{run.id.hex}-{ids.of_slice(run.id, 1):016x}-01"
    drive(child)
    held = spans.only("invoke_agent helper")
    assert (trace_of(held), parent_of(held)) == (run.id.int, ids.of_slice(run.id, 1))


def test_where_nothing_is_recorded_callers_are_still_handed_on(start: Start) -> None:
    script = scripted_tool("paid")
    worker(Script(ToolCall("pay", amount=1), Finish(3)), tools=("pay",))
    agent = start(decider=delegate(Delegate("helper", "add up", {}))).agent
    run = start_run(actor=ASKER, agent=agent).run
    drive(run)
    child = child_of(run)
    assert child.traceparent == TRACEPARENT
    drive(child)
    assert dict(script.calls[0].trace_headers) == {}
    assert fork_run(actor=ASKER, run_id=child.id, step=0).run.traceparent == TRACEPARENT


def test_a_call_through_the_gateway_goes_on_with_its_callers_trace(spans: Recorded) -> None:
    scripted_tool("paid", approval_policy=NEVER)
    elsewhere = Actor(
        name=ELSEWHERE.name,
        scopes=ELSEWHERE.scopes,
        user_id=ELSEWHERE.user_id,
        token=ELSEWHERE.token,
        traceparent=TRACEPARENT,
    )
    carry_out(send(actor=elsewhere))
    sent = spans.only("execute_tool pay")
    assert trace_of(sent) == TRACE
    assert parent_of(spans.only("invoke_agent external")) == CALLER


def test_a_request_of_an_llm_says_what_it_used_and_not_what_was_said(
    start: Start, spans: Recorded
) -> None:
    scripted_tool({"paid": 5})
    scripted = ScriptedLlm(
        using(call("pay", amount=4711), input_tokens=30, output_tokens=7),
        TimeoutError("of the provider"),
        say("It is paid, all 4711."),
        name="mini",
    )
    run = start(decider=scripted.llm, tools=("pay",), objective="pay my 4711")
    drive(run)
    drive_when_due(run)
    first, failed, _ = spans.named("chat mini")
    assert said(first) | {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "function",
        "gen_ai.request.model": "mini",
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.agent.name": run.agent,
        "gen_ai.conversation.id": str(run.id),
        "agentops.step": 1,
    } == said(first)
    decided = spans.named(f"decide {run.agent}")
    assert parent_of(first) == id_of(decided[0])
    assert (error_of(first), error_of(failed)) == (None, "failed")
    assert error_of(decided[1]) == "LlmUnavailable"
    assert len({id_of(span) for span in spans.spans}) == len(spans.spans)
    assert "4711" not in str([span.to_json() for span in spans.spans])


def test_an_incident_is_a_moment_of_the_slice(start: Start, spans: Recorded) -> None:
    twice = Reconciled.committed("found", external_ref="re_1", also=["re_2"])
    scripted_tool(LOST, look_up=Answers(twice))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    held = spans.named(f"invoke_agent {run.agent}")[-1]
    (moment,) = held.events
    assert moment.name == "agentops.incident"
    assert dict(moment.attributes or {})["agentops.tool"] == "pay"


def test_a_recorder_that_fails_breaks_no_step(
    start: Start, spans: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise RuntimeError("of ours")

    monkeypatch.setattr(ids, "of_send", fail)
    scripted_tool("paid")
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.state == "COMPLETED"

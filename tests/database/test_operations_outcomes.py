"""Operations: what came back from a call, in time or too late, and what that proves."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from runs import events
from runs.lease import heartbeat
from runs.models import AgentRun
from runs.state import OperationStatus, RunState
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    Script,
    ask,
    call_once,
    change,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    listening,
    operation_edges,
    operation_of,
    run_edges,
    scripted_tool,
    verdicts,
)
from tools import Approve, Call, EffectType, NotSent, Reconciled, Rejected, external_ref

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


# -- What came back -----------------------------------------------------------------------------


def test_a_value_commits_with_its_reference(start: Start) -> None:
    def refund(call: Call) -> dict[str, str]:
        external_ref("re_17")
        return {"refund": "re_17"}

    scripted_tool(refund)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    operation = operation_of(run)
    assert (operation.status, operation.external_ref) == ("COMMITTED", "re_17")
    assert operation.result == {"refund": "re_17"}
    assert operation.settled_at is not None
    assert operation.in_flight_until is None
    assert verdicts(run) == [("worker", "committed")]


def test_a_refusal_is_final(start: Start) -> None:
    script = scripted_tool(Rejected("card expired"), 7)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert (run.state, len(script.calls)) == (RunState.FAILED, 1)
    assert run.error == "REJECTED: card expired"
    assert operation_edges(run) == ["INTEND", "SEND", "REJECT"]


def test_what_was_not_sent_is_tried_again_later_and_later(start: Start) -> None:
    script = scripted_tool(NotSent("a"), NotSent("b"), 7, max_attempts=3)
    run = start(decider=call_once(), tools=("pay",))
    waits = []
    for _ in range(2):
        drive_when_due(run)
        assert (run.state, run.lease_owner) == (RunState.TOOL_PREPARED, "")
        waits.append(
            float(ask("SELECT EXTRACT(EPOCH FROM wake_at - updated_at) FROM runs_agentrun"))
        )
    drive_when_due(run)
    assert (run.state, len(script.calls)) == (RunState.COMPLETED, 3)
    # 2 and 4 seconds, of which up to a half is random.
    # Both dates are of one statement, so a slow machine changes nothing.
    assert 1 <= waits[0] <= 2 <= waits[1] <= 4


def test_what_never_left_is_given_up_as_never_sent(start: Start) -> None:
    script = scripted_tool(*[NotSent("no route")] * 9, max_attempts=3)
    run = start(decider=call_once(), tools=("pay",))
    for _ in range(3):
        drive_when_due(run)
    assert (run.state, len(script.calls)) == (RunState.FAILED, 3)
    operation = operation_of(run)
    assert operation.status == OperationStatus.CANCELLED
    assert "never sent in 3 tries: no route" in operation.error
    assert operation_edges(run) == ["INTEND", *["SEND", "NOT_SENT"] * 3, "GIVE_UP"]


# A TRANSACTIONAL call is never unknown: see `test_transactional.py`.
@pytest.mark.parametrize(
    "effect", [effect for effect in EffectType if effect is not EffectType.TRANSACTIONAL]
)
@pytest.mark.parametrize("error", [LOST, ValueError("a fault of the tool"), SystemExit(3)])
def test_anything_else_is_unknown_and_never_failed(
    start: Start, effect: EffectType, error: BaseException
) -> None:
    script = scripted_tool(error, effect=effect, approval_policy=Approve(when="false"))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    operation = operation_of(run)
    assert (run.state, operation.status) == (RunState.TOOL_STATUS_UNKNOWN, "UNKNOWN")
    assert operation.unknown_since is not None
    assert operation.settled_at is None
    assert operation.next_reconcile_at is not None
    assert (run.wake_at is not None, run.lease_owner) == (True, "")
    assert run.uncertain
    assert len(script.calls) == 1
    assert verdicts(run) == [("worker", "unknown")]


def test_an_answer_that_cannot_be_stored_proves_nothing(start: Start) -> None:
    scripted_tool(object())
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert operation_of(run).status == OperationStatus.UNKNOWN


@pytest.mark.parametrize("second", [Rejected("no such order"), NotSent("no route")])
@pytest.mark.parametrize("effect", [EffectType.IDEMPOTENT_WRITE])
def test_a_refusal_of_a_second_send_does_not_make_the_first_one_rejected(
    start: Start, effect: EffectType, second: Exception
) -> None:
    script = scripted_tool(LOST, second, effect=effect, max_attempts=5)
    run = start(decider=call_once(), tools=("pay",))
    for _ in range(2):
        drive_when_due(run)
    assert len(script.calls) == 2
    operation = operation_of(run)
    assert (run.state, operation.status) == (RunState.TOOL_STATUS_UNKNOWN, "UNKNOWN")
    assert "an earlier send is unknown" in operation.error
    drive_when_due(run)
    assert operation_of(run).status not in {"REJECTED", "CANCELLED"}
    assert "REJECT" not in operation_edges(run)


def test_a_read_that_was_unknown_and_then_not_sent_is_not_called_never_sent(
    start: Start,
) -> None:
    scripted_tool(LOST, NotSent("a"), NotSent("b"), effect=EffectType.READ, max_attempts=3)
    run = start(decider=call_once(), tools=("pay",))
    for _ in range(4):
        drive_when_due(run)
    assert run.state == RunState.FAILED
    assert "never sent" not in operation_of(run).error
    assert operation_of(run).status == OperationStatus.REJECTED


def test_a_vanished_sender_leaves_an_unknown_outcome(start: Start) -> None:
    scripted_tool(7, effect=EffectType.IRREVERSIBLE, approval_policy=Approve(when="false"))
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_DONE):
        drive(run)
    expire_lease(run)
    drive(run, owner="worker 2")
    assert operation_edges(run) == ["INTEND", "SEND", "LOSE_OUTCOME"]
    assert "TAKE_OVER" in run_edges(run)
    assert operation_of(run).status == OperationStatus.UNKNOWN
    assert "its sender is gone" in ask(
        "SELECT reason FROM runs_transition WHERE event = 'TAKE_OVER'"
    )


# -- Answers that come too late -----------------------------------------------------------------


def test_a_worker_that_lost_its_lease_during_the_call_records_evidence_only(
    start: Start,
) -> None:
    def lose_the_lease(call: Call) -> str:
        change("UPDATE runs_agentrun SET fence_token = fence_token + 1, version = version + 1")
        return "done"

    scripted_tool(lose_the_lease)
    run = start(decider=call_once(), tools=("pay",))
    with listening() as heard:
        progress = drive(run)
    assert progress.lease_lost
    assert (run.state, operation_of(run).status) == (RunState.TOOL_RUNNING, "RUNNING")
    assert verdicts(run) == [("stale_worker", "committed")]
    names = [event.name for event in heard]
    assert names.count(events.Name.LEASE_LOST) == names.count(events.Name.LATE_EVIDENCE) == 1


def test_a_function_that_outlives_its_deadline_is_unknown_and_its_answer_is_kept(
    start: Start, settings: Settings
) -> None:
    may_answer, kept = threading.Event(), threading.Event()
    unsubscribe = events.subscribe(
        lambda event: kept.set() if event.name is events.Name.LATE_EVIDENCE else None
    )

    def answer_late(call: Call) -> str:
        may_answer.wait(20)
        return "late"

    script = scripted_tool(answer_late, seconds=0.2, look_up=Script())
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert (run.state, verdicts(run)) == (RunState.TOOL_STATUS_UNKNOWN, [("worker", "unknown")])
    # Between two beats of the heart nobody may take it for landed.
    beat = settings.AGENTOPS_LEASE_SECONDS / 3
    assert _in_flight_for(run) > beat
    change("UPDATE runs_tooloperation SET in_flight_until = now() + interval '1 s'")
    heartbeat.run_once()
    assert _in_flight_for(run) > beat
    may_answer.set()
    assert kept.wait(20)
    unsubscribe()
    assert verdicts(run)[-1] == ("stale_worker", "committed")
    drive_when_due(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "late", 1)


def test_what_the_heart_wrote_meanwhile_is_not_taken_back(start: Start) -> None:
    def push_on(call: Call) -> Reconciled[Any]:
        change("UPDATE runs_tooloperation SET in_flight_until = now() + interval '500 s'")
        return Reconciled.indeterminate("not yet")

    scripted_tool(LOST, look_up=Script(push_on))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    change("UPDATE runs_tooloperation SET in_flight_until = now() + interval '5 s'")
    change("UPDATE runs_agentrun SET wake_at = now()")
    drive(run)
    assert operation_of(run).look_ups == 1
    assert _in_flight_for(run) > 400


def _in_flight_for(run: AgentRun) -> float:
    return float(
        ask(
            "SELECT EXTRACT(EPOCH FROM in_flight_until - now()) FROM runs_tooloperation"
            " WHERE run_id = %s",
            run.id,
        )
    )

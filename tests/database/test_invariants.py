"""The invariants of the kernel, one law each: every one fails when the line that keeps it goes.

The laws of single modules are in the files beside this one; here each promise is
kept or broken end to end, on real rows.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from runs import CallTools, Context, Decision, Finish, ToolCall, events
from runs.change import Change, Edge
from runs.commit import commit_if_held
from runs.errors import LeaseLost
from runs.lease import claim
from runs.models import AgentRun, ModelDecision, ToolObservation, ToolOperation, Transition
from runs.queries import duplicate_counts
from runs.state import (
    FINAL_STATES,
    PERSON_STATES,
    RUN_EDGES,
    UNDATED_STATES,
    OperationStatus,
    RunState,
)
from runs.statement import Held
from tests.database.kit import (
    ON_DATABASE,
    Script,
    ask,
    call_once,
    change,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    found,
    hear_late,
    operation_edges,
    operation_of,
    scripted_tool,
    verdicts,
)
from tools import Approve, Call, EffectType, NotSent, Reconciled, Rejected

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
LOST = ConnectionResetError("lost")


def test_1_an_external_action_has_one_operation_id_across_retries_and_workers(
    start: Start,
) -> None:
    look_up = Script(Reconciled.not_found(), Reconciled.not_found(), found())
    script = scripted_tool(NotSent("a"), LOST, LOST, 4, look_up=look_up, max_attempts=9)
    run = start(decider=call_once(), tools=("pay",))
    for number in range(3):
        drive_when_due(run, owner=f"worker {number}")
    with dies_at(events.Name.CALL_DONE):
        drive_when_due(run, owner="worker 3")
    expire_lease(run)
    drive(run, owner="worker 4")
    assert run.state == RunState.COMPLETED
    said = [(call.operation_id, call.idempotency_key) for call in script.calls + look_up.calls]
    assert len(said) == 4 + 3
    assert len(set(said)) == 1
    assert len({call.fence_token for call in script.calls}) == 4
    assert ToolOperation.objects.filter(run=run).count() == 1


def test_2_only_the_holder_of_the_current_token_advances_a_run(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    first = claim(run_id=run.id, owner="worker 1")
    assert first is not None
    assert claim(run_id=run.id, owner="worker 2") is None
    expire_lease(run)
    second = claim(run_id=run.id, owner="worker 2")
    assert second is not None
    assert second.lease.fence_token > first.lease.fence_token
    step = Change(
        edges=[Edge("OPEN_STEP", "READY", "DECIDING", "", 1, 1)],
        run={"state": "DECIDING", "step_number": 1},
        open_step=1,
        open_attempt=1,
    )
    # The stale worker may even know the newest version: its token is what it lacks.
    version = second.row["version"]
    with pytest.raises(LeaseLost):
        commit_if_held(Held(run.id, version, first.lease.fence_token, "w", None, None), step)
    run.refresh_from_db()
    assert (run.state, run.version) == ("READY", version)
    commit_if_held(Held(run.id, version, second.lease.fence_token, "w", None, None), step)


def test_2_a_worker_that_was_replaced_during_its_call_moves_nothing(start: Start) -> None:
    def be_replaced(call: Call) -> str:
        expire_lease(run)
        replaced.append(claim(run_id=run.id, owner="worker 2"))
        return "the stale answer"

    replaced: list[Any] = []
    scripted_tool(be_replaced)
    run = start(decider=call_once(), tools=("pay",))
    progress = drive(run)
    assert progress.lease_lost
    assert replaced[0].lease.fence_token == run.fence_token == 2
    assert (run.state, operation_of(run).status) == ("TOOL_RUNNING", "RUNNING")
    assert run.lease_owner == "worker 2"
    assert verdicts(run) == [("stale_worker", "committed")]


@pytest.mark.parametrize(
    ("answer", "trail"),
    [
        (7, ["PREPARED", "RUNNING", "COMMITTED"]),
        (Rejected("no"), ["PREPARED", "RUNNING", "REJECTED"]),
        (LOST, ["PREPARED", "RUNNING", "UNKNOWN"]),
        (NotSent("no route"), ["PREPARED", "RUNNING", "PREPARED"]),
    ],
)
def test_3_a_side_effect_is_prepared_then_running_then_committed_rejected_or_unknown(
    start: Start, answer: Any, trail: list[str]
) -> None:
    during: list[str] = []

    def look(call: Call) -> Any:
        during.append(ToolOperation.objects.get(id=call.operation_id).status)
        if isinstance(answer, Exception):
            raise answer
        return answer

    scripted_tool(look)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    rows = Transition.objects.filter(run=run).exclude(operation=None).order_by("id")
    assert [row.to_state for row in rows] == trail
    assert operation_of(run).status == trail[-1]
    # Before anything could leave, it was on record that it might.
    assert during == ["RUNNING"]


def test_3_a_crash_during_the_call_is_recorded_as_unknown(start: Start) -> None:
    scripted_tool(7, effect=EffectType.IRREVERSIBLE, approval_policy=Approve(when="false"))
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_DONE):
        drive(run)
    assert operation_of(run).status == OperationStatus.RUNNING
    expire_lease(run)
    drive(run, owner="worker 2")
    assert operation_of(run).status == OperationStatus.UNKNOWN
    assert run.uncertain


def test_4_an_unknown_operation_is_reconciled_before_it_is_repeated(start: Start) -> None:
    order: list[str] = []

    def note(what: str, then: Any) -> Callable[[Call], Any]:
        def act(call: Call) -> Any:
            order.append(what)
            if isinstance(then, Exception):
                raise then
            return then

        return act

    look_up = Script(
        note("look-up", Reconciled.not_found()), note("look-up", Reconciled.not_found())
    )
    scripted_tool(
        note("send", LOST), note("send", LOST), note("send", 7), look_up=look_up, max_attempts=5
    )
    run = start(decider=call_once(), tools=("pay",))
    for _ in range(3):
        drive_when_due(run)
    assert run.state == RunState.COMPLETED
    assert order == ["send", "look-up", "send", "look-up", "send"]


def test_4_a_take_over_of_a_call_that_may_have_left_asks_before_it_sends(start: Start) -> None:
    look_up = Script(found("it was there"))
    script = scripted_tool(7, look_up=look_up)
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_DONE):
        drive(run)
    expire_lease(run)
    drive(run, owner="worker 2")
    assert (run.result, len(script.calls), len(look_up.calls)) == ("it was there", 1, 1)


def test_5_what_needs_a_signature_is_held_until_there_is_one(start: Start) -> None:
    script = scripted_tool(7, approval_policy=Approve(when="amount > 500"))
    run = start(decider=call_once(ToolCall("pay", amount=501)), tools=("pay",))
    drive(run)
    for _ in range(3):
        # Even a worker that looks again finds no way past it.
        change("UPDATE runs_agentrun SET wake_at = now()")
        drive(run, owner="another worker")
        assert run.state == RunState.WAITING_FOR_APPROVAL
    assert script.calls == []
    assert operation_of(run).status == OperationStatus.AWAITING_APPROVAL


def test_6_a_decision_may_be_made_anew_until_it_is_recorded_and_never_after(
    start: Start,
) -> None:
    scripted_tool(7, effect=EffectType.READ)
    answers = iter([1, 2, 3])
    asked: list[int] = []

    def decide(context: Context) -> Decision:
        if context.last is not None:
            return Finish(context.last.arguments["amount"])
        asked.append(next(answers))
        return CallTools(ToolCall("pay", amount=asked[-1]))

    run = start(decider=decide, tools=("pay",))
    with dies_at(events.Name.DECIDER_DONE):
        drive(run)  # thrown away: it was not recorded
    expire_lease(run)
    with dies_at(events.Name.CALL_STARTING):
        drive(run)  # recorded
    expire_lease(run)
    drive(run)
    assert (run.state, run.result, asked) == (RunState.COMPLETED, 2, [1, 2])
    assert ModelDecision.objects.filter(run=run).count() == 2
    with pytest.raises(IntegrityError):
        change("UPDATE runs_modeldecision SET body = '{}' WHERE run_id = %s", run.id)


@pytest.mark.parametrize("answer", [7, Rejected("no")])
def test_6_an_effect_that_was_executed_is_not_executed_again(start: Start, answer: Any) -> None:
    first = scripted_tool(answer, name="first")
    second = scripted_tool("ok", "ok", name="second", effect=EffectType.READ)
    run = start(decider=call_once(ToolCall("first"), ToolCall("second")), tools=("first", "second"))
    # The first one's outcome is recorded with the second one's intent.
    with dies_at(events.Name.CALL_STARTING, nth=2):
        drive(run)
    expire_lease(run)
    drive(run)
    assert run.state == RunState.COMPLETED
    assert (len(first.calls), len(second.calls)) == (1, 1)


def test_7_completion_comes_from_durable_state(start: Start) -> None:
    run = start(decider=lambda context: Finish({"total": 42}))
    with dies_at(events.Name.COMMIT_STARTING, nth=2):
        drive(run)
    # The decider has said "finish", and nobody may believe it yet.
    run.refresh_from_db()
    assert (run.state, run.result, run.finished_at) == ("DECIDING", None, None)
    expire_lease(run)
    with dies_at(events.Name.COMMIT_DONE, nth=2):
        drive(run)
    # Now it is true whatever becomes of the worker.
    run.refresh_from_db()
    assert (run.state, run.result) == (RunState.COMPLETED, {"total": 42})
    assert run.finished_at is not None
    assert not drive(run).claimed


def test_7_a_state_that_no_journal_row_explains_is_refused(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    with pytest.raises(IntegrityError):
        change(
            "UPDATE runs_agentrun SET state = 'COMPLETED', version = version + 1, finished_at ="
            " now(), wake_at = NULL WHERE id = %s",
            run.id,
        )


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE runs_transition SET reason = 'it was not me' WHERE run_id = %s",
        "UPDATE runs_transition SET at = now() WHERE run_id = %s",
        "DELETE FROM runs_transition WHERE run_id = %s",
        "DELETE FROM runs_transition WHERE run_id = %s AND operation_id IS NOT NULL",
        "UPDATE runs_toolobservation SET verdict = 'committed' WHERE run_id = %s",
        "DELETE FROM runs_toolobservation WHERE run_id = %s",
    ],
)
def test_8_journal_and_evidence_never_change_while_their_run_exists(start: Start, sql: str) -> None:
    scripted_tool(Rejected("no"))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    rows = Transition.objects.filter(run=run), ToolObservation.objects.filter(run=run)
    before = [list(each.order_by("id").values()) for each in rows]
    with pytest.raises(IntegrityError):
        change(sql, run.id)
    assert [list(each.order_by("id").values()) for each in rows] == before


@pytest.mark.parametrize("state", sorted(set(RunState) - UNDATED_STATES))
def test_9_a_run_that_a_worker_must_move_has_a_date_and_a_way_on(
    start: Start, state: RunState
) -> None:
    run = start(decider=lambda context: Finish(1))
    with pytest.raises(IntegrityError, match="run_has_a_next_mover"), transaction.atomic():
        change(
            "UPDATE runs_agentrun SET state = %s, version = 2, wake_at = NULL WHERE id = %s",
            state,
            run.id,
        )
    assert [to for (source, _), (to, _) in RUN_EDGES.items() if source is state and to != state]


@pytest.mark.parametrize("state", sorted(PERSON_STATES))
def test_9_a_run_that_a_person_must_move_has_a_way_on(state: RunState) -> None:
    assert {to for (source, _), (to, _) in RUN_EDGES.items() if source is state} - {state}


@pytest.mark.parametrize(
    "answer", [7, Rejected("no"), NotSent("no route"), LOST, "held", "no decision", "dies"]
)
def test_9_however_a_worker_leaves_a_run_somebody_is_due(start: Start, answer: Any) -> None:
    scripted_tool(answer, approval_policy=Approve(when="true" if answer == "held" else "false"))
    decider = call_once() if answer != "no decision" else (lambda context: None)
    run = start(decider=decider, tools=("pay",))
    if answer == "dies":
        with dies_at(events.Name.CALL_DONE):
            drive(run)
        run.refresh_from_db()
        assert run.lease_expires_at is not None
    else:
        drive(run)
        assert run.lease_owner == ""
    if run.state in FINAL_STATES | PERSON_STATES:
        assert (run.wake_at, run.sweep_at) == (None, None)
    else:
        # The sweep finds it when its date comes, or when its worker's lease is over.
        assert run.wake_at is not None
        assert run.sweep_at is not None
        assert run.sweep_at == (run.lease_expires_at or run.wake_at)


def test_10_a_repeat_is_counted_and_shown(start: Start) -> None:
    script = scripted_tool(LOST, LOST, 7, max_attempts=5)
    run = start(decider=call_once(), tools=("pay",))
    for _ in range(3):
        drive_when_due(run)
    operation = operation_of(run)
    assert operation.attempts == len(script.calls) == 3
    assert operation_edges(run).count("SEND_AGAIN") == 2
    assert [seen.attempt for seen in operation.observations.order_by("id")] == [1, 2, 3]


def test_10_a_refused_repeat_is_kept_as_evidence(start: Start) -> None:
    scripted_tool(LOST, Rejected("already exists"), max_attempts=5)
    run = start(decider=call_once(), tools=("pay",))
    for _ in range(2):
        drive_when_due(run)
    assert verdicts(run) == [("worker", "unknown"), ("worker", "rejected")]
    assert "already exists" in operation_of(run).error


def test_10_the_answer_of_a_stale_worker_is_kept_as_evidence(start: Start) -> None:
    def be_replaced(call: Call) -> str:
        expire_lease(run)
        drive(run, owner="worker 2")
        return "second answer"

    look_up = Script(found("first answer"))
    scripted_tool(be_replaced, look_up=look_up)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, "first answer")
    assert verdicts(run) == [
        ("take_over", "unknown"),
        ("look_up", "committed"),
        ("stale_worker", "committed"),
    ]
    late = operation_of(run).observations.get(source="stale_worker")
    assert (late.result, late.fence_token, late.attempt) == ("second answer", 1, 1)
    assert ask("SELECT count(*) FROM runs_transition WHERE to_state = 'COMMITTED'") == 1


def test_10_a_replay_a_refused_repeat_and_a_late_effect_are_each_counted(start: Start) -> None:
    scripted_tool(LOST, 7)
    scripted_tool(1, name="once", on_repeated_intent="refuse")
    calls = [ToolCall("pay"), ToolCall("pay"), ToolCall("once"), ToolCall("once")]
    run = start(decider=call_once(*calls), tools=("pay", "once"))
    for _ in range(2):
        drive_when_due(run)
    operation = operation_of(run)
    change("UPDATE runs_tooloperation SET external_ref = 're_2' WHERE id = %s", operation.id)
    hear_late(run, "committed", external_ref="re_1", attempt=1)
    counted = duplicate_counts()
    assert (counted.replays, counted.refused_repeats, counted.duplicates) == (1, 1, 1)

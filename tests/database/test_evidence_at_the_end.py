"""Evidence that comes just before an operation's end is read by whoever ends it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from runs import events, watch
from runs.access import operator
from runs.commands import cancel_run, reconcile_now
from runs.models import AgentRun, ToolObservation
from runs.resolution import resolve_operation
from runs.state import RunState
from tests.database.kit import (
    KEYED,
    LOST,
    ON_DATABASE,
    PLAIN,
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
    incidents,
    let_pass,
    make_due,
    operation_of,
    scripted_tool,
    verdicts,
)
from tools import Call, EffectType, NotSent, Reconciled, Rejected

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
ANN = operator("ann")


def _lost(start: Start, *answers: Any, **declared: Any) -> tuple[AgentRun, Script]:
    """A run whose first call brought no answer, by a tool without a look-up."""
    declared = {"effect": EffectType.NON_IDEMPOTENT_WRITE, "provider": PLAIN} | declared
    script = scripted_tool(LOST, *answers, **declared)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    return run, script


def _vanished(start: Start, **declared: Any) -> tuple[AgentRun, Script]:
    """A run whose worker was replaced in the middle of its only send; a person is awaited."""
    declared = {"effect": EffectType.NON_IDEMPOTENT_WRITE, "provider": PLAIN} | declared
    script = scripted_tool("never heard", "again", **declared)
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_DONE):
        drive(run)
    expire_lease(run)
    for _ in range(2):
        drive_when_due(run, owner="worker 2")
    assert (run.state, run.wake_at) == (RunState.WAITING_FOR_RESOLUTION, None)
    return run, script


def _say(run: AgentRun, outcome: str, **more: Any) -> None:
    resolve_operation(
        actor=ANN,
        operation_id=operation_of(run).id,
        outcome=outcome,  # type: ignore[arg-type]
        evidence="seen on the statement",
        **more,
    )
    run.refresh_from_db()


# -- Proof after a person's denial ----------------------------------------------------------------


def test_proof_that_came_before_a_cancel_is_recorded_and_not_cancelled_away(start: Start) -> None:
    run, script = _lost(start, "must not be sent")
    _say(run, "not_committed")
    hear_late(run, "committed", result="late", external_ref="re_1")
    cancel_run(actor=ANN, run_id=run.id)
    drive_when_due(run)
    operation = operation_of(run)
    assert (operation.status, operation.result) == ("COMMITTED", "late")
    assert operation.external_ref == "re_1"
    assert (run.state, len(script.calls), incidents(run)) == (RunState.CANCELLED, 1, [])


@pytest.mark.parametrize("answer", [Rejected("refunded already"), NotSent("no route"), LOST])
def test_proof_of_an_earlier_send_outweighs_what_is_said_of_the_second(
    start: Start, answer: Exception
) -> None:
    def hear_of_the_first(call: Call) -> None:
        hear_late(run, "committed", result="late", external_ref="re_1", attempt=1)
        raise answer

    run, script = _lost(start, hear_of_the_first)
    _say(run, "not_committed")
    drive_when_due(run)
    operation = operation_of(run)
    assert (operation.status, operation.external_ref) == ("COMMITTED", "re_1")
    assert (run.state, run.result) == (RunState.COMPLETED, "late")
    assert (len(script.calls), incidents(run)) == (2, [])


def test_proof_in_the_evidence_of_a_closed_operation_is_found_by_its_watch(start: Start) -> None:
    """It was written in the moment of the end, and its writer still saw it unknown."""
    cannot_say = Script(*[Reconciled.indeterminate("down", failed=True)] * 9)
    run, _ = _lost(start, look_up=cannot_say)
    _say(run, "rejected")
    drive(run)
    operation = operation_of(run)
    ToolObservation.objects.create(
        operation=operation,
        run=run,
        source="stale_worker",
        verdict="committed",
        external_ref="re_1",
        attempt=1,
        fence_token=1,
    )
    assert incidents(run) == []
    let_pass(minutes=2)
    watch.watch(operation.id)
    assert incidents(run) == [("LATE_COMMIT", "re_1")]


# -- A wake-up while the holder parks -------------------------------------------------------------


def _at_the_last_commit(run: AgentRun, then: Callable[[], Any]) -> None:
    """Drive the run to a person; `then` happens when its holder has read the evidence."""
    happened: list[bool] = []

    def once(event: events.Event) -> None:
        if event.name is events.Name.COMMIT_STARTING and not happened:
            happened.append(True)
            then()

    make_due(run)
    unsubscribe = events.subscribe(once)
    try:
        drive(run)
    finally:
        unsubscribe()
    assert (run.state, happened) == (RunState.WAITING_FOR_RESOLUTION, [True])


def _is_due(run: AgentRun) -> bool:
    return bool(
        ask("SELECT wake_at <= statement_timestamp() FROM runs_agentrun WHERE id = %s", run.id)
    )


def test_proof_that_comes_while_the_holder_parks_makes_somebody_due(start: Start) -> None:
    run, script = _lost(start)
    _at_the_last_commit(run, lambda: hear_late(run, "committed", result=7, external_ref="re_1"))
    assert _is_due(run)
    drive(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, 7, 1)


def test_a_wish_to_look_it_up_while_the_holder_parks_makes_somebody_due(start: Start) -> None:
    run, _ = _lost(start)
    _at_the_last_commit(run, lambda: reconcile_now(actor=ANN, operation_id=operation_of(run).id))
    assert _is_due(run)
    drive(run)
    # And once it was heeded, nobody is due any more.
    assert (run.state, run.wake_at) == (RunState.WAITING_FOR_RESOLUTION, None)


def test_a_holder_that_nobody_woke_parks_as_it_says(start: Start) -> None:
    run, _ = _lost(start)
    _at_the_last_commit(run, lambda: None)
    assert (run.wake_at, run.sweep_at) == (None, None)


# -- A late answer that is no proof ---------------------------------------------------------------


def test_a_late_refusal_of_the_only_send_ends_the_wait_for_a_person(start: Start) -> None:
    run, script = _vanished(start)
    hear_late(run, "rejected", detail="no such order")
    assert _is_due(run)
    drive(run)
    assert (run.state, run.error) == (RunState.FAILED, "REJECTED: no such order")
    assert len(script.calls) == 1


def test_a_late_word_that_nothing_was_sent_makes_somebody_due(start: Start) -> None:
    run, _ = _vanished(start)
    hear_late(run, "not_sent", detail="no route")
    assert _is_due(run)


def test_a_late_word_that_nothing_was_sent_lets_it_be_sent_before_a_person_is_asked(
    start: Start,
) -> None:
    script = scripted_tool(
        "never heard",
        "again",
        effect=EffectType.NON_IDEMPOTENT_WRITE,
        provider=PLAIN,
        look_up=Script(Reconciled.indeterminate("down", failed=True)),
    )
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_DONE):
        drive(run)
    expire_lease(run)
    drive(run, owner="worker 2")
    assert run.state == RunState.TOOL_STATUS_UNKNOWN
    hear_late(run, "not_sent", detail="no route")
    assert _is_due(run)
    drive_when_due(run, owner="worker 2")
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "again", 2)


# -- Further effects ------------------------------------------------------------------------------


def _is_overtaken(call: Call) -> None:
    """Somebody else holds the run now, and is gone again."""
    change(
        "UPDATE runs_agentrun SET fence_token = fence_token + 1, version = version + 1,"
        " lease_owner = 'other', lease_expires_at = now() - interval '1 s', wake_at = now()"
        " WHERE id = %s",
        call.run_id,
    )


def test_further_effects_survive_the_lease_of_the_worker_that_saw_them(start: Start) -> None:
    def overtaken(call: Call) -> Reconciled[str]:
        _is_overtaken(call)
        return Reconciled.committed("found", external_ref="re_1", also=("re_2", "re_3"))

    look_up = Script(overtaken)
    run, _ = _lost(start, look_up=look_up)
    assert drive_when_due(run).lease_lost
    expire_lease(run)
    drive(run, owner="worker 3")
    assert (run.state, operation_of(run).external_ref) == (RunState.COMPLETED, "re_1")
    assert sorted(incidents(run)) == [("DUPLICATE", "re_2"), ("DUPLICATE", "re_3")]
    assert len(look_up.calls) == 1


def test_further_effects_without_a_name_are_counted_one_by_one(start: Start) -> None:
    look_up = Script(Reconciled.committed("found", external_ref="re_1", also=("", "", "re_2")))
    run, _ = _lost(start, look_up=look_up)
    drive_when_due(run)
    assert run.state == RunState.COMPLETED
    kinds = [kind for kind, _ in incidents(run)]
    names = {name for _, name in incidents(run)}
    assert (kinds, len(names)) == (["DUPLICATE"] * 3, 3)
    assert "re_2" in names
    assert "" not in names


def test_further_effects_of_what_was_closed_are_incidents_beside_the_late_one(
    start: Start,
) -> None:
    look_up = Script(Reconciled.committed("found", external_ref="re_1", also=("re_2",)))
    run, _ = _lost(start, look_up=look_up)
    _say(run, "rejected")
    drive(run)
    let_pass(minutes=2)
    watch.watch(operation_of(run).id)
    assert incidents(run) == [("LATE_COMMIT", "re_1"), ("DUPLICATE", "re_2")]


# -- The watch runs from the end ------------------------------------------------------------------


def test_what_was_unknown_for_days_is_watched_for_a_day_from_its_end(start: Start) -> None:
    cannot_say = Script(*[Reconciled.indeterminate("down")] * 99)
    run, script = _lost(
        start,
        LOST,
        effect=EffectType.IDEMPOTENT_WRITE,
        provider=KEYED,
        look_up=cannot_say,
        max_attempts=2,
        reconcile_within=timedelta(hours=1),
    )
    drive_when_due(run)
    assert len(script.calls) == 2
    let_pass(hours=72)
    drive_when_due(run)
    assert run.state == RunState.WAITING_FOR_RESOLUTION
    _say(run, "committed", external_ref="re_1")
    operation = operation_of(run)
    assert operation.settled_at is not None
    assert operation.watch_until is not None
    assert operation.watch_until >= operation.settled_at + timedelta(hours=24)
    let_pass(minutes=2)
    cannot_say.answers.appendleft(found(reference="re_2"))
    watch.watch(operation.id)
    assert incidents(run)[-1] == ("DUPLICATE", "re_2")
    operation.refresh_from_db()
    assert operation.next_watch_at is not None
    assert ("look_up", "committed") in verdicts(run)

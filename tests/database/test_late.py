"""Late evidence: kept whoever brings it, moves nothing, and an effect too many is an incident."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError

from runs import events
from runs.access import operator
from runs.commands import cancel_run
from runs.lease import claim
from runs.models import AgentRun, Incident
from runs.resolution import resolve_operation
from runs.state import RunState
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    PLAIN,
    Script,
    call_once,
    change,
    drive,
    drive_when_due,
    expire_lease,
    found,
    hear_late,
    incidents,
    listening,
    operation_edges,
    operation_of,
    scripted_tool,
    verdicts,
)
from tools import Call, EffectType, external_ref

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


RE_1, RE_2 = "re_1", "re_2"


def _refund(reference: str | None, result: Any = "done") -> Callable[[Call], Any]:
    """A function whose effect the provider calls so."""

    def act(call: Call) -> Any:
        if reference is not None:
            external_ref(reference)
        return result

    return act


def _deny(run: AgentRun) -> None:
    """A person says that it did not happen."""
    resolve_operation(
        actor=operator("ann"),
        operation_id=operation_of(run).id,
        outcome="not_committed",
        evidence="not on the statement",
    )
    run.refresh_from_db()


def _lost(start: Start, *answers: Any, **declared: Any) -> tuple[AgentRun, Script]:
    script = scripted_tool(LOST, *answers, **declared)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    return run, script


def _for_a_person(start: Start, *answers: Any, **declared: Any) -> tuple[AgentRun, Script]:
    run, script = _lost(start, *answers, effect=EffectType.NON_IDEMPOTENT_WRITE, **declared)
    drive_when_due(run)
    assert run.state == RunState.WAITING_FOR_RESOLUTION
    return run, script


# -- While it is open ---------------------------------------------------------------------------


def test_late_evidence_moves_no_state_but_somebody_is_due_to_read_it(start: Start) -> None:
    run, _ = _for_a_person(start)
    assert run.wake_at is None
    before = _without_dates(run), operation_edges(run)
    with listening() as heard:
        hear_late(run, "committed", result=7, external_ref=RE_1)
    assert (_without_dates(run), operation_edges(run)) == before
    assert incidents(run) == []
    assert [event.name for event in heard] == [events.Name.LATE_EVIDENCE]
    # No person is needed any more.
    drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, 7)


def test_late_evidence_leaves_a_run_that_is_held_to_its_holder(start: Start) -> None:
    run, _ = _for_a_person(start)
    change("UPDATE runs_agentrun SET wake_at = now()")
    held = claim(run_id=run.id, owner="worker 7")
    assert held is not None
    hear_late(run, "committed", result=7, external_ref=RE_1)
    run.refresh_from_db()
    assert (run.lease_owner, run.fence_token) == ("worker 7", held.lease.fence_token)
    expire_lease(run)
    drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, 7)


def _without_dates(run: AgentRun) -> dict[str, Any]:
    row = {**AgentRun.objects.values().get(id=run.id)}
    for name in ("wake_at", "sweep_at"):
        del row[name]
    return row


def test_an_effect_proved_after_a_persons_denial_stops_the_repeat(start: Start) -> None:
    run, script = _for_a_person(start, 8)
    _deny(run)
    hear_late(run, "committed", result=7, external_ref=RE_1)
    drive(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, 7, 1)
    assert operation_of(run).external_ref == RE_1
    assert incidents(run) == []


def test_an_effect_proved_while_the_repeat_is_under_way_is_an_incident(start: Start) -> None:
    def meanwhile(call: Call) -> Any:
        hear_late(run, "committed", result=7, external_ref=RE_1, attempt=1, fence_token=1)
        return _refund(RE_2, 8)(call)

    run, script = _lost(start, meanwhile)
    with listening() as heard:
        drive_when_due(run)
    assert (run.result, len(script.calls)) == (8, 2)
    assert incidents(run) == [("DUPLICATE", RE_1)]
    assert [event.name for event in heard].count(events.Name.INCIDENT) == 1


def test_of_two_proofs_with_two_references_one_is_recorded_and_one_is_an_incident(
    start: Start,
) -> None:
    run, script = _lost(start, LOST, 9)
    drive_when_due(run)
    hear_late(run, "committed", result=7, external_ref=RE_1, attempt=1, fence_token=1)
    hear_late(run, "committed", result=8, external_ref=RE_2)
    drive_when_due(run)
    assert (run.result, operation_of(run).external_ref, len(script.calls)) == (7, RE_1, 2)
    assert incidents(run) == [("DUPLICATE", RE_2)]


def test_two_proofs_with_one_reference_are_one_effect(start: Start) -> None:
    run, _ = _lost(start, LOST, 9)
    drive_when_due(run)
    for attempt in (1, 2):
        hear_late(run, "committed", result=7, external_ref=RE_1, attempt=attempt)
    drive_when_due(run)
    assert (run.state, incidents(run)) == (RunState.COMPLETED, [])


# -- After it was closed ------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["REJECTED", "CANCELLED"])
def test_an_effect_that_shows_up_after_its_call_was_closed_is_a_late_commit(
    start: Start, ends: str
) -> None:
    run, _ = _for_a_person(start, 8)
    if ends == "REJECTED":
        resolve_operation(
            actor=operator(), operation_id=operation_of(run).id, outcome="rejected", evidence="no"
        )
    else:
        _deny(run)
        cancel_run(actor=operator(), run_id=run.id)
    drive_when_due(run)
    assert operation_of(run).status == ends
    with listening() as heard:
        hear_late(run, "committed", result=7, external_ref=RE_1)
        hear_late(run, "committed", result=7, external_ref=RE_1)
    assert incidents(run) == [("LATE_COMMIT", RE_1)]
    assert [event.name for event in heard].count(events.Name.INCIDENT) == 1
    assert (operation_of(run).status, operation_of(run).result) == (ends, None)
    assert ends in Incident.objects.get(run=run).detail


@pytest.mark.parametrize(("late", "opened"), [(RE_1, [("DUPLICATE", RE_1)]), (RE_2, []), ("", [])])
def test_beside_a_recorded_effect_another_reference_is_a_duplicate(
    start: Start, late: str, opened: list[tuple[str, str]]
) -> None:
    """Under a key that the provider keeps, another send is the same effect until it says not."""
    run, _ = _lost(start, _refund(RE_2))
    drive_when_due(run)
    assert operation_of(run).external_ref == RE_2
    hear_late(run, "committed", result=7, external_ref=late, attempt=1, fence_token=1)
    assert incidents(run) == opened


@pytest.mark.parametrize("first", [None, RE_1])
@pytest.mark.parametrize("second", [None, RE_2])
@pytest.mark.parametrize("comes", ["before the record", "after the record"])
def test_two_committed_sends_without_a_key_are_a_duplicate_whatever_their_references(
    start: Start, first: str | None, second: str | None, comes: str
) -> None:
    def come_late() -> None:
        hear_late(run, "committed", result=7, external_ref=first or "", attempt=1, fence_token=1)

    def send(call: Call) -> Any:
        if comes == "before the record":
            come_late()
        return _refund(second)(call)

    run, script = _for_a_person(start, send, provider=PLAIN)
    _deny(run)
    drive(run)
    if comes == "after the record":
        come_late()
    assert (run.state, len(script.calls)) == (RunState.COMPLETED, 2)
    opened = incidents(run)
    assert [kind for kind, _ in opened] == ["DUPLICATE"]
    assert opened[0][1] != (operation_of(run).external_ref or None)


@pytest.mark.parametrize("verdict", ["rejected", "unknown", "not_sent"])
def test_other_late_words_are_kept_and_are_no_incident(start: Start, verdict: str) -> None:
    run, _ = _lost(start, _refund(RE_2))
    drive_when_due(run)
    hear_late(run, verdict, detail="late", attempt=1)
    assert incidents(run) == []
    assert verdicts(run)[-1] == ("stale_worker", verdict)


def test_the_answer_of_a_worker_that_lost_its_run_while_it_sent_the_repeat_is_heard(
    start: Start,
) -> None:
    """Both workers answer; what the second one's look-up recorded is beside the first one's."""

    def be_replaced(call: Call) -> Any:
        expire_lease(run)
        drive(run, owner="worker 2")
        return _refund(RE_2, "second answer")(call)

    look_up = Script(found("first answer", RE_1))
    scripted_tool(be_replaced, look_up=look_up)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert (run.result, operation_of(run).external_ref) == ("first answer", RE_1)
    assert incidents(run) == [("DUPLICATE", RE_2)]


def test_an_incident_never_changes_and_stays_while_its_run_exists(start: Start) -> None:
    run, _ = _lost(start, _refund(RE_2))
    drive_when_due(run)
    hear_late(run, "committed", external_ref=RE_1, attempt=1)
    for sql in ("UPDATE runs_incident SET kind = 'OVERDUE'", "DELETE FROM runs_incident"):
        with pytest.raises(IntegrityError):
            change(sql)
    assert incidents(run) == [("DUPLICATE", RE_1)]

"""A person's word: one more transition through the commit door, fenced and on record."""

from collections.abc import Callable
from typing import Any

import pytest

from runs import ToolCall, events
from runs.access import Actor
from runs.errors import AlreadySettled, InvalidInput, NotPermitted, ProvenCommitted, StillInFlight
from runs.models import AgentRun, ToolObservation, ToolOperation, Transition
from runs.resolution import resolve_operation
from runs.state import RunState
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    PLAIN,
    Script,
    ask,
    call_once,
    change,
    dies_at,
    drive,
    drive_late,
    drive_when_due,
    found,
    hear_late,
    incidents,
    operation_of,
    scripted_tool,
)
from tools import Approve, EffectType, NotSent, Reconciled, Rejected

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


ANN = Actor(name="ann", scopes=frozenset({"operations:resolve"}))
STATES = ["TOOL_STATUS_UNKNOWN", "WAITING_FOR_RESOLUTION"]
OUTCOMES = ["committed", "not_committed", "rejected"]


def _unknown(
    start: Start, *answers: Any, state: str = "WAITING_FOR_RESOLUTION", **declared: Any
) -> tuple[AgentRun, Script]:
    """A run whose only call is unknown, in this state."""
    declared = {"effect": EffectType.NON_IDEMPOTENT_WRITE, "provider": PLAIN} | declared
    script = scripted_tool(LOST, *answers, **declared)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    if state == "WAITING_FOR_RESOLUTION":
        drive_when_due(run)
    assert run.state == state
    return run, script


def _say(run: AgentRun, outcome: str, **more: Any) -> ToolOperation:
    given: dict[str, Any] = {"actor": ANN, "evidence": "seen on the statement", **more}
    try:
        return resolve_operation(
            operation_id=operation_of(run).id,
            outcome=outcome,  # type: ignore[arg-type]
            **given,
        )
    finally:
        run.refresh_from_db()


def _rows(run: AgentRun) -> list[Any]:
    """All that a resolution may write, but the generation of the lease."""
    row = {**AgentRun.objects.values().get(id=run.id)}
    for name in ("version", "fence_token", "updated_at"):
        del row[name]
    # Who was due before is due now.
    for name in ("wake_at", "sweep_at"):
        if row[name] is not None and row[name] <= ask("SELECT statement_timestamp()"):
            row[name] = "due"
    return [
        row,
        ToolOperation.objects.filter(run=run).values().get(),
        Transition.objects.filter(run=run).count(),
        ToolObservation.objects.filter(run=run).count(),
    ]


# -- Each outcome -------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_committed_records_what_the_person_knows(start: Start, state: str) -> None:
    run, script = _unknown(start, state=state)
    said = _say(run, "committed", result={"id": "re_1"}, external_ref="re_1")
    assert (said.status, said.result, said.external_ref) == ("COMMITTED", {"id": "re_1"}, "re_1")
    assert (run.state, run.lease_owner) == (RunState.TOOL_COMMITTED, "")
    drive(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, {"id": "re_1"}, 1)


@pytest.mark.parametrize("state", STATES)
def test_not_committed_sends_it_again_with_the_same_id(start: Start, state: str) -> None:
    run, script = _unknown(start, "second", state=state)
    said = _say(run, "not_committed")
    assert (said.status, said.unknown_since, said.settled_at) == ("PREPARED", None, None)
    assert (run.state, run.uncertain) == (RunState.TOOL_PREPARED, False)
    drive(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "second", 2)
    names = {(call.operation_id, call.idempotency_key) for call in script.calls}
    assert names == {(said.id, said.idempotency_key)}
    assert [call.attempt for call in script.calls] == [1, 2]


@pytest.mark.parametrize("state", STATES)
def test_rejected_closes_it_and_the_decider_is_told(start: Start, state: str) -> None:
    run, script = _unknown(start, state=state)
    said = _say(run, "rejected")
    assert (said.status, said.holds_intent) == ("REJECTED", None)
    assert said.settled_at is not None
    drive(run)
    assert (run.state, len(script.calls)) == (RunState.FAILED, 1)
    assert "ann" in run.error


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_word_is_journaled_and_kept_as_evidence_like_any_other_transition(
    start: Start, outcome: str
) -> None:
    run, _ = _unknown(start)
    token, version = run.fence_token, run.version
    _say(run, outcome)
    assert (run.fence_token, run.version) == (token + 1, version + 2)
    rows = Transition.objects.filter(run=run, version=run.version).order_by("id")
    event = {"committed": "COMMIT", "not_committed": "NOT_SENT", "rejected": "REJECT"}[outcome]
    assert [row.event for row in rows] == [event, event]
    assert {(row.actor, row.fence_token) for row in rows} == {("ann", token + 1)}
    assert all("ann" in row.reason and "on the statement" in row.reason for row in rows)
    seen = operation_of(run).observations.order_by("-id")[0]
    assert (seen.source, seen.detail) == ("person", "seen on the statement")
    assert (
        seen.verdict
        == {
            "committed": "committed",
            "not_committed": "not_found",
            "rejected": "rejected",
        }[outcome]
    )


def test_a_run_that_was_asked_for_on_every_minute_is_due_at_once_after_the_word(
    start: Start,
) -> None:
    run, _ = _unknown(start, look_up=Script(*[Reconciled.not_found()] * 9), state=STATES[0])
    drive_late(run)
    assert run.state == "WAITING_FOR_RESOLUTION"
    _say(run, "committed", result=7)
    assert ask("SELECT wake_at <= now() AND sweep_at <= now() FROM runs_agentrun")


def test_after_tries_were_used_up_a_denial_gives_as_many_again(start: Start) -> None:
    run, script = _unknown(start, LOST, LOST, LOST, "fifth", max_attempts=1)
    for sends in (2, 3, 4):
        _say(run, "not_committed")
        for _ in range(2):
            drive_when_due(run)
        assert (run.state, len(script.calls)) == ("WAITING_FOR_RESOLUTION", sends)
    _say(run, "not_committed")
    drive_when_due(run)
    assert (run.result, len(script.calls)) == ("fifth", 5)


def test_what_was_never_sent_after_a_denial_is_given_up_as_ever(start: Start) -> None:
    run, script = _unknown(start, *[NotSent("no route")] * 9, max_attempts=2)
    _say(run, "not_committed")
    for _ in range(4):
        drive_when_due(run)
    assert (run.state, operation_of(run).status) == (RunState.FAILED, "CANCELLED")
    assert len(script.calls) == 3


def test_a_refusal_after_a_denial_is_final(start: Start) -> None:
    """The earlier sends are settled by the person's word: this one's answer is the answer."""
    run, _ = _unknown(start, Rejected("no such order"))
    _say(run, "not_committed")
    drive(run)
    assert (run.state, run.error) == (RunState.FAILED, "REJECTED: no such order")


@pytest.mark.parametrize("outcome", ["not_committed", "rejected"])
def test_what_a_person_closed_or_denied_is_watched_for_a_late_effect(
    start: Start, outcome: str
) -> None:
    look_up = Script(*[Reconciled.not_found()] * 9)
    run, _ = _unknown(start, "second", look_up=look_up, state=STATES[0])
    _say(run, outcome)
    drive(run)
    operation = operation_of(run)
    assert operation.settled_at is not None
    assert operation.next_watch_at is not None


# -- Against what is known ----------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["not_committed", "rejected"])
@pytest.mark.parametrize("source", ["worker", "look_up"])
def test_a_person_cannot_deny_what_the_evidence_proves(
    start: Start, outcome: str, source: str
) -> None:
    run, script = _unknown(start, "must not be sent")
    hear_late(run, "committed", result=7, external_ref="re_1", source=source)
    before = _rows(run)
    with pytest.raises(ProvenCommitted, match="re_1") as refused:
        _say(run, outcome)
    assert refused.value.operation_id == operation_of(run).id
    assert _rows(run) == before
    _say(run, "committed", result=7, external_ref="re_1")
    drive(run)
    assert (run.state, len(script.calls)) == (RunState.COMPLETED, 1)


def test_a_person_may_name_another_effect_than_the_evidence_does_and_both_are_seen(
    start: Start,
) -> None:
    run, _ = _unknown(start)
    hear_late(run, "committed", result=7, external_ref="re_1")
    _say(run, "committed", result=8, external_ref="re_2")
    assert operation_of(run).external_ref == "re_2"
    assert incidents(run) == [("DUPLICATE", "re_1")]


@pytest.mark.parametrize("outcome", ["not_committed", "rejected"])
def test_nobody_can_know_that_a_call_failed_which_is_on_its_way(start: Start, outcome: str) -> None:
    run, _ = _unknown(start)
    change("UPDATE runs_tooloperation SET in_flight_until = now() + interval '20 s'")
    before = _rows(run)
    with pytest.raises(StillInFlight):
        _say(run, outcome)
    assert _rows(run) == before
    _say(run, "committed", result=7)
    assert operation_of(run).status == "COMMITTED"


def test_a_call_whose_lease_just_ended_is_still_on_its_way(start: Start) -> None:
    scripted_tool(7, effect=EffectType.IRREVERSIBLE, approval_policy=Approve(when="false"))
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_DONE):
        drive(run)
    change("UPDATE runs_agentrun SET lease_expires_at = now(), wake_at = now()")
    drive(run, owner="worker 2")
    assert operation_of(run).status == "UNKNOWN"
    with pytest.raises(StillInFlight):
        _say(run, "not_committed")


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_what_is_settled_stays_settled(start: Start, outcome: str) -> None:
    run, _ = _unknown(start)
    _say(run, "rejected")
    before = _rows(run)
    with pytest.raises(AlreadySettled):
        _say(run, outcome)
    assert _rows(run) == before


def test_what_the_provider_settled_first_is_a_conflict(start: Start) -> None:
    run, _ = _unknown(start, state=STATES[0], look_up=Script(found()))
    drive_when_due(run)
    with pytest.raises(AlreadySettled, match="COMMITTED"):
        _say(run, "rejected")


@pytest.mark.parametrize("given", [{"evidence": "  "}, {"result": 7}, {"external_ref": "re_1"}])
def test_a_word_that_does_not_fit_writes_nothing(start: Start, given: dict[str, Any]) -> None:
    run, _ = _unknown(start)
    before = _rows(run)
    with pytest.raises(InvalidInput):
        _say(run, "rejected", **given)
    assert _rows(run) == before


def test_a_word_without_the_permission_writes_nothing(start: Start) -> None:
    run, _ = _unknown(start)
    before = _rows(run)
    with pytest.raises(NotPermitted):
        _say(run, "rejected", actor=Actor(name="bob", scopes=frozenset({"runs:write"})))
    assert _rows(run) == before


def test_a_persons_words_do_not_write_down_what_is_sensitive(start: Start) -> None:
    card = 4111222233334444
    scripted_tool(LOST, effect=EffectType.NON_IDEMPOTENT_WRITE, sensitive=("amount",))
    run = start(decider=call_once(ToolCall("pay", amount=card)), tools=("pay",))
    drive(run)
    _say(run, "rejected", evidence=f"no payment with {card} on the statement")
    said = [row.reason for row in Transition.objects.filter(run=run)]
    said += [seen.detail for seen in ToolObservation.objects.filter(run=run)]
    said += [operation_of(run).error]
    assert str(card) not in "".join(said)
    assert "on the statement" in "".join(said)

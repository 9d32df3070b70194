"""A person's word where the run cannot be read, or where the provider has refused the call."""

from collections.abc import Callable

import pytest
from django.db import connection

from runs.access import operator
from runs.commands import cancel_run
from runs.errors import ProvenRefused, UndecodableDecision
from runs.models import AgentRun
from runs.resolution import Outcome, resolve_operation
from runs.state import RunState
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    call_once,
    change,
    drive,
    drive_when_due,
    hear_late,
    operation_of,
    scripted_tool,
)
from tests.database.resolving import standing

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


def _unknown(start: Start, *more: object) -> AgentRun:
    scripted_tool(LOST, *more)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.state == RunState.TOOL_STATUS_UNKNOWN
    return run


def _say(run: AgentRun, outcome: Outcome) -> None:
    resolve_operation(
        actor=operator("ann"),
        operation_id=operation_of(run).id,
        outcome=outcome,
        evidence="seen on the statement",
    )
    run.refresh_from_db()


# -- A decision that cannot be read -------------------------------------------------------------


def _make_unreadable(run: AgentRun) -> None:
    """As a version that is newer than this one would have left it."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runs_modeldecision DISABLE TRIGGER USER")
        cursor.execute("UPDATE runs_modeldecision SET body = '{\"v\": 99}'")
        cursor.execute("ALTER TABLE runs_modeldecision ENABLE TRIGGER USER")
    with pytest.raises(UndecodableDecision):
        drive_when_due(run)
    run.refresh_from_db()
    assert run.state == RunState.TOOL_STATUS_UNKNOWN


@pytest.mark.parametrize(
    ("outcome", "status", "state"),
    [
        ("committed", "COMMITTED", RunState.TOOL_COMMITTED),
        ("not_committed", "PREPARED", RunState.TOOL_PREPARED),
        ("rejected", "REJECTED", RunState.DECISION_RECORDED),
    ],
)
def test_a_person_settles_a_call_of_a_run_that_cannot_be_read_and_then_cancels_it(
    outcome: Outcome, status: str, state: RunState, start: Start
) -> None:
    run = _unknown(start)
    _make_unreadable(run)
    _say(run, outcome)
    assert (operation_of(run).status, run.state, run.lease_owner) == (status, state, "")
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    assert (run.state, run.wake_at) == (RunState.CANCELLED, None)


# -- A call that the provider refused -----------------------------------------------------------


def test_a_person_cannot_say_that_it_happened_when_its_only_send_was_refused(
    start: Start,
) -> None:
    run = _unknown(start)
    hear_late(run, "rejected", detail="no such card")
    change("UPDATE runs_agentrun SET wake_at = now() + interval '1 hour'")
    _, _, *before = standing(run)
    with pytest.raises(ProvenRefused, match="no such card") as refused:
        _say(run, "committed")
    assert refused.value.operation_id == operation_of(run).id
    _, _, *after = standing(run)
    assert after == before
    assert run.lease_owner == ""
    _say(run, "rejected")
    assert operation_of(run).status == "REJECTED"


def test_a_refusal_of_the_second_send_does_not_deny_the_first(start: Start) -> None:
    run = _unknown(start, LOST)
    drive_when_due(run)
    assert operation_of(run).attempts == 2
    hear_late(run, "rejected", detail="no such card")
    _say(run, "committed")
    assert operation_of(run).status == "COMMITTED"


def test_a_refusal_before_a_later_answer_denies_nothing(start: Start) -> None:
    run = _unknown(start)
    hear_late(run, "rejected", detail="no such card")
    hear_late(run, "unknown", detail="or perhaps there is")
    _say(run, "committed")
    assert operation_of(run).status == "COMMITTED"

"""What left without the signature that its policy asks for is an incident, and nothing else is."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction

from runs import unsigned
from runs.access import operator
from runs.models import AgentRun, Incident, Sweep, Transition
from runs.resolution import resolve_operation
from runs.tasks import audit_effects, find_unsigned
from runs.unsigned import note_unsigned
from tests.database.gating import PAID, Start, held, requests_of, sign
from tests.database.kit import (
    LOST,
    PLAIN,
    Script,
    call_once,
    change,
    drive,
    drive_when_due,
    incidents,
    let_pass,
    operation_edges,
    operation_of,
    scripted_tool,
)
from tests.database.policy_rows import save_row
from tools import EffectType, NotSent, Reconciled
from tools.registry import isolated_registry

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)


def look(*, since: timedelta = DAY) -> int:
    now = datetime.now(UTC)
    return note_unsigned(since=now - since, until=now + DAY)


def past_every_guard(sql: str, *values: object) -> None:
    """What no trigger sees: rows restored by hand, or a gate that was gone round."""
    with transaction.atomic():
        change("SET LOCAL session_replication_role = replica")
        change(sql, *values)


def unpoliced(start: Start) -> AgentRun:
    """A payment that no policy held, and that the record says one should have."""
    scripted_tool(PAID)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    past_every_guard(
        "UPDATE runs_tooloperation SET policy_outcome = 'require_approval' WHERE run_id = %s",
        run.id,
    )
    return run


def unspent(start: Start) -> AgentRun:
    """A payment that was signed, and whose signature was never spent."""
    run, _ = held(start)
    sign(run)
    drive(run)
    past_every_guard(
        "UPDATE runs_approval SET spent_at = NULL, spent_under = NULL WHERE run_id = %s", run.id
    )
    return run


def under_another_token(start: Start) -> AgentRun:
    """A payment whose signature was spent on a send that was none of its own."""
    run, _ = held(start)
    sign(run)
    drive(run)
    past_every_guard(
        "UPDATE runs_approval SET spent_under = spent_under + 1 WHERE run_id = %s", run.id
    )
    return run


@pytest.mark.parametrize("break_in", [unpoliced, unspent, under_another_token])
def test_a_send_that_spent_no_signature_is_an_incident_once(
    start: Start, break_in: Callable[[Start], AgentRun]
) -> None:
    run = break_in(start)
    assert look() == 1
    assert incidents(run) == [("UNAPPROVED", "")]
    token = operation_of(run).fence_token
    assert f"under token {token}," in Incident.objects.get().detail
    assert look() == 0


def signed(start: Start) -> AgentRun:
    run, _ = held(start)
    sign(run)
    drive(run)
    return run


def not_asked_for(start: Start) -> AgentRun:
    scripted_tool(PAID)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    return run


def given_back(start: Start) -> AgentRun:
    """The first send provably did not leave; the same signature is spent on the second."""
    run, _ = held(start, NotSent("no route"), PAID)
    sign(run)
    drive(run)
    drive_when_due(run)
    assert operation_edges(run).count("SEND") == 2
    assert requests_of(run) == [("approved", True)]
    return run


def given_back_for_good(start: Start) -> AgentRun:
    run, _ = held(start, NotSent("no route"), max_attempts=1)
    sign(run)
    drive(run)
    assert operation_of(run).status == "CANCELLED"
    return run


def signed_anew(start: Start) -> AgentRun:
    """It was not executed after all, and its next send was signed for anew."""
    run, _ = held(start, LOST, PAID, effect=EffectType.NON_IDEMPOTENT_WRITE, provider=PLAIN)
    sign(run)
    drive(run)
    _say_not_committed(run)
    sign(run)
    drive(run)
    assert requests_of(run) == [("approved", True), ("approved", True)]
    return run


def sent_before_policy_asked(start: Start) -> AgentRun:
    scripted_tool(LOST, PAID, effect=EffectType.NON_IDEMPOTENT_WRITE, provider=PLAIN)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    save_row("now audited", tool="pay", groups=["audit"])
    _say_not_committed(run)
    assert operation_of(run).policy_outcome == "require_approval"
    return run


def repeated_under_its_key(start: Start) -> AgentRun:
    nothing = Reconciled.not_found()
    run, _ = held(start, LOST, PAID, look_up=Script(nothing, nothing))
    sign(run)
    drive(run)
    drive_when_due(run)
    assert "SEND_AGAIN" in operation_edges(run)
    return run


@pytest.mark.parametrize(
    "lawful",
    [
        signed,
        not_asked_for,
        given_back,
        given_back_for_good,
        signed_anew,
        sent_before_policy_asked,
        repeated_under_its_key,
    ],
)
def test_what_the_gate_let_through_is_none(
    start: Start, lawful: Callable[[Start], AgentRun]
) -> None:
    run = lawful(start)
    assert Transition.objects.filter(run=run, event="SEND").exists()
    assert look() == 0
    assert incidents(run) == []


def test_only_sends_of_the_span_and_of_the_hour_before_it_are_looked_at(start: Start) -> None:
    unpoliced(start)
    now = datetime.now(UTC)
    assert note_unsigned(since=now - DAY, until=now - timedelta(hours=2)) == 0
    assert note_unsigned(since=now + timedelta(hours=2), until=now + DAY) == 0
    # Its transaction may have been open for a while.
    assert note_unsigned(since=now + timedelta(minutes=50), until=now + DAY) == 1


def test_the_sweep_looks_at_every_moment_once_it_is_over(start: Start) -> None:
    run = unpoliced(start)
    assert unsigned.run_once() == 1
    done = Sweep.objects.get(name=unsigned.SWEEP)
    assert done.done_until is not None
    assert done.found == 1
    assert timedelta(0) <= datetime.now(UTC) - done.done_until < timedelta(minutes=5)
    assert incidents(run) == [("UNAPPROVED", "")]
    # Nothing ran for three days, in which something left.
    with isolated_registry():
        second = unpoliced(start)
    Sweep.objects.update(done_until=done.done_until - 3 * DAY)
    past_every_guard(
        "UPDATE runs_transition SET at = at - interval '60 h' WHERE run_id = %s", second.id
    )
    assert unsigned.run_once() == 1
    assert incidents(second) == [("UNAPPROVED", "")]


def test_the_sweep_asks_no_provider_and_waits_for_none(start: Start) -> None:
    """It is a task of its own: whatever an audit meets, signatures are looked at."""
    run = unpoliced(start)
    asked = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert {audit_effects.name, find_unsigned.name} <= asked
    audit_effects()
    assert incidents(run) == []
    find_unsigned()
    assert incidents(run) == [("UNAPPROVED", "")]


def test_a_sweep_ends_in_time_and_the_next_one_goes_on() -> None:
    Sweep.objects.create(name=unsigned.SWEEP, done_until=datetime.now(UTC) - 3 * unsigned.SLICE)
    before = Sweep.objects.get().done_until
    assert before is not None
    for turn in (1, 2):
        unsigned.run_once(seconds=0)
        assert Sweep.objects.get().done_until == before + turn * unsigned.SLICE


def test_what_a_look_costs_grows_with_the_sends_of_its_slice_alone(start: Start) -> None:
    """Operations are found by their sends, whatever else the planner would rather do."""
    signed(start)
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off; SET enable_nestloop = off")
        try:
            now = datetime.now(UTC)
            values = unsigned.values_of(since=now - DAY, until=now)
            cursor.execute(f"EXPLAIN (FORMAT JSON) {unsigned.FIND}", values)
            plan = cursor.fetchone()[0][0]["Plan"]
        finally:
            cursor.execute("RESET enable_seqscan; RESET enable_nestloop")
    [read] = [one for one in nodes(plan) if one.get("Relation Name") == "runs_tooloperation"]
    # A bitmap has its condition in the part below.
    assert any("sent.operation_id" in one.get("Index Cond", "") for one in nodes(read))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def _say_not_committed(run: AgentRun) -> None:
    let_pass(hours=1)
    change("UPDATE runs_worker SET ended_at = now(), ended_by = 'reported' WHERE ended_at IS NULL")
    resolve_operation(
        actor=operator(),
        operation_id=operation_of(run).id,
        outcome="not_committed",
        evidence="not on the statement",
    )
    drive(run)

"""Audits of what a person settled, of what is being sent, and of effects beside a boundary."""

from datetime import UTC, datetime, timedelta

import pytest

from runs.access import operator
from runs.auditing import audit_tool
from runs.models import AgentRun, EffectAudit
from runs.resolution import resolve_operation
from tests.database.auditing import HOUR, Listing, Start, audit, counts, found, made, paying
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    call_once,
    drive,
    incidents,
    operation_of,
    verdicts,
)
from tests.database.policy_rows import thread_of
from tools import Call

pytestmark = ON_DATABASE


@pytest.mark.parametrize("recorded", ["ticket 12", "RE_99", "the ledger has re_99"])
def test_what_a_person_called_an_effect_is_no_second_one(recorded: str, start: Start) -> None:
    listing = Listing()
    spec = paying(listing, LOST)
    run = _settled_by_person(start, recorded)
    listing.effects = [made(operation_of(run).id, "re_99")]
    for _ in range(2):
        row = audit(spec)
        assert counts(row) == {"effects": 1, "matched": 1}
        # The two names are told, and nobody is woken.
        assert found(row) == [("reference", "re_99")]
    assert incidents(run) == []
    assert verdicts(run).count(("look_up", "indeterminate")) == 1


def test_a_second_effect_beside_the_one_that_a_person_meant_is_a_duplicate(start: Start) -> None:
    listing = Listing()
    spec = paying(listing, LOST)
    run = _settled_by_person(start, "seen: re_99")
    named = operation_of(run).id
    listing.effects = [made(named, "re_9", ago=HOUR / 2), made(named, "re_99")]
    assert counts(audit(spec)) == {"effects": 2, "matched": 1, "duplicates": 1}
    assert incidents(run) == [("DUPLICATE", "re_9")]
    # Also where the one that was meant is in no list any more.
    listing.effects = [made(named, "re_7")]
    assert counts(audit(spec)) == {"effects": 1, "duplicates": 1}
    assert incidents(run) == [("DUPLICATE", "re_9"), ("DUPLICATE", "re_7")]


def test_what_a_person_named_as_the_provider_does_is_compared_like_any_other(start: Start) -> None:
    listing = Listing()
    spec = paying(listing, LOST)
    run = _settled_by_person(start, "re_99")
    named = operation_of(run).id
    listing.effects = [made(named, "re_98", ago=HOUR / 2), made(named, "re_99")]
    row = audit(spec)
    assert counts(row) == {"effects": 2, "matched": 1, "duplicates": 1}
    assert found(row) == [("duplicate", "re_98")]
    assert incidents(run) == [("DUPLICATE", "re_98")]


def test_of_an_operation_that_is_being_sent_no_evidence_is_written(start: Start) -> None:
    """Its worker is inside the call, and a provider lists what it has made so far."""
    listing = Listing()
    seen: list[EffectAudit] = []

    def pay(call: Call) -> int:
        listing.effects = [made(call.operation_id, "re_1"), made(call.operation_id, "re_2")]
        thread_of(lambda: seen.append(audit(spec))).join()
        return 7

    spec = paying(listing, pay)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert found(seen[0]) == [("open", "re_1"), ("duplicate", "re_2")]
    assert verdicts(run) == [("worker", "committed")]
    assert incidents(run) == [("DUPLICATE", "re_2")]


def test_an_effect_is_counted_by_one_of_two_neighbouring_audits(start: Start) -> None:
    listing = Listing()
    spec = paying(listing)
    now = datetime.now(UTC)
    listing.effects = [
        made(None, f"re_{minutes}", ago=timedelta(minutes=minutes)) for minutes in range(25, 36)
    ]
    border = now - HOUR / 2
    rows = [
        audit_tool(spec=spec, since=since, until=until)
        for since, until in ((now - HOUR, border), (border, now))
    ]
    assert sum(row.unaccounted for row in rows) == 11


def _settled_by_person(start: Start, reference: str) -> AgentRun:
    """An unknown payment that a person said was made, under a name of their own."""
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    resolve_operation(
        actor=operator(),
        operation_id=operation_of(run).id,
        outcome="committed",
        evidence="seen on the statement",
        external_ref=reference,
    )
    drive(run)
    return run

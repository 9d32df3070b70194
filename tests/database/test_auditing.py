"""What a provider lists is compared with what is recorded: nothing is hidden, nothing is moved."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import transaction

from examples.shop.provider_process import ProviderProcess, provider_process
from runs.auditing import audit_tool
from runs.models import AgentRun, EffectAudit
from runs.state import RunState
from tests.database.auditing import (
    HOUR,
    REFUND,
    Listing,
    Start,
    audit,
    counts,
    found,
    made,
    paying,
    place_second,
    refunded,
)
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    call_once,
    change,
    drive,
    drive_when_due,
    incidents,
    let_pass,
    operation_edges,
    operation_of,
    verdicts,
)
from tools import Effect, NotSent, Rejected, external_ref, registry
from tools.errors import TransactionOpen
from tools.spec import ToolSpec

pytestmark = ON_DATABASE


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProviderProcess]:
    """The shop's payment provider, with empty books."""
    registry.register(REFUND)
    with provider_process(tmp_path / "ledger.sqlite3") as running:
        monkeypatch.setenv("SHOP_PAYMENTS_URL", running.url)
        yield running


# -- At a provider over HTTP ---------------------------------------------------------------------


def test_an_effect_that_is_recorded_matches(start: Start, provider: ProviderProcess) -> None:
    run = refunded(start)
    edges, evidence = operation_edges(run), verdicts(run)
    row = audit()
    assert (counts(row), row.findings, row.error) == ({"effects": 1, "matched": 1}, [], "")
    assert EffectAudit.objects.get() == row
    # The steady case leaves one row, of the audit.
    assert (operation_edges(run), verdicts(run), incidents(run)) == (edges, evidence, [])


def test_a_second_effect_of_one_operation_is_a_duplicate_counted_once(
    start: Start, provider: ProviderProcess
) -> None:
    run = refunded(start)
    second = place_second(provider, run)
    for _ in range(2):
        row = audit()
        assert counts(row) == {"effects": 2, "matched": 1, "duplicates": 1}
        assert found(row) == [("duplicate", second)]
    assert incidents(run) == [("DUPLICATE", second)]
    assert verdicts(run).count(("look_up", "committed")) == 1
    assert operation_of(run).status == "COMMITTED"


def test_a_second_effect_is_one_also_where_the_first_is_not_in_the_span(
    start: Start, provider: ProviderProcess
) -> None:
    run = refunded(start)
    between = datetime.now(UTC)
    second = place_second(provider, run)
    row = audit(ago=datetime.now(UTC) - between)
    assert counts(row) == {"effects": 1, "duplicates": 1}
    assert incidents(run) == [("DUPLICATE", second)]


def test_an_effect_of_an_operation_closed_without_one_is_a_late_commit(
    start: Start, provider: ProviderProcess
) -> None:
    provider.fault("reject", reason="closed on sundays")
    run = refunded(start)
    assert operation_of(run).status == "REJECTED"
    late = place_second(provider, run)
    row = audit()
    assert counts(row) == {"effects": 1, "late": 1}
    assert found(row) == [("late", late)]
    assert incidents(run) == [("LATE_COMMIT", late)]
    audit()
    assert len(incidents(run)) == 1


def test_an_effect_of_an_unknown_operation_has_it_looked_up_now(
    start: Start, provider: ProviderProcess
) -> None:
    """A list has no result: it is evidence, and what settles the operation is its look-up."""
    provider.fault("lose_answer")
    run = refunded(start)
    assert operation_of(run).status == "UNKNOWN"
    change("UPDATE runs_agentrun SET wake_at = now() + interval '1 h' WHERE id = %s", run.id)
    row = audit()
    assert (counts(row), [what for what, _ in found(row)]) == ({"effects": 1}, ["open"])
    operation = operation_of(run)
    assert (operation.status, incidents(run)) == ("UNKNOWN", [])
    assert verdicts(run)[-1] == ("look_up", "indeterminate")
    drive(run)
    assert (run.state, operation_of(run).status) == (RunState.COMPLETED, "COMMITTED")
    assert counts(audit()) == {"effects": 1, "matched": 1}


def test_an_effect_that_no_operation_knows_is_unaccounted_for(
    start: Start, provider: ProviderProcess
) -> None:
    run = refunded(start)
    provider.place_refund("somebody-else").raise_for_status()
    row = audit()
    assert counts(row) == {"effects": 2, "matched": 1, "unaccounted": 1}
    assert row.findings[0]["operation_id"] == "somebody-else"
    assert incidents(run) == []


def test_what_is_recorded_and_not_listed_is_missing(
    start: Start, provider: ProviderProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = refunded(start)
    let_pass(hours=1)
    with provider_process(tmp_path / "restored from a backup.sqlite3") as restored:
        monkeypatch.setenv("SHOP_PAYMENTS_URL", restored.url)
        row = audit(ago=2 * HOUR)
    assert counts(row) == {"missing": 1}
    assert found(row) == [("missing", operation_of(run).external_ref)]


def test_where_the_provider_cannot_be_asked_nothing_is_concluded(
    start: Start, provider: ProviderProcess
) -> None:
    refunded(start)
    let_pass(hours=1)
    provider.fault("first_page", method="GET")
    assert "the first refunds alone" in audit(ago=2 * HOUR).error
    provider.kill()
    row = audit(ago=2 * HOUR)
    assert "effects of refund_customer could not be listed" in row.error
    assert (counts(row), row.findings) == ({}, [])


# -- Whatever is listed ------------------------------------------------------------------------


def test_no_provider_is_asked_inside_a_transaction() -> None:
    listing = Listing()
    spec = paying(listing)
    with pytest.raises(TransactionOpen), transaction.atomic():
        audit(spec)
    assert listing.asked == []


def test_the_first_effect_of_a_tool_that_names_none_is_its_own(start: Start) -> None:
    listing = Listing()
    spec = paying(listing)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    operation = operation_of(run)
    assert operation.external_ref == ""
    listing.effects = [made(operation.id, "re_1")]
    assert counts(audit(spec)) == {"effects": 1, "matched": 1}
    listing.effects = [made(operation.id, "re_2")]
    assert counts(audit(spec)) == {"effects": 1, "duplicates": 1}
    listing.effects = [made(operation.id, "re_1")]
    assert counts(audit(spec)) == {"effects": 1, "matched": 1}
    assert incidents(run) == [("DUPLICATE", "re_2")]


def test_an_effect_that_overlapping_pages_list_twice_is_one(start: Start) -> None:
    spec, listing, run = _paid(start)
    listing.effects *= 2
    assert counts(audit(spec)) == {"effects": 1, "matched": 1}
    assert incidents(run) == []


def test_what_lies_outside_of_the_span_is_not_counted(start: Start) -> None:
    spec, listing, run = _paid(start)
    listing.effects.append(Effect("stray", "re_9", at=datetime.now(UTC) - 2 * HOUR))
    assert counts(audit(spec)) == {"effects": 1, "matched": 1}
    let_pass(hours=2)
    # It was under way at the boundary: sent before, settled behind it.
    operation = operation_of(run)
    assert operation.first_sent_at is not None
    assert operation.settled_at is not None
    border = operation.first_sent_at + (operation.settled_at - operation.first_sent_at) / 2
    until = datetime.now(UTC) - HOUR
    listing.effects = [Effect(operation.id, "re_1", at=operation.first_sent_at)]
    assert counts(audit_tool(spec=spec, since=border, until=until)) == {}
    assert listing.asked[-1].since == border - timedelta(minutes=15)
    listing.effects = []
    assert counts(audit_tool(spec=spec, since=border, until=until)) == {"missing": 1}


def test_effects_of_other_tools_operations_are_not_this_audits(start: Start) -> None:
    _, listing, run = _paid(start)
    other = paying(listing, name="tip")
    assert counts(audit(other)) == {}
    assert incidents(run) == []


def test_a_duplicate_of_an_operation_that_is_open_is_told_at_once(start: Start) -> None:
    listing = Listing()
    spec = paying(listing, LOST)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    named = operation_of(run).id
    listing.effects = [made(named, "re_1"), made(named, "re_2")]
    assert counts(audit(spec)) == {"effects": 2, "duplicates": 1}
    assert incidents(run) == [("DUPLICATE", "re_2")]
    assert operation_of(run).status == "UNKNOWN"


@pytest.mark.parametrize("answer", [Rejected("no"), NotSent("gone")])
def test_two_effects_of_a_closed_operation_are_a_late_one_and_a_duplicate(
    start: Start, answer: Exception
) -> None:
    listing = Listing()
    spec = paying(listing, answer, max_attempts=1)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    named = operation_of(run).id
    listing.effects = [made(named, "re_1"), made(named, "re_2")]
    assert counts(audit(spec)) == {"effects": 2, "duplicates": 1, "late": 1}
    assert incidents(run) == [("LATE_COMMIT", "re_1"), ("DUPLICATE", "re_2")]


def test_what_was_settled_a_moment_ago_is_not_missing_yet(start: Start) -> None:
    spec, listing, _ = _paid(start)
    listing.effects = []
    let_pass(minutes=14)
    assert counts(audit(spec)) == {}
    let_pass(minutes=2)
    assert counts(audit(spec)) == {"missing": 1}


def test_what_was_taken_back_need_not_be_listed_any_more(start: Start) -> None:
    spec, listing, run = _paid(start)
    second = start(decider=call_once(), tools=("pay",))
    drive_when_due(second)
    change(
        "UPDATE runs_tooloperation SET compensates_id = %s WHERE id = %s",
        operation_of(run).id,
        operation_of(second).id,
    )
    listing.effects = [made(operation_of(second).id, "re_1")]
    let_pass(hours=1)
    assert counts(audit(spec, ago=2 * HOUR)) == {"effects": 1, "matched": 1}


def test_findings_are_bounded_and_all_are_counted(start: Start) -> None:
    spec, listing, _ = _paid(start)
    listing.effects = [made(None, f"re_{number}") for number in range(200)]
    row = audit(spec)
    assert (row.unaccounted, len(row.findings)) == (200, 50)


def _paid(start: Start) -> tuple[ToolSpec, Listing, AgentRun]:
    """A payment that committed as re_1, and a provider that lists it."""

    def pay(call: object) -> str:
        external_ref("re_1")
        return "paid"

    listing = Listing()
    spec = paying(listing, pay, pay)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    listing.effects = [made(operation_of(run).id, "re_1")]
    return spec, listing, run

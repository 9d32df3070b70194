"""Audits by the clock: each moment once per tool, whatever stands in the way."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from runs import audit_sweeps
from runs.models import EffectAudit, Sweep
from runs.tasks import audit_effects
from tests.database.auditing import Listing, paying
from tests.database.kit import ON_DATABASE, another_connection
from tools import Audit, Effect
from tools.auditing import MOST_EFFECTS

pytestmark = ON_DATABASE

DAY = timedelta(days=1)
MARGIN = timedelta(minutes=15)  # the provider's settle window


def done_until(tool: str = "pay") -> datetime | None:
    return Sweep.objects.values_list("done_until", flat=True).get(name=f"audit {tool}")


def spans() -> list[tuple[datetime, datetime]]:
    return list(EffectAudit.objects.order_by("id").values_list("since", "until"))


def test_the_first_sweep_audits_the_last_day_as_far_as_it_is_settled() -> None:
    paying(Listing())
    audit_effects()
    [(since, until)] = spans()
    assert until - since == DAY
    assert timedelta(0) <= datetime.now(UTC) - until - MARGIN < timedelta(minutes=1)
    assert done_until() == until


def test_the_next_sweep_goes_on_where_the_last_one_ended() -> None:
    paying(Listing())
    audit_sweeps.run_once()
    audit_sweeps.run_once()
    (_, first), (since, until) = spans()
    assert (first, until) == (since, done_until())


def test_after_a_pause_it_catches_up_by_days() -> None:
    listing = Listing()
    paying(listing)
    start = datetime.now(UTC) - 3 * DAY
    Sweep.objects.create(name="audit pay", done_until=start)
    audit_sweeps.run_once()
    seen = spans()
    assert [until - since for since, until in seen[:-1]] == [DAY, DAY]
    assert (seen[0][0], seen[-1][1]) == (start, done_until())
    assert all(one[1] == next_one[0] for one, next_one in pairwise(seen))


def test_a_long_pause_is_caught_up_with_over_several_sweeps() -> None:
    paying(Listing())
    Sweep.objects.create(name="audit pay", done_until=datetime.now(UTC) - 20 * DAY)
    assert audit_sweeps.run_once().audits == audit_sweeps.MOST_AUDITS
    assert done_until() == spans()[-1][1]
    assert audit_sweeps.run_once().audits == 20 - audit_sweeps.MOST_AUDITS


def test_a_span_that_could_not_be_asked_for_is_asked_for_again() -> None:
    listing = Listing()
    paying(listing)
    listing.error = ConnectionError("gone")
    assert audit_sweeps.run_once().failed == 1
    assert (len(spans()), done_until()) == (1, None)
    listing.error = None
    Sweep.objects.update(done_until=datetime.now(UTC) - 2 * DAY)
    assert audit_sweeps.run_once().failed == 0
    assert done_until() == spans()[-1][1]


def test_a_span_that_holds_too_many_effects_is_halved() -> None:
    def busy(audit: Audit) -> Iterator[Effect]:
        """A hundredth of what may be compared in a day happens in a quarter of an hour."""
        many = MOST_EFFECTS + 1 if audit.until - audit.since > timedelta(hours=13) else 1
        for number in range(many):
            yield Effect(None, f"{audit.since} {number}")

    paying(busy)
    audit_sweeps.run_once()
    first, *halves = EffectAudit.objects.order_by("id")
    assert "ask for a shorter span" in first.error
    assert [one.until - one.since for one in halves] == [DAY / 2, DAY / 2]
    assert done_until() == halves[-1].until


def test_a_provider_that_always_lists_too_much_is_left_for_the_next_sweep() -> None:
    def flood(audit: Audit) -> Iterator[Effect]:
        for number in range(MOST_EFFECTS + 1):
            yield Effect(None, str(number))

    paying(flood)
    audit_sweeps.run_once()
    assert EffectAudit.objects.count() <= audit_sweeps.MOST_AUDITS
    assert done_until() is None


def test_two_sweeps_at_one_time_ask_once() -> None:
    listing = Listing()
    paying(listing)
    other = another_connection()
    try:
        other.execute("SELECT pg_advisory_lock(7301004, hashtext('audit pay'))")
        assert audit_sweeps.run_once().audits == 0
        assert listing.asked == []
    finally:
        other.close()
    while audit_sweeps.run_once().audits == 0:
        """The server frees the lock when it notices that its session has ended."""
    assert len(listing.asked) == 1


def test_one_tool_holds_up_no_other() -> None:
    """Here the row in which the first one keeps its watermark cannot be written."""
    paying(Listing(), name="a" * 120)
    paying(listing := Listing(), name="pay")
    assert audit_sweeps.run_once().audits == 1
    assert len(listing.asked) == 1


def test_a_tool_without_a_handler_is_not_audited() -> None:
    nothing: Any = None
    paying(nothing)
    assert audit_sweeps.run_once().audits == 0

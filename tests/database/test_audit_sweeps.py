"""Audits by the clock: each moment once per tool, whatever stands in the way."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import ceil
from typing import Any

import pytest
from django.db.models import F

import tools.auditing as listing_module
from runs import audit_sweeps, auditing
from runs.models import EffectAudit, Sweep
from runs.tasks import audit_effects
from tests.database.auditing import HOUR, Listing, paying
from tests.database.kit import ON_DATABASE
from tests.database.policy_rows import thread_of
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


def test_what_could_not_be_asked_for_from_the_first_sweep_on_is_asked_for_later() -> None:
    listing = Listing()
    paying(listing)
    listing.error = ConnectionError("gone")
    assert audit_sweeps.run_once().failed == 1
    [(first, _)] = spans()
    # Nothing is passed over while three days go by.
    Sweep.objects.update(done_until=F("done_until") - 3 * DAY)
    audit_sweeps.run_once()
    listing.error = None
    assert audit_sweeps.run_once().failed == 0
    assert done_until() == spans()[-1][1]
    audited = EffectAudit.objects.filter(error="").order_by("id")
    assert audited[0].since == first - 3 * DAY
    assert all(one.until == after.since for one, after in pairwise(audited))


class Steady:
    """A provider that makes an effect every so many seconds, and lists what it is asked for."""

    def __init__(self, *, every: float) -> None:
        self.every = every
        self.asked: list[Audit] = []

    def __call__(self, audit: Audit) -> Iterator[Effect]:
        self.asked.append(audit)
        number = ceil(audit.since.timestamp() / self.every)
        while (at := number * self.every) < audit.until.timestamp():
            yield Effect(None, f"re_{number}", at=datetime.fromtimestamp(at, UTC))
            number += 1


@pytest.fixture
def compares_100(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit compares 100 effects instead of 10,000: what needs hours takes no minutes."""
    for module in (listing_module, auditing, audit_sweeps):
        monkeypatch.setattr(module, "MOST_EFFECTS", 100)


@pytest.mark.usefixtures("compares_100")
def test_a_tool_that_fills_an_audit_within_its_settle_window_is_audited() -> None:
    """Around each span lies half an hour of margin, with three times what an audit compares."""
    provider = Steady(every=6)
    paying(provider)
    now = datetime.now(UTC)
    Sweep.objects.create(name="audit pay", done_until=now - MARGIN - HOUR)
    for _ in range(3):
        audit_sweeps.run_once()
    assert (done_until() or now - DAY) > now - MARGIN
    made = HOUR.total_seconds() / 6
    audited = EffectAudit.objects.filter(error="")
    assert abs(sum(one.unaccounted for one in audited) - made) <= 1 + len(audited) / 1000
    assert all(one.until == after.since for one, after in pairwise(audited.order_by("id")))


@pytest.mark.usefixtures("compares_100")
def test_how_long_a_span_may_be_is_learnt() -> None:
    """100 effects are 200 minutes: the day is halved until it holds so many, and then no more."""
    provider = Steady(every=120)
    paying(provider)
    audit_sweeps.run_once()
    errors = [one.error for one in EffectAudit.objects.order_by("id")]
    assert all("ask for a shorter span" in error for error in errors[:3])
    assert not any(errors[3:])
    Sweep.objects.update(done_until=F("done_until") - DAY)
    assert audit_sweeps.run_once().failed == 0


def test_a_provider_that_always_lists_too_much_is_left_for_the_next_sweep() -> None:
    def flood(audit: Audit) -> Iterator[Effect]:
        for number in range(MOST_EFFECTS + 1):
            yield Effect(None, str(number), at=audit.since + MARGIN)

    paying(flood)
    audit_sweeps.run_once()
    first, *_ = EffectAudit.objects.order_by("id")
    assert 1 < EffectAudit.objects.count() <= audit_sweeps.MOST_AUDITS
    assert done_until() == first.since


def test_of_two_sweeps_at_one_time_one_counts() -> None:
    """While the provider answers the first one, a second one begins and ends."""
    asked: list[Audit] = []

    def slow(audit: Audit) -> Iterator[Effect]:
        asked.append(audit)
        if len(asked) == 1:
            thread_of(audit_sweeps.run_once).join()
        yield Effect(None, "re_1", at=audit.since + HOUR)

    paying(slow)
    assert audit_sweeps.run_once().audits == 0
    assert len(asked) >= 2
    assert sum(one.unaccounted for one in EffectAudit.objects.all()) == 1
    assert all(one[1] == next_one[0] for one, next_one in pairwise(spans()))
    assert done_until() == spans()[-1][1]


def test_one_tool_that_breaks_its_audit_holds_up_no_other() -> None:
    """Here the row in which the first one keeps its watermark cannot be written."""
    paying(Listing(), name="a" * 120)
    paying(listing := Listing(), name="pay")
    assert audit_sweeps.run_once().audits == 1
    assert len(listing.asked) == 1


def test_a_tool_whose_provider_is_slow_uses_up_its_own_share_of_the_time() -> None:
    """No time at all is left after its first answer; both have twenty days to catch up with."""
    slow, other = Listing(), Listing()
    paying(slow, name="a")
    paying(other, name="b")
    for name in "ab":
        Sweep.objects.create(name=f"audit {name}", done_until=datetime.now(UTC) - 20 * DAY)
    for _ in range(4):
        assert audit_sweeps.run_once(seconds=0).audits == 1
    # By turns, whoever comes first by name.
    assert (len(slow.asked), len(other.asked)) == (2, 2)


def test_a_tool_without_a_handler_is_not_audited() -> None:
    nothing: Any = None
    paying(nothing)
    assert audit_sweeps.run_once().audits == 0

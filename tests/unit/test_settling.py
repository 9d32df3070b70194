"""Laws of settling: when "not found" may be believed, and that nothing else makes it so."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.recovery import AskLater, CallAgain, Facts, LookUp, NeedsPerson, Proof, Record, recover
from runs.settling import NEGATIVES, SPACING_PART, Send, Settling, settle
from tools import EffectType, Retry

ZERO = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
WINDOW = timedelta(minutes=15)
SPACING = WINDOW / SPACING_PART
TICK = timedelta(microseconds=1)


def _at(seconds: float) -> datetime:
    return ZERO + timedelta(seconds=seconds)


def _ended(at: datetime, number: int = 1) -> Send:
    return Send(number=number, worker="", ended_at=at)


def _after(end: datetime, *offsets: timedelta) -> list[datetime]:
    return [end + offset for offset in offsets]


# Three that are spaced, the last one after the window.
ENOUGH = (timedelta(0), SPACING, WINDOW)


# -- Each condition alone -----------------------------------------------------------------------


def test_all_four_conditions_together_settle_it() -> None:
    settled = _settle(sends=[_ended(ZERO)], negatives=_after(ZERO, *ENOUGH))
    assert settled.is_settled
    assert (settled.settles_in, settled.negatives, settled.confirmed) == (0.0, 3, True)


def test_a_sender_that_may_still_act_keeps_it_open_whatever_was_not_found() -> None:
    sends = [_ended(ZERO), Send(number=2, worker="worker 2", ended_at=None)]
    settled = _settle(sends=sends, negatives=_after(ZERO, *ENOUGH), now=ZERO + 100 * WINDOW)
    assert (settled.settles_in, settled.sender, settled.is_settled) == (None, "worker 2", False)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_it_takes_every_send_to_have_ended_not_only_the_newest(place: int) -> None:
    sends = [_ended(ZERO, number) for number in (1, 2, 3)]
    assert _settle(sends=sends, negatives=_after(ZERO, *ENOUGH)).is_settled
    sends[place] = replace(sends[place], worker="w", ended_at=None)
    assert not _settle(sends=sends, negatives=_after(ZERO, *ENOUGH)).is_settled


@pytest.mark.parametrize(
    ("now", "open_for"),
    [
        (ZERO, WINDOW),
        (ZERO + WINDOW - TICK, TICK),
        (ZERO + WINDOW, timedelta(0)),
        (ZERO + WINDOW + TICK, timedelta(0)),
    ],
)
def test_the_window_is_over_exactly_at_its_end(now: datetime, open_for: timedelta) -> None:
    settled = _settle(sends=[_ended(ZERO)], negatives=[], now=now)
    assert settled.settles_in == pytest.approx(open_for.total_seconds(), abs=1e-9)


def test_the_window_begins_at_the_last_end() -> None:
    sends = [_ended(ZERO), _ended(ZERO + WINDOW, 2)]
    early = _settle(sends=sends, negatives=_after(ZERO, *ENOUGH), now=ZERO + WINDOW)
    assert early.settles_in == WINDOW.total_seconds()
    # Only the third of these is not before the second send's end.
    assert early.negatives == 1


@pytest.mark.parametrize(("offset", "counts"), [(-TICK, 0), (timedelta(0), 1), (TICK, 1)])
def test_a_negative_counts_from_the_last_end_on(offset: timedelta, counts: int) -> None:
    assert _settle(sends=[_ended(ZERO)], negatives=[ZERO + offset]).negatives == counts


@pytest.mark.parametrize(("offset", "counts"), [(-TICK, 1), (timedelta(0), 2), (TICK, 2)])
def test_a_negative_counts_when_the_spacing_is_over(offset: timedelta, counts: int) -> None:
    negatives = [ZERO, ZERO + SPACING + offset]
    assert _settle(sends=[_ended(ZERO)], negatives=negatives).negatives == counts


@pytest.mark.parametrize(
    ("offset", "settled"), [(-TICK, False), (timedelta(0), True), (TICK, True)]
)
def test_the_last_negative_is_made_after_the_window(offset: timedelta, settled: bool) -> None:
    negatives = _after(ZERO, timedelta(0), SPACING, 2 * SPACING, WINDOW + offset)
    assert _settle(sends=[_ended(ZERO)], negatives=negatives).is_settled == settled


def test_three_in_a_hurry_count_once() -> None:
    hurried = [ZERO + WINDOW + n * TICK for n in range(50)]
    settled = _settle(sends=[_ended(ZERO)], negatives=hurried, now=ZERO + 2 * WINDOW)
    assert (settled.negatives, settled.is_settled) == (1, False)


def test_a_provider_that_needs_no_window_needs_three_negatives_all_the_same() -> None:
    for asked in range(NEGATIVES):
        settled = settle(
            sends=[_ended(ZERO)], negatives=[ZERO] * asked, window=timedelta(0), now=ZERO
        )
        assert not settled.is_settled
    assert settle(
        sends=[_ended(ZERO)], negatives=[ZERO] * NEGATIVES, window=timedelta(0), now=ZERO
    ).is_settled


@pytest.mark.parametrize(
    ("settling", "words"),
    [
        (Settling(settles_in=None, sender="host:7"), "host:7"),
        (Settling(settles_in=None), "a worker"),
        (Settling(settles_in=61.2), "61 s"),
        (Settling(settles_in=0.0, negatives=2, confirmed=True), "2 times instead of 3"),
    ],
)
def test_what_is_lacking_is_said_in_words(settling: Settling, words: str) -> None:
    assert not settling.is_settled
    assert words in settling.lacks


def test_a_lack_of_a_last_look_after_the_window_is_not_called_a_lack_of_number() -> None:
    settling = Settling(settles_in=0.0, negatives=5, confirmed=False)
    assert not settling.is_settled
    assert "instead of 3" not in settling.lacks


# -- Whatever the times are ---------------------------------------------------------------------

seconds = st.integers(min_value=-600, max_value=3600)
ends = st.lists(st.one_of(st.none(), seconds), min_size=1, max_size=3)
negative_times = st.lists(seconds, max_size=7)
windows = st.sampled_from([0, 1, 60, 900])


def _sends(of: list[int | None]) -> list[Send]:
    return [
        Send(number=n, worker=f"w{n}", ended_at=None if at is None else _at(at))
        for n, at in enumerate(of, start=1)
    ]


@given(ends=ends, negatives=negative_times, window=windows, now=seconds)
def test_it_is_settled_exactly_by_the_definition(
    ends: list[int | None], negatives: list[int], window: int, now: int
) -> None:
    made = [at for at in negatives if at <= now]
    found = settle(
        sends=_sends(ends),
        negatives=[_at(at) for at in made],
        window=timedelta(seconds=window),
        now=_at(now),
    )
    assert found.is_settled == _is_settled(ends, made, window=window, now=now)


def _is_settled(ends: list[int | None], negatives: list[int], *, window: int, now: int) -> bool:
    """The definition, word by word: some three of the look-ups are what is asked for."""
    ended = [at for at in ends if at is not None]
    if len(ended) < len(ends) or now < max(ended) + window:
        return False
    if not any(at >= max(ended) + window for at in negatives):
        return False
    after = sorted(at for at in negatives if at >= max(ended))
    return any(
        later - earlier >= window / SPACING_PART and last - later >= window / SPACING_PART
        for earlier, later, last in combinations(after, 3)
    )


@given(ends=ends, negatives=negative_times, window=windows, now=seconds, more=seconds)
def test_a_further_negative_never_unsettles_and_a_further_send_never_settles(
    ends: list[int | None], negatives: list[int], window: int, now: int, more: int
) -> None:
    def is_settled(*, ends: list[int | None], negatives: list[int]) -> bool:
        return settle(
            sends=_sends(ends),
            negatives=[_at(at) for at in negatives],
            window=timedelta(seconds=window),
            now=_at(now),
        ).is_settled

    before = is_settled(ends=ends, negatives=negatives)
    assert is_settled(ends=ends, negatives=[*negatives, more]) >= before
    assert is_settled(ends=[*ends, more], negatives=negatives) <= before
    assert not is_settled(ends=[*ends, None], negatives=negatives)


@given(ends=ends, negatives=negative_times, window=windows, now=seconds, later=st.integers(0, 900))
def test_time_only_helps(
    ends: list[int | None], negatives: list[int], window: int, now: int, later: int
) -> None:
    def at(moment: int) -> Settling:
        return settle(
            sends=_sends(ends),
            negatives=[_at(one) for one in negatives],
            window=timedelta(seconds=window),
            now=_at(moment),
        )

    assert at(now + later).is_settled >= at(now).is_settled
    first, second = at(now).settles_in, at(now + later).settles_in
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert second == pytest.approx(max(0.0, first - later), abs=1e-6)


@given(first_delay=st.floats(0.01, 60), max_delay=st.floats(60, 3600), window=windows)
def test_who_asks_when_told_has_it_settled_soon_after_the_window(
    first_delay: float, max_delay: float, window: int
) -> None:
    retry = Retry(max_attempts=5, first_delay=first_delay, max_delay=max_delay)
    asked: list[datetime] = []
    now = ZERO
    for number in range(1, 400):
        asked.append(now)
        settling = settle(
            sends=[_ended(ZERO)], negatives=asked, window=timedelta(seconds=window), now=now
        )
        if settling.is_settled:
            break
        wait = settling.next_useful(retry.delay(number, rng=lambda: 0.5))
        assert 0 < wait <= max_delay
        now += timedelta(seconds=wait)
    assert settling.is_settled
    assert now <= _at(window + 3 * (window / SPACING_PART + 0.2) + 0.5)


# -- With recovery: at most one effect ----------------------------------------------------------


@given(
    ends_in=st.one_of(st.none(), st.integers(0, 3000)),
    lands_after=st.one_of(st.none(), st.floats(0, 0.999)),
    failing=st.sets(st.integers(1, 30)),
    objective=st.sampled_from([60.0, 1200.0, 7200.0]),
)
def test_a_call_is_repeated_only_if_the_first_one_can_no_longer_take_effect(
    ends_in: int | None, lands_after: float | None, failing: set[int], objective: float
) -> None:
    """A provider that keeps its settle window; a sender that ends late, or never as far as known.

    The request may take effect at any moment up to the window's end after its sender's end, and
    is found from then on; some look-ups fail.
    """
    window = WINDOW.total_seconds()
    end = 10_000.0 if ends_in is None else float(ends_in)
    lands_at = None if lands_after is None else lands_after * (end + window)
    retry, now, asked = Retry(first_delay=1.0, max_delay=300.0), 0.0, 0
    negatives: list[datetime] = []
    while True:
        asked += 1
        has_landed = lands_at is not None and now >= lands_at
        is_known_to_have_ended = ends_in is not None and now >= end
        facts = Facts(
            effect_type=EffectType.NON_IDEMPOTENT_WRITE,
            can_look_up=True,
            key="none",
            sends=1,
            max_sends=5,
            retry_in=retry.delay(asked, rng=lambda: 0.5),
            objective_in=objective - now,
        )
        assert isinstance(recover(facts), LookUp)
        if asked in failing:
            facts = replace(facts, found="indeterminate")
        elif has_landed:
            facts = replace(facts, proof=Proof(result=1, external_ref="re_1"))
        else:
            negatives.append(_at(now))
            facts = replace(facts, found="not_found")
        send = Send(1, "w", _at(end) if is_known_to_have_ended else None)
        facts = replace(
            facts, settling=settle(sends=[send], negatives=negatives, window=WINDOW, now=_at(now))
        )
        match recover(facts):
            case Record():
                assert has_landed
                return
            case CallAgain():
                assert is_known_to_have_ended
                assert lands_at is None, f"it lands at {lands_at}, and was repeated at {now}"
                return
            case NeedsPerson(overdue=overdue):
                assert overdue
                assert now >= objective
                return
            case AskLater(seconds=wait):
                assert asked < 1000
                now += wait
            case other:
                pytest.fail(f"{other} is no answer here")


def _settle(
    *, sends: list[Send], negatives: list[datetime], now: datetime = ZERO + WINDOW
) -> Settling:
    return settle(sends=sends, negatives=negatives, window=WINDOW, now=now)

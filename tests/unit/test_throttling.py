"""How often a token may ask, on a clock of its own."""

from typing import Any

import pytest

from agentops.throttling import REMEMBERED, Rates


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rates(clock: Clock, settings: Any) -> Rates:
    settings.AGENTOPS_RATE_PER_MINUTE = 60
    return Rates(now=clock)


def let_through(rates: Rates, *, token: int = 1, tries: int) -> int:
    return sum(rates.take(token) == 0 for _ in range(tries))


def test_a_minutes_worth_may_come_at_once_and_no_more(rates: Rates) -> None:
    assert let_through(rates, tries=100) == 60


def test_whoever_is_turned_away_is_let_in_when_they_were_told(rates: Rates, clock: Clock) -> None:
    let_through(rates, tries=60)
    wait = rates.take(1)
    assert wait == pytest.approx(1.0)
    clock.now += wait / 2
    assert rates.take(1) > 0
    clock.now += wait / 2 + 0.001
    assert rates.take(1) == 0
    assert rates.take(1) > 0


def test_over_a_long_time_it_is_the_rate(rates: Rates, clock: Clock) -> None:
    passed = 0
    for _ in range(3000):
        clock.now += 0.1
        passed += let_through(rates, tries=1)
    assert passed == pytest.approx(60 + 300, abs=2)


def test_one_token_does_not_use_up_another(rates: Rates) -> None:
    let_through(rates, token=1, tries=100)
    assert rates.take(2) == 0


def test_an_hour_of_silence_saves_up_one_minute(rates: Rates, clock: Clock) -> None:
    let_through(rates, tries=60)
    clock.now += 3600
    assert let_through(rates, tries=200) == 60


def test_0_turns_it_off(rates: Rates, settings: Any) -> None:
    settings.AGENTOPS_RATE_PER_MINUTE = 0
    assert let_through(rates, tries=1000) == 1000


def test_what_is_remembered_is_bounded_and_forgetting_lets_nobody_in(
    rates: Rates, clock: Clock
) -> None:
    for token in range(5 * REMEMBERED):
        clock.now += 1
        rates.take(token)
    let_through(rates, token=-1, tries=60)
    assert len(rates._buckets) <= REMEMBERED
    for token in range(5 * REMEMBERED, 5 * REMEMBERED + 10):
        rates.take(token)
    assert rates.take(-1) > 0

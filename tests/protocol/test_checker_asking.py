"""The checks of runs that ask llms find every fault planted for them, and none elsewhere."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.protocol.asking import CHECKS
from tests.protocol.picture import Decision, HandedOff, LlmAsked, Picture, Run

RUN = Run(
    id="r", state="READY", version=9, fence_token=2, held=True, dated=False, steps=4, tokens=30
)
AWAY = LlmAsked(1, "r", 1, "decide", "failed", "", 0)
BAD = LlmAsked(2, "r", 1, "decide", "unusable", "one", 10)
GOOD = LlmAsked(3, "r", 1, "decide", "used", "two", 10)
WRITTEN = LlmAsked(4, "r", 2, "handoff", "used", "three", 10)
SOUND = Picture(
    runs=(RUN,),
    decisions=(Decision("r", 1, "call_tools", by_llm=True),),
    llm_requests=(AWAY, BAD, GOOD, WRITTEN),
    handoffs=(HandedOff("r", 1, 1), HandedOff("r", 2, 3)),
    said=frozenset({"one", "two", "three", "lost"}),
)


def with_requests(*requests: LlmAsked) -> Picture:
    return replace(SOUND, llm_requests=requests)


def with_handoffs(*handoffs: tuple[int, int]) -> Picture:
    return replace(SOUND, handoffs=tuple(HandedOff("r", *one) for one in handoffs))


PLANTED: dict[str, tuple[int, Callable[[], Picture]]] = {
    "a decision that nobody was asked for": (6, lambda: with_requests(AWAY, BAD, WRITTEN)),
    "an llm that was asked again after it decided": (
        6,
        lambda: with_requests(AWAY, GOOD, BAD, WRITTEN),
    ),
    "two answers of which one was used": (
        6,
        lambda: with_requests(replace(BAD, outcome="used"), GOOD, WRITTEN),
    ),
    "an answer without a decision": (6, lambda: replace(SOUND, decisions=())),
    "a request that is gone": (8, lambda: with_requests(BAD, GOOD, WRITTEN)),
    "a handoff that is gone": (8, lambda: with_handoffs((1, 1))),
    "a handoff that was numbered twice": (8, lambda: with_handoffs((1, 1), (1, 3))),
    "a handoff of the future": (8, lambda: with_handoffs((1, 1), (2, 3), (3, 5))),
    "a handoff that forgets": (8, lambda: with_handoffs((1, 3), (2, 1))),
    "an answer that nobody gave": (10, lambda: replace(SOUND, said=frozenset({"one", "two"}))),
    "an answer that was recorded twice": (
        10,
        lambda: with_requests(AWAY, replace(BAD, response="two"), GOOD, WRITTEN),
    ),
    "an answer without a name": (
        10,
        lambda: with_requests(AWAY, BAD, replace(GOOD, response=""), WRITTEN),
    ),
    "nobody's answer": (10, lambda: with_requests(replace(AWAY, response="lost"), GOOD, WRITTEN)),
    "tokens that were not counted": (13, lambda: replace(SOUND, runs=(replace(RUN, tokens=29),))),
}


def test_a_sound_picture_of_requests_has_no_violations() -> None:
    assert [what for check in CHECKS.values() for what in check(SOUND, SOUND)] == []


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_of_a_request_is_found(fault: str) -> None:
    number, plant = PLANTED[fault]
    assert list(CHECKS[number](plant(), SOUND))


def test_tokens_that_are_given_back_are_found() -> None:
    before = replace(SOUND, runs=(replace(RUN, tokens=31),))
    assert list(CHECKS[13](SOUND, before))


def test_every_check_of_requests_has_a_planted_fault() -> None:
    assert {number for number, _ in PLANTED.values()} == set(CHECKS)

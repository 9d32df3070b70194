"""Laws of recovery, over every combination of facts that can differ."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Literal

import pytest

from runs.recovery import (
    AskLater,
    CallAgain,
    Facts,
    LookUp,
    NeedsPerson,
    Proof,
    Record,
    Recovery,
    Reject,
    SendSameKey,
    recover,
)
from tools import EffectType

MAX_SENDS = 3
PROOF = Proof(result={"id": "re_1"}, external_ref="re_1")
WRITES = [effect for effect in EffectType if effect is not EffectType.READ]
Found = Literal["not_found", "indeterminate"]


def _all_facts() -> Iterator[Facts]:
    founds: list[Found | None] = [None, "not_found", "indeterminate"]
    for effect, can_look_up, key_is_good, sends, look_ups, flight, proof, refused, found in product(
        EffectType,
        [True, False],
        [True, False],
        range(1, MAX_SENDS + 2),
        [0, 1, MAX_SENDS, MAX_SENDS + 1],
        [0.0, 0.5],
        [None, PROOF],
        [None, "no such order"],
        founds,
    ):
        if found is not None and (not can_look_up or look_ups == 0):
            continue  # an answer of a look-up takes a look-up
        yield Facts(
            effect_type=effect,
            can_look_up=can_look_up,
            key_is_good=key_is_good,
            sends=sends,
            max_sends=MAX_SENDS,
            look_ups=look_ups,
            retry_in=7.0,
            in_flight_for=flight,
            proof=proof,
            refused=refused,
            found=found,
        )


ALL = list(_all_facts())


def test_the_product_is_not_empty() -> None:
    assert len(ALL) > 1000
    assert {type(recover(facts)) for facts in ALL} == {
        Record, Reject, LookUp, CallAgain, SendSameKey, AskLater, NeedsPerson,
    }  # fmt: skip


def test_an_effect_is_recorded_exactly_when_there_is_proof() -> None:
    for facts in ALL:
        answer = recover(facts)
        assert isinstance(answer, Record) == (facts.proof is not None), facts
        if isinstance(answer, Record):
            assert answer.proof is facts.proof


def test_the_same_key_is_sent_only_for_an_idempotent_write_with_a_good_key() -> None:
    for facts in _those_that(SendSameKey):
        assert facts.effect_type is EffectType.IDEMPOTENT_WRITE, facts
        assert facts.key_is_good, facts


def test_only_a_read_is_simply_called_again() -> None:
    for facts in _those_that(CallAgain):
        assert facts.effect_type is EffectType.READ, facts


@pytest.mark.parametrize("kind", [SendSameKey, CallAgain])
def test_nothing_is_sent_while_an_earlier_send_may_be_on_its_way(kind: type[Recovery]) -> None:
    for facts in _those_that(kind):
        assert facts.in_flight_for <= 0, facts


@pytest.mark.parametrize("kind", [SendSameKey, CallAgain])
def test_nothing_is_sent_more_often_than_allowed(kind: type[Recovery]) -> None:
    for facts in _those_that(kind):
        assert facts.sends < facts.max_sends, facts


@pytest.mark.parametrize("kind", [SendSameKey, NeedsPerson])
def test_a_provider_that_can_be_asked_is_asked_first(kind: type[Recovery]) -> None:
    for facts in _those_that(kind):
        assert not facts.can_look_up or facts.found is not None, facts


def test_a_provider_is_asked_once_per_round() -> None:
    for facts in _those_that(LookUp):
        assert facts.can_look_up, facts
        assert facts.found is None, facts


def test_a_read_is_never_looked_up_and_never_needs_a_person() -> None:
    for facts in ALL:
        if facts.effect_type is EffectType.READ:
            assert not isinstance(recover(facts), LookUp | NeedsPerson), facts


def test_an_effect_is_denied_only_on_a_refusal_or_when_a_read_used_its_tries() -> None:
    for facts in _those_that(Reject):
        exhausted = facts.effect_type is EffectType.READ and facts.sends >= facts.max_sends
        assert exhausted or facts.refused is not None, facts


def test_a_refusal_settles_a_write_only_if_it_answers_the_only_send() -> None:
    for facts in _those_that(Reject):
        if facts.effect_type in WRITES:
            assert facts.sends == 1, facts


def test_a_person_is_not_called_while_the_answer_may_still_come_by_itself() -> None:
    for facts in _those_that(NeedsPerson):
        assert facts.in_flight_for <= 0, facts


def test_what_is_not_found_is_never_taken_for_not_executed() -> None:
    for facts in ALL:
        if facts.effect_type in WRITES and facts.refused is None and facts.found == "not_found":
            assert not isinstance(recover(facts), Reject), facts


@pytest.mark.parametrize("effect", [one for one in WRITES if one != EffectType.IDEMPOTENT_WRITE])
def test_a_write_that_may_not_be_repeated_is_recorded_refused_or_a_persons(
    effect: EffectType,
) -> None:
    for facts in ALL:
        if facts.effect_type is effect:
            answer = recover(facts)
            assert isinstance(answer, Record | Reject | LookUp | NeedsPerson | AskLater), facts


def test_a_key_that_the_provider_may_have_forgotten_is_never_sent_again() -> None:
    for facts in ALL:
        if not facts.key_is_good:
            assert not isinstance(recover(facts), SendSameKey), facts


def test_waiting_is_for_a_time_that_is_given() -> None:
    for facts in ALL:
        answer = recover(facts)
        if isinstance(answer, AskLater):
            assert answer.seconds in (facts.in_flight_for, facts.retry_in), facts
            assert answer.seconds > 0, facts


def test_a_person_is_told_why() -> None:
    for facts in ALL:
        answer = recover(facts)
        if isinstance(answer, NeedsPerson):
            assert len(answer.why) > 10, facts
        if isinstance(answer, Reject):
            assert answer.reason, facts


@pytest.mark.parametrize("found", ["not_found", "indeterminate"])
def test_recovery_ends_however_often_the_provider_gives_the_same_answer(found: Found) -> None:
    for facts in ALL:
        assert _rounds_until_an_end(facts, found=found) <= 4 * MAX_SENDS, facts


def test_the_words_of_a_look_up_reach_the_person() -> None:
    facts = Facts(
        effect_type=EffectType.IRREVERSIBLE,
        can_look_up=True,
        key_is_good=False,
        sends=1,
        max_sends=MAX_SENDS,
        look_ups=1,
        retry_in=1.0,
        found="indeterminate",
        found_why="the ledger is closed",
    )
    answer = recover(facts)
    assert isinstance(answer, NeedsPerson)
    assert "the ledger is closed" in answer.why


def _those_that(kind: type[Recovery]) -> Iterator[Facts]:
    chosen = [facts for facts in ALL if isinstance(recover(facts), kind)]
    assert chosen, f"no facts lead to {kind.__name__}, so the law says nothing"
    yield from chosen


def _rounds_until_an_end(facts: Facts, *, found: Found) -> int:
    """Play recovery as reconciliation does, with a provider that never proves anything."""
    for rounds in range(100):
        match recover(facts):
            case Record() | Reject() | NeedsPerson():
                return rounds
            case LookUp():
                facts = replace(facts, found=found, look_ups=facts.look_ups + 1)
            case CallAgain() | SendSameKey():
                facts = replace(facts, sends=facts.sends + 1, found=None)
            case AskLater():
                facts = replace(facts, in_flight_for=0.0, found=None)
    return 100

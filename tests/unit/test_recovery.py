"""Laws of recovery: every cell of the table, over every combination of facts that can differ.

The oracle below is the table once more, in another shape: rows and columns as they stand in
the design, each cell a word. The laws after it say what must hold whatever the cells say.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any, Final, Literal, assert_never

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
    stricter,
)
from runs.settling import Settling
from tools import EffectType

MAX_SENDS: Final = 3
RETRY_IN: Final = 7.0
IN_FLIGHT: Final = 0.5
PROOF: Final = Proof(result={"id": "re_1"}, external_ref="re_1")
HARMLESS: Final = (EffectType.READ, EffectType.TRANSACTIONAL)
WRITES: Final = [effect for effect in EffectType if effect not in HARMLESS]

SETTLED: Final = Settling(settles_in=0.0, negatives=3, confirmed=True, spacing=90.0)
NOT_SETTLED: Final = (
    Settling(settles_in=None, sender="worker 1", negatives=9, confirmed=True, spacing=90.0),
    Settling(settles_in=30.0, negatives=9, confirmed=True, spacing=90.0),
    Settling(settles_in=0.0, negatives=2, confirmed=True, spacing=90.0),
    Settling(settles_in=0.0, negatives=3, confirmed=False, spacing=90.0),
)


AXES: Final[dict[str, list[Any]]] = {
    "effect_type": [*EffectType],
    "can_look_up": [True, False],
    "may_send": [True, False],
    "nothing_left": [False, True],
    "key": ["kept", "expired", "none"],
    "sends": [*range(1, MAX_SENDS + 1)],
    "objective_in": [0.0, 0.1, 3600.0],
    "in_flight_for": [0.0, IN_FLIGHT],
    "settling": [SETTLED, *NOT_SETTLED],
    "proof": [None, PROOF],
    "refused": [None, "no such order"],
    "found": [None, "not_found", "indeterminate", "failed"],
}


def _all_facts() -> Iterator[Facts]:
    for values in product(*AXES.values()):
        facts = Facts(
            max_sends=MAX_SENDS, retry_in=RETRY_IN, **dict(zip(AXES, values, strict=True))
        )
        # An answer of a look-up takes a look-up.
        if facts.found is None or facts.can_look_up:
            yield facts


ALL: Final = [(facts, recover(facts)) for facts in _all_facts()]


# -- The oracle ---------------------------------------------------------------------------------

Word = Literal["call again", "same key", "again once settled", "ask on", "a person"]
# effect type -> what follows when the look-up says not found, and when nothing says anything.
TABLE: Final[dict[EffectType, tuple[Word, Word]]] = {
    EffectType.READ: ("call again", "call again"),
    EffectType.TRANSACTIONAL: ("call again", "call again"),
    EffectType.IDEMPOTENT_WRITE: ("same key", "same key"),
    EffectType.NON_IDEMPOTENT_WRITE: ("again once settled", "ask on"),
    EffectType.IRREVERSIBLE: ("a person", "a person"),
}


def _expected(facts: Facts) -> Recovery:
    if facts.proof is not None:
        return Record(facts.proof)
    if _is_harmless(facts):
        return _expected_of_a_harmless_call(facts)
    if facts.refused is not None and facts.sends == 1:
        return Reject(facts.refused)
    if facts.can_look_up and facts.found is None:
        return LookUp()
    row = facts.effect_type
    spent = facts.key != "kept" or facts.sends >= MAX_SENDS or facts.refused is not None
    if row is EffectType.IDEMPOTENT_WRITE and (spent or not facts.may_send):
        row = EffectType.NON_IDEMPOTENT_WRITE
    word = TABLE[row][0 if facts.found == "not_found" else 1]
    answer = _read(word, facts)
    goes_on = isinstance(answer, AskLater) and not _is_settled(facts)
    if facts.in_flight_for > 0 and not goes_on:
        # What was made may still answer by itself; but not for ever.
        return AskLater(0.0) if facts.objective_in > 0 else NeedsPerson("")
    return answer


def _is_harmless(facts: Facts) -> bool:
    return facts.effect_type in HARMLESS or facts.nothing_left


def _expected_of_a_harmless_call(facts: Facts) -> Recovery:
    if not facts.may_send:
        return Reject("cancelled")
    if facts.in_flight_for > 0:
        return AskLater(0.0) if facts.objective_in > 0 else Reject("no answer")
    return Reject("tries") if facts.sends >= MAX_SENDS else CallAgain()


def _read(word: Word, facts: Facts) -> Recovery:
    used_up = facts.sends >= MAX_SENDS
    match word:
        case "call again":
            raise AssertionError("harmless, and answered before")
        case "same key":
            return SendSameKey()
        case "a person" if facts.found == "failed" and facts.objective_in > 0:
            return AskLater(0.0)  # nobody has been asked yet
        case "a person":
            return NeedsPerson("")
        case "again once settled" if _is_settled(facts):
            if facts.refused is not None or not facts.may_send:
                return Reject(facts.refused or "cancelled")
            return NeedsPerson("") if used_up or facts.key == "expired" else CallAgain()
        case "again once settled" | "ask on":
            if not facts.can_look_up or facts.objective_in <= 0:
                return NeedsPerson("")
            return AskLater(0.0)
        case _ as never:
            assert_never(never)


def _is_settled(facts: Facts) -> bool:
    return (
        facts.effect_type in (EffectType.IDEMPOTENT_WRITE, EffectType.NON_IDEMPOTENT_WRITE)
        and facts.found == "not_found"
        and facts.settling is SETTLED
    )


def test_every_combination_of_facts_ends_in_its_cell_of_the_table() -> None:
    for facts, answer in ALL:
        assert type(answer) is type(_expected(facts)), facts


def test_the_product_reaches_every_answer_and_is_large() -> None:
    assert len(ALL) > 40_000
    kinds = Counter(type(answer) for _, answer in ALL)
    assert set(kinds) == {Record, Reject, LookUp, CallAgain, SendSameKey, AskLater, NeedsPerson}


# -- Sending again ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SendSameKey, CallAgain])
def test_nothing_is_sent_while_an_earlier_send_may_be_on_its_way(kind: type[Recovery]) -> None:
    for facts in _those_that(kind):
        assert facts.in_flight_for <= 0, facts


@pytest.mark.parametrize("kind", [SendSameKey, CallAgain])
def test_nothing_is_sent_more_often_than_allowed(kind: type[Recovery]) -> None:
    for facts in _those_that(kind):
        assert facts.sends < facts.max_sends, facts


@pytest.mark.parametrize("kind", [SendSameKey, CallAgain])
def test_no_write_is_sent_again_under_a_key_that_the_provider_may_have_forgotten(
    kind: type[Recovery],
) -> None:
    for facts in _those_that(kind):
        assert facts.key != "expired" or _is_harmless(facts), facts


@pytest.mark.parametrize("kind", [SendSameKey, CallAgain])
def test_no_write_is_sent_again_after_it_was_refused(kind: type[Recovery]) -> None:
    for facts in _those_that(kind):
        assert facts.refused is None or _is_harmless(facts), facts


def test_the_same_key_is_sent_only_for_an_idempotent_write_whose_key_is_kept() -> None:
    for facts in _those_that(SendSameKey):
        assert (facts.effect_type, facts.key) == (EffectType.IDEMPOTENT_WRITE, "kept"), facts


def test_what_is_outdated_is_never_sent_under_its_key() -> None:
    for facts in _those_that(SendSameKey):
        answer = recover(replace(facts, is_outdated=True))
        settled = (facts.found, facts.settling) == ("not_found", SETTLED)
        assert isinstance(answer, CallAgain) == settled, facts
        assert isinstance(answer, CallAgain | AskLater | NeedsPerson), facts


def test_what_is_outdated_is_otherwise_settled_like_anything_else() -> None:
    for facts, answer in ALL[::7]:
        if facts.effect_type is not EffectType.IDEMPOTENT_WRITE:
            assert recover(replace(facts, is_outdated=True)) == answer, facts


def test_a_write_is_called_again_only_once_it_is_settled_that_it_did_not_happen() -> None:
    for facts in _those_that(CallAgain):
        if not _is_harmless(facts):
            assert (facts.found, facts.settling) == ("not_found", SETTLED), facts


def test_what_is_irreversible_is_never_sent_again_once_a_byte_of_it_may_have_left() -> None:
    for facts in _those_that(CallAgain, SendSameKey):
        assert facts.effect_type is not EffectType.IRREVERSIBLE or facts.nothing_left, facts


@pytest.mark.parametrize("kind", [SendSameKey, CallAgain])
def test_a_run_that_is_to_be_cancelled_sends_nothing(kind: type[Recovery]) -> None:
    for facts in _those_that(kind):
        assert facts.may_send, facts


@pytest.mark.parametrize("kind", [SendSameKey, CallAgain, NeedsPerson, AskLater])
def test_a_provider_that_can_be_asked_about_a_write_is_asked_first(kind: type[Recovery]) -> None:
    for facts in _those_that(kind):
        asked = facts.found is not None or not facts.can_look_up
        assert asked or _is_harmless(facts), facts


def test_a_provider_is_asked_once_per_round_and_only_about_writes() -> None:
    for facts in _those_that(LookUp):
        assert facts.can_look_up, facts
        assert facts.found is None, facts
        assert not _is_harmless(facts), facts


# -- Concluding ---------------------------------------------------------------------------------


def test_an_effect_is_recorded_exactly_when_there_is_proof() -> None:
    for facts, answer in ALL:
        assert isinstance(answer, Record) == (facts.proof is not None), facts
        if isinstance(answer, Record):
            assert answer.proof is facts.proof


def test_an_effect_is_denied_only_on_a_refusal_where_it_is_settled_or_harmless() -> None:
    for facts in _those_that(Reject):
        if _is_harmless(facts):
            waited = facts.in_flight_for > 0 and facts.objective_in <= 0
            assert facts.sends >= facts.max_sends or not facts.may_send or waited, facts
        elif facts.refused is None:
            # There was none, and none is wanted any more.
            assert not facts.may_send, facts
            assert (facts.found, facts.settling) == ("not_found", SETTLED), facts


def test_a_refusal_ends_a_write_only_as_the_only_answer_or_once_the_others_are_settled() -> None:
    for facts in _those_that(Reject):
        if not _is_harmless(facts) and facts.sends > 1:
            assert (facts.found, facts.settling) == ("not_found", SETTLED), facts


def test_what_is_not_found_is_taken_for_not_executed_only_once_it_is_settled() -> None:
    for facts, answer in ALL:
        if not _is_harmless(facts) and facts.refused is None and facts.settling is not SETTLED:
            assert not isinstance(answer, Reject), facts


# -- Waiting and persons ------------------------------------------------------------------------


def test_a_person_is_not_called_while_the_answer_may_still_come_by_itself_in_time() -> None:
    for facts in _those_that(NeedsPerson):
        assert facts.in_flight_for <= 0 or facts.objective_in <= 0, facts


def test_once_the_objective_is_over_a_person_is_asked_even_while_a_send_may_be_on_its_way() -> None:
    for facts, answer in ALL:
        if facts.effect_type in WRITES and facts.objective_in <= 0:
            assert not isinstance(answer, AskLater), facts
            if isinstance(answer, NeedsPerson) and facts.in_flight_for > 0:
                assert answer.overdue, facts


def test_a_person_is_not_called_because_a_look_up_failed_while_there_is_time() -> None:
    for facts in _those_that(NeedsPerson):
        assert facts.found != "failed" or facts.objective_in <= 0, facts


def test_what_is_harmless_never_needs_a_person() -> None:
    for facts in _those_that(NeedsPerson):
        assert not _is_harmless(facts), facts


def test_a_repeatable_write_needs_no_person_while_its_key_is_kept_and_tries_are_left() -> None:
    for facts in _those_that(NeedsPerson):
        if facts.effect_type is EffectType.IDEMPOTENT_WRITE and facts.refused is None:
            may = facts.key == "kept" and facts.sends < facts.max_sends and facts.may_send
            # Unless a call that was made for it does not come back.
            assert not may or facts.in_flight_for > 0, facts


def test_a_person_who_is_asked_because_time_is_up_is_told_so() -> None:
    for facts, answer in ALL:
        if isinstance(answer, NeedsPerson) and answer.overdue:
            assert facts.objective_in <= 0, facts


def test_waiting_is_for_a_positive_time_and_not_far_past_the_objective() -> None:
    for facts, answer in ALL:
        if isinstance(answer, AskLater):
            assert 0 < answer.seconds <= max(facts.objective_in, 1.0), facts


def test_nothing_waits_for_ever() -> None:
    """A call that never comes back keeps nobody waiting once the objective is over."""
    for facts, answer in ALL:
        if facts.objective_in <= 0:
            assert not isinstance(answer, AskLater), facts


def test_a_person_is_told_why_and_what_is_lacking() -> None:
    for facts, answer in ALL:
        if isinstance(answer, NeedsPerson):
            assert len(answer.why) > 10, facts
            if answer.overdue and facts.found == "not_found" and facts.in_flight_for <= 0:
                assert facts.settling.lacks in answer.why, facts
        if isinstance(answer, Reject):
            assert answer.reason, facts


def test_the_words_of_a_look_up_reach_the_person() -> None:
    facts = Facts(
        effect_type=EffectType.IRREVERSIBLE,
        can_look_up=True,
        key="none",
        sends=1,
        max_sends=MAX_SENDS,
        retry_in=1.0,
        objective_in=60.0,
        found="indeterminate",
        found_why="the ledger is closed",
    )
    answer = recover(facts)
    assert isinstance(answer, NeedsPerson)
    assert "the ledger is closed" in answer.why


# -- Two declarations ---------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "other"), [*product(EffectType, EffectType)])
def test_of_two_declarations_the_one_that_allows_less_counts(
    one: EffectType, other: EffectType
) -> None:
    chosen = stricter(one, other)
    assert chosen in (one, other)
    assert chosen is stricter(other, one)
    rank = [EffectType.READ, EffectType.TRANSACTIONAL, *WRITES]
    assert rank.index(chosen) == max(rank.index(one), rank.index(other))


def _those_that(*kinds: type[Recovery]) -> Iterator[Facts]:
    chosen = [facts for facts, answer in ALL if isinstance(answer, kinds)]
    assert chosen, f"no facts lead to {kinds}, so the law says nothing"
    yield from chosen

"""A handoff agrees with the rows or is refused; what is built from the rows always agrees."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.artifact import MOST_BYTES, MOST_DONE, MOST_FACTS, Artifact, Fact, OpenItem
from runs.context import Observed
from runs.handoff_building import build, fill_in, find_named
from runs.handoff_checks import complete, find_problems
from runs.hiding import Hider
from runs.standing import Item, Standing
from runs.state import OperationStatus

UNKNOWN = Item("op_9", "UNKNOWN", "pay of step 3", "the provider is asked")
ASKED = Item("0192", "pending", "pay op_8", "a verdict")
STANDING = Standing(
    objective="pay the bill",
    constraints=("never above 10", "in euro"),
    items=(UNKNOWN, ASKED),
    proofs={"op_1": 41},
    told_steps=frozenset({2}),
)
RIGHT = Artifact(
    done=("paid a part",),
    facts=(Fact(text="one was paid", operation="op_1"), Fact(text="they agreed", step=2)),
    open_items=(OpenItem(id="op_9", status="UNKNOWN"), OpenItem(id="0192", status="pending")),
    constraints=STANDING.constraints,
    notes="mind the gap",
)


def wrong(**changed: Any) -> list[str]:
    return find_problems(RIGHT.model_copy(update=changed), STANDING)


def test_one_that_names_everything_and_proves_its_facts_is_right() -> None:
    assert find_problems(RIGHT, STANDING) == []


def test_one_that_omits_an_unknown_operation_is_refused() -> None:
    assert wrong(open_items=RIGHT.open_items[1:]) == [
        "open_items: op_9 (pay of step 3, UNKNOWN) is missing"
    ]


def test_one_that_omits_a_pending_approval_is_refused() -> None:
    assert wrong(open_items=RIGHT.open_items[:1]) == [
        "open_items: 0192 (pay op_8, pending) is missing"
    ]


def test_one_that_calls_an_unknown_operation_settled_is_refused() -> None:
    said = OpenItem(id="op_9", status="COMMITTED")
    assert wrong(open_items=(said, RIGHT.open_items[1])) == [
        "open_items: op_9 is UNKNOWN, not COMMITTED"
    ]


def test_one_that_makes_an_open_item_up_or_names_one_twice_is_refused() -> None:
    more = OpenItem(id="op_7", status="UNKNOWN")
    assert wrong(open_items=(*RIGHT.open_items, more)) == [
        "open_items: nothing that is not settled is called 'op_7'"
    ]
    assert wrong(open_items=(*RIGHT.open_items, RIGHT.open_items[0])) == [
        "open_items: an id stands there twice"
    ]


@pytest.mark.parametrize(
    ("constraints", "problems"), [(("never above 10",), 1), (("never above 11", "in euro"), 2)]
)
def test_one_that_drops_or_changes_a_constraint_is_refused(
    constraints: tuple[str, ...], problems: int
) -> None:
    assert len(wrong(constraints=constraints)) == problems


@pytest.mark.parametrize(
    "fact",
    [
        Fact(text="it was paid"),
        Fact(text="it was paid", operation="op_9"),
        Fact(text="it was paid", operation="op_invented"),
        Fact(text="they agreed", step=3),
        # A step that told something proves nothing about an operation.
        Fact(text="it was paid", operation="op_9", step=2),
    ],
)
def test_a_fact_that_no_row_shows_is_refused(fact: Fact) -> None:
    (problem,) = wrong(facts=(fact,))
    assert problem.startswith(f"facts: '{fact.text}' names ")


def test_one_that_is_too_long_or_cannot_be_stored_is_refused() -> None:
    long = tuple(Fact(text="é" * 400, operation="op_1") for _ in range(MOST_FACTS))
    (problem,) = wrong(facts=long)
    assert str(MOST_BYTES) in problem
    assert "NUL" in wrong(notes="a\0b")[0]
    assert "surrogate" in wrong(notes="\ud800")[0]


def test_what_the_rows_alone_may_say_is_not_taken_from_a_text() -> None:
    lied = RIGHT.model_copy(
        update={
            "objective": "another",
            "covers_step": 99,
            "facts": (Fact(text="paid", operation="op_1", observation=7),),
        }
    )
    stored = complete(lied, STANDING, covers_step=5)
    assert (stored.objective, stored.covers_step) == ("pay the bill", 5)
    assert stored.facts[0].observation == 41


def test_a_constraint_is_stored_once_however_often_it_was_repeated() -> None:
    repeated = RIGHT.model_copy(update={"constraints": STANDING.constraints * 1_000})
    assert complete(repeated, STANDING, covers_step=5).constraints == STANDING.constraints


def test_what_is_built_names_who_was_told_what_and_proves_what_was_done() -> None:
    seen = [
        _see(operation_id="op_1", step_number=1, is_write=True, result={"ref": "re_1"}),
        _see(operation_id="op_2", step_number=2, is_write=True, corrected=True),
        _see(operation_id="op_3", step_number=3, status=OperationStatus.REJECTED, error="no"),
        _see(operation_id="", step_number=4, tool="paid", kind="signal", author="bank", result=1),
    ]
    standing = replace(STANDING, proofs={"op_1": 41}, told_steps=frozenset({4}))
    built = build(None, seen, standing, hider=Hider(()))
    assert [(fact.operation, fact.step) for fact in built.facts] == [("op_1", 0), ("", 4)]
    assert built.facts[0].text == 'step 1: pay {"amount":1} COMMITTED: {"ref":"re_1"}'
    assert built.done[2:] == (
        'step 3: pay {"amount":1} REJECTED: no',
        "step 4: signal paid by bank COMMITTED: 1",
    )


def test_secrets_are_hidden_in_what_is_built() -> None:
    seen = [
        _see(arguments={"pin": "s3cret"}, result={"pin": "s3cret"}, is_write=True),
        _see(arguments={"pin": "s3cret"}, status=OperationStatus.REJECTED, error="not s3cret"),
    ]
    built = build(
        None, seen, replace(STANDING, proofs={"op_1": 1}), hider=Hider({"pin"}, [seen[1].arguments])
    )
    assert "s3cret" not in built.model_dump_json()


def _see(**given: Any) -> Observed:
    given = {
        "operation_id": "op_1",
        "step_number": 1,
        "tool": "pay",
        "arguments": {"amount": 1},
        "status": OperationStatus.COMMITTED,
    } | given
    return Observed(**given)


# What rows can hold: no NUL, no lone surrogate.
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
long_texts = texts.map(lambda text: text * 30)
names = st.sampled_from([f"op_{n}" for n in range(12)])
observations = st.builds(
    Observed,
    operation_id=st.one_of(names, st.just("")),
    step_number=st.integers(1, 12),
    tool=texts,
    arguments=st.dictionaries(texts, long_texts, max_size=2),
    status=st.sampled_from(
        [OperationStatus.COMMITTED, OperationStatus.REJECTED, OperationStatus.CANCELLED]
    ),
    result=st.one_of(st.none(), long_texts, st.dictionaries(texts, texts, max_size=2)),
    error=long_texts,
    external_ref=texts,
    is_write=st.booleans(),
    kind=st.sampled_from(["call", "signal", "answer", "child"]),
    author=texts,
    corrected=st.booleans(),
)
items = st.lists(
    st.builds(Item, id=names, status=st.just("UNKNOWN"), what=long_texts, due=texts),
    unique_by=lambda item: item.id,
    max_size=5,
)
standings = st.builds(
    Standing,
    objective=long_texts,
    constraints=st.lists(texts, unique=True, max_size=3).map(tuple),
    items=items.map(tuple),
    proofs=st.dictionaries(names, st.integers(1, 99), max_size=12),
    told_steps=st.frozensets(st.integers(1, 12)),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.lists(observations, max_size=8), standings), min_size=1, max_size=3))
def test_what_is_built_from_rows_always_agrees_with_them(
    lives: list[tuple[list[Observed], Standing]],
) -> None:
    previous: Artifact | None = None
    for seen, standing in lives:
        named = find_named(previous, seen)
        built = build(previous, seen * 9, standing, hider=Hider(("pin",)))
        told = build(previous, seen * 9, standing, hider=Hider(("pin",)), whose="clerk" * 20)
        assert find_problems(told, standing) == []
        assert find_problems(built, standing) == []
        # So does what an llm wrote, with what it left out.
        for written in (RIGHT, Artifact()):
            said = [fact for fact in written.facts if _stands(fact, standing)]
            free = {"open_items": built.open_items, "constraints": standing.constraints}
            whole = fill_in(written.model_copy(update={"facts": tuple(said)} | free), built)
            assert find_problems(whole, standing) == []
            assert whole.facts[len(whole.facts) - len(said) :] == tuple(said)
        # All that it may name was looked up before.
        assert built.named_operations <= named.operations
        assert built.named_steps <= named.steps
        previous = Artifact.model_validate(
            complete(built, standing, covers_step=1).model_dump(mode="json")
        )
        assert len(previous.done) <= MOST_DONE


def _stands(fact: Fact, standing: Standing) -> bool:
    return fact.operation in standing.proofs or fact.step in standing.told_steps


def test_what_an_llm_left_out_is_put_before_what_it_said() -> None:
    seen = [_see(operation_id=f"op_{n}", step_number=n, is_write=True) for n in (1, 2, 3)]
    standing = replace(STANDING, proofs={one.operation_id: 1 for one in seen})
    built = build(None, seen, standing, hider=Hider(()))
    whole = fill_in(RIGHT, built)
    assert [fact.operation for fact in whole.facts] == ["op_2", "op_3", "op_1", ""]
    assert (whole.facts[2].text, whole.done) == ("one was paid", RIGHT.done)
    silent = fill_in(RIGHT.model_copy(update={"done": (), "notes": ""}), built)
    assert silent.done == built.done


@pytest.mark.parametrize("left", [3_000, 60, 0])
def test_one_that_is_filled_in_keeps_what_the_llm_said_as_far_as_it_goes(left: int) -> None:
    seen = [_see(operation_id=f"op_{n}", step_number=n, is_write=True) for n in range(200)]
    standing = replace(STANDING, proofs={one.operation_id: 1 for one in seen})
    built = build(None, seen, standing, hider=Hider(()))
    empty = RIGHT.model_copy(update={"next_steps": ("",)})
    room = MOST_BYTES - empty.free_bytes - left
    full = RIGHT.model_copy(update={"next_steps": ("y" * room,)})
    assert full.free_bytes == MOST_BYTES - left
    whole = fill_in(full, built)
    assert whole.free_bytes <= MOST_BYTES
    assert (whole.done, whole.next_steps) == (full.done, full.next_steps)
    assert whole.facts[-len(full.facts) :] == full.facts
    assert (len(whole.facts) > len(full.facts)) == (left > 1_000)


@pytest.mark.parametrize("length", range(20, 90, 3))
def test_what_is_left_out_is_said_within_the_bound(length: int) -> None:
    seen = [
        _see(operation_id=f"op_{n:040}", step_number=n, is_write=True, result="x" * length)
        for n in range(1, 201)
    ]
    standing = replace(STANDING, proofs={one.operation_id: 1 for one in seen})
    built = build(None, seen, standing, hider=Hider(()))
    assert "left out" in built.notes
    assert built.free_bytes <= MOST_BYTES


def test_notes_as_long_as_they_may_be_leave_room_for_what_is_built() -> None:
    notes = "\x01" * ((MOST_BYTES - Artifact().free_bytes) // 6)
    previous = Artifact(notes=notes)
    assert find_problems(previous, Standing(objective="", constraints=())) == []
    built = build(previous, [_see(is_write=True)], STANDING, hider=Hider(()))
    assert built.free_bytes <= MOST_BYTES
    assert "left out" in built.notes


def test_the_newest_survives_where_not_everything_fits() -> None:
    seen = [
        _see(operation_id=f"op_{n}", step_number=n, is_write=True, result="é" * 200)
        for n in range(1, 301)
    ]
    standing = replace(STANDING, proofs={one.operation_id: 1 for one in seen})
    built = build(RIGHT, seen, standing, hider=Hider(()))
    assert built.facts[-1].operation == "op_300"
    assert "mind the gap" in built.notes
    assert "left out" in built.notes
    assert build(built, (), standing, hider=Hider(())).notes == built.notes

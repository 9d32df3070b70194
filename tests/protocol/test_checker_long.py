"""The checks of long runs find every fault that is planted for them, and none elsewhere."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.protocol.invariants import violations
from tests.protocol.long_runs import CHECKS
from tests.protocol.picture import (
    Asked,
    Decision,
    Edge,
    Effect,
    Operation,
    Picture,
    Run,
    Signature,
    Told,
    Waits,
)

RUN = Run(
    id="r",
    state="FAILED",
    version=9,
    fence_token=2,
    held=False,
    dated=False,
    compensating=True,
    steps=6,
    spent=8,
)
CHILD = replace(
    RUN,
    id="c",
    state="COMPLETED",
    parent="r",
    parent_operation="op_3",
    told=True,
    compensating=False,
    steps=2,
    spent=2,
)
FIRST = Operation(
    id="op_1",
    run="r",
    step=1,
    ordinal=0,
    effect_type="IDEMPOTENT_WRITE",
    status="COMMITTED",
    attempts=1,
    intent="i",
    repeats="",
    policy="require_approval",
    tool="pay",
)
SECOND = replace(FIRST, id="op_2", step=2, intent="j", policy="allow")
THIRD = replace(
    SECOND, id="op_3", step=4, intent="", tool="delegate", effect_type="TRANSACTIONAL", child="c"
)
LAST_UNDONE = replace(SECOND, id="un_2", step=5, intent="k", compensates="op_2", tool="undo")
FIRST_UNDONE = replace(SECOND, id="un_1", step=6, intent="l", compensates="op_1", tool="undo")
OPERATIONS = (FIRST, SECOND, THIRD, LAST_UNDONE, FIRST_UNDONE)


def edge(number: int, event: str, before: str, after: str, *, of: str = "", run: str = "r") -> Edge:
    return Edge(
        id=number,
        run=run,
        version=number,
        operation=of,
        event=event,
        before=before,
        after=after,
        token=1,
    )


def sent(number: int, of: str) -> tuple[Edge, ...]:
    return (
        edge(number, "INTEND", "", "PREPARED", of=of),
        edge(number + 1, "SEND", "PREPARED", "RUNNING", of=of),
        edge(number + 2, "COMMIT", "RUNNING", "COMMITTED", of=of),
    )


JOURNAL = (
    edge(1, "CREATE", "", "READY"),
    edge(2, "HOLD", "", "AWAITING_APPROVAL", of="op_1"),
    edge(3, "APPROVE", "AWAITING_APPROVAL", "PREPARED", of="op_1"),
    *sent(4, "op_1")[1:],
    *sent(10, "op_2"),
    edge(15, "CREATE", "", "READY", run="c"),
    *sent(20, "op_3"),
    edge(25, "COMPLETE", "READY", "COMPLETED", run="c"),
    edge(29, "COMPENSATE", "READY", "COMPENSATING"),
    *sent(30, "un_2"),
    *sent(40, "un_1"),
    edge(50, "FAIL", "COMPENSATING", "FAILED"),
)
SOUND = Picture(
    runs=(RUN, CHILD),
    operations=OPERATIONS,
    journal=JOURNAL,
    decisions=(
        *(Decision(run="r", step=step, kind="call_tools") for step in (1, 2, 4, 5, 6)),
        Decision(run="c", step=2, kind="finish"),
    ),
    effects=tuple(
        Effect(operation=one.id, reference=one.id) for one in OPERATIONS if one is not THIRD
    ),
    waits=(Waits(run="r", step=3, kind="signal", name="go", outcome="came"),),
    signals=(Told(run="r", name="go", event="e", step=3),),
    questions=(Asked(run="r", step=3, status="answered"),),
    signatures=(Signature(id="s", operation="op_1", status="approved", spent=True),),
)


def with_run(**changed: object) -> Picture:
    return replace(SOUND, runs=(replace(RUN, **changed), CHILD))  # type: ignore[arg-type]


def with_child(**changed: object) -> Picture:
    return replace(SOUND, runs=(RUN, replace(CHILD, **changed)))  # type: ignore[arg-type]


def with_operation(place: int, **changed: object) -> Picture:
    operations = list(OPERATIONS)
    operations[place] = replace(operations[place], **changed)  # type: ignore[arg-type]
    return replace(SOUND, operations=tuple(operations))


def waiting(kind: str, **changed: object) -> Picture:
    """The run waits for something of a kind, and nobody is due."""
    row = Waits(run="r", step=7, kind=kind, name="go", outcome="")
    return replace(with_run(state="WAITING"), waits=(*SOUND.waits, row), **changed)  # type: ignore[arg-type]


def begun(**requested: object) -> tuple[Picture, Picture]:
    """The run as a request was known, and after it sent something all the same."""
    now = with_run(compensating=False, **requested)
    cut = JOURNAL.index(sent(40, "un_1")[0])
    return now, replace(now, journal=JOURNAL[:cut])


PLANTED: dict[str, tuple[int, Callable[[], Picture]]] = {
    "two runs of one operation": (
        1,
        lambda: replace(SOUND, runs=(RUN, CHILD, replace(CHILD, id="d"))),
    ),
    "a delegation without its run": (1, lambda: with_child(parent_operation="")),
    "a run without its delegation": (1, lambda: with_operation(2, status="PREPARED")),
    "a send on no signature": (
        5,
        lambda: replace(SOUND, signatures=(replace(SOUND.signatures[0], spent=False),)),
    ),
    "a denial that was spent": (
        5,
        lambda: replace(SOUND, signatures=(replace(SOUND.signatures[0], status="denied"),)),
    ),
    "two signals for one wait": (
        6,
        lambda: replace(SOUND, signals=(*SOUND.signals, replace(SOUND.signals[0], event="f"))),
    ),
    "a signal that was delivered twice": (
        6,
        lambda: replace(SOUND, signals=(replace(SOUND.signals[0], step=4),)),
    ),
    "a signal from nobody": (6, lambda: replace(SOUND, signals=())),
    "a later signal before an earlier one": (
        6,
        lambda: replace(SOUND, signals=(Told("r", "go", "d", None), *SOUND.signals)),
    ),
    "a parent that did not wait": (7, lambda: with_child(state="READY")),
    "a wait that was left open": (
        7,
        lambda: replace(SOUND, waits=(replace(SOUND.waits[0], outcome=""),)),
    ),
    "a question that was left open": (
        7,
        lambda: replace(SOUND, questions=(replace(SOUND.questions[0], status="open"),)),
    ),
    "a request that was left open": (
        7,
        lambda: replace(
            SOUND, signatures=(*SOUND.signatures, Signature("t", "op_2", "pending", False))
        ),
    ),
    "a journal with a gap": (8, lambda: replace(SOUND, journal=(*JOURNAL[:4], *JOURNAL[5:]))),
    "a journal from nowhere": (8, lambda: replace(SOUND, journal=JOURNAL[1:])),
    "a wait for nothing": (9, lambda: with_run(state="WAITING")),
    "a wait for what is there": (
        9,
        lambda: waiting("signal", signals=(*SOUND.signals, Told("r", "go", "f", None))),
    ),
    "a wait for an answer that was given": (
        9,
        lambda: waiting("question", questions=(Asked("r", 7, "answered"),)),
    ),
    "a sleep without an end": (9, lambda: waiting("timer")),
    "a wait for runs that have ended": (9, lambda: waiting("child")),
    "a signature that nobody is asked for": (9, lambda: with_run(state="WAITING_FOR_APPROVAL")),
    "a person who is asked nothing": (9, lambda: with_run(state="WAITING_FOR_RESOLUTION")),
    "an effect in a step that was taken back": (
        10,
        lambda: replace(
            SOUND, decisions=(replace(SOUND.decisions[0], taken_back=True), *SOUND.decisions[1:])
        ),
    ),
    "an effect that was corrected twice": (
        12,
        lambda: replace(SOUND, operations=(*OPERATIONS, replace(FIRST_UNDONE, id="un_3", step=7))),
    ),
    "a correction of nothing": (12, lambda: with_operation(1, status="REJECTED")),
    "an order that is not the reverse": (
        12,
        lambda: replace(
            SOUND,
            operations=(
                *OPERATIONS[:3],
                replace(LAST_UNDONE, step=6),
                replace(FIRST_UNDONE, step=5),
            ),
        ),
    ),
    "an effect that was left over": (12, lambda: replace(SOUND, operations=OPERATIONS[:4])),
    "steps that were not counted": (13, lambda: with_run(spent=7)),
}


def test_a_sound_picture_has_no_violations() -> None:
    assert violations(SOUND, SOUND) == []


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str) -> None:
    number, plant = PLANTED[fault]
    found = violations(plant(), SOUND)
    assert any(what.startswith(f"{number}: ") for what in found), found


@pytest.mark.parametrize("request_", [{"paused": "asked for"}, {"cancelled": True}])
def test_what_begins_after_a_request_is_found(request_: dict[str, object]) -> None:
    now, before = begun(**request_)
    assert any(what.startswith("11: ") for what in violations(now, before))
    assert not any(what.startswith("11: ") for what in violations(now, now))


def test_every_check_has_a_planted_fault() -> None:
    assert {number for number, _ in PLANTED.values()} | {11} == set(CHECKS)

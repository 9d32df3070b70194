"""The checker finds every fault that is planted for it, and none in a sound picture."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.protocol.invariants import CHECKS, violations
from tests.protocol.picture import Decision, Edge, Effect, Operation, Picture, Run, Seen

RUN = Run(id="r", state="COMPLETED", version=4, fence_token=2, held=False, dated=False)
REFUND = Operation(
    id="op_1",
    run="r",
    step=1,
    ordinal=0,
    effect_type="NON_IDEMPOTENT_WRITE",
    status="COMMITTED",
    attempts=1,
    intent="i",
    repeats="",
    policy="allow",
)
AGAIN = replace(REFUND, id="op_2", step=2, attempts=0, repeats="op_1", policy="replay")


def edge(number: int, event: str, before: str, after: str, *, operation: str = "") -> Edge:
    return Edge(
        id=number,
        run="r",
        version=number,
        operation=operation,
        event=event,
        before=before,
        after=after,
        token=1,
    )


JOURNAL = (
    edge(1, "CREATE", "", "READY"),
    edge(2, "INTEND", "", "PREPARED", operation="op_1"),
    edge(3, "SEND", "PREPARED", "RUNNING", operation="op_1"),
    edge(4, "COMMIT", "RUNNING", "COMMITTED", operation="op_1"),
    edge(5, "INTEND", "", "PREPARED", operation="op_2"),
    edge(6, "REPLAY", "PREPARED", "COMMITTED", operation="op_2"),
    edge(7, "COMPLETE", "READY", "COMPLETED"),
)
SOUND = Picture(
    runs=(RUN,),
    operations=(REFUND, AGAIN),
    journal=JOURNAL,
    evidence=(Seen(id=1, operation="op_1", source="worker", verdict="committed", attempt=1),),
    decisions=(
        Decision(run="r", step=1, kind="call_tools"),
        Decision(run="r", step=2, kind="call_tools"),
        Decision(run="r", step=3, kind="finish"),
    ),
    effects=(Effect(operation="op_1", reference="re_1"),),
)


def with_operation(**changed: object) -> Picture:
    return replace(SOUND, operations=(replace(REFUND, **changed), AGAIN))  # type: ignore[arg-type]


def with_run(**changed: object) -> Picture:
    return replace(SOUND, runs=(replace(RUN, **changed),))  # type: ignore[arg-type]


def with_edge(place: int, **changed: object) -> Picture:
    edges = list(JOURNAL)
    edges[place] = replace(edges[place], **changed)  # type: ignore[arg-type]
    return replace(SOUND, journal=tuple(edges))


def sent_again(effect_type: str, *, negatives: int, unsent: int = 0) -> Picture:
    """A second send after so many look-ups, and after word that one of the sends never left."""
    lost = edge(4, "LOSE_OUTCOME", "RUNNING", "UNKNOWN", operation="op_1")
    again = edge(5, "SEND_AGAIN", "UNKNOWN", "RUNNING", operation="op_1")
    done = edge(6, "COMMIT", "RUNNING", "COMMITTED", operation="op_1")
    looked = tuple(
        Seen(id=9 + n, operation="op_1", source="look_up", verdict="not_found", attempt=1)
        for n in range(negatives)
    )
    said = Seen(id=20, operation="op_1", source="stale_worker", verdict="not_sent", attempt=unsent)
    told = (said,) if unsent else ()
    return replace(
        SOUND,
        operations=(replace(REFUND, effect_type=effect_type, attempts=2),),
        journal=(*JOURNAL[:3], lost, again, done, replace(JOURNAL[6], id=9, version=9)),
        evidence=(*SOUND.evidence, *looked, *told),
    )


PLANTED: dict[str, tuple[int, Callable[[], Picture]]] = {
    "an action with two ids": (
        1,
        lambda: replace(SOUND, operations=(REFUND, AGAIN, replace(REFUND, id="op_9"))),
    ),
    "an effect that nobody intended": (
        1,
        lambda: replace(SOUND, effects=(*SOUND.effects, Effect(operation="op_x", reference="x"))),
    ),
    "an id that changed": (1, lambda: replace(SOUND, operations=(AGAIN,))),
    "a token that shrank": (2, lambda: with_edge(1, token=2)),
    "a token from nowhere": (2, lambda: with_edge(6, token=7)),
    "two holders of one version": (2, lambda: with_edge(6, version=6, token=2)),
    "an effect without a send": (
        3,
        lambda: replace(SOUND, journal=tuple(one for one in JOURNAL if one.event != "SEND")),
    ),
    "a commit without an effect": (3, lambda: replace(SOUND, effects=())),
    "an unknown effect of a run that counts as certain": (
        3,
        lambda: with_operation(status="UNKNOWN"),
    ),
    "a run that counts as uncertain, and knows": (3, lambda: with_run(state="TOOL_STATUS_UNKNOWN")),
    "an effect that counts as never sent": (3, lambda: with_operation(status="PREPARED")),
    "a repeat after two look-ups": (
        4,
        lambda: sent_again("NON_IDEMPOTENT_WRITE", negatives=2),
    ),
    "a repeat because the repeat did not leave": (
        4,
        lambda: sent_again("NON_IDEMPOTENT_WRITE", negatives=2, unsent=2),
    ),
    "a repeat of what cannot be undone": (4, lambda: sent_again("IRREVERSIBLE", negatives=5)),
    "two sends in a row": (4, lambda: with_edge(3, event="SEND")),
    "a send without its signature": (5, lambda: with_operation(policy="require_approval")),
    "a send that policy refused": (5, lambda: with_operation(policy="refuse")),
    "two decisions for a step": (
        6,
        lambda: replace(SOUND, decisions=(*SOUND.decisions, SOUND.decisions[0])),
    ),
    "a decision that was replaced": (
        6,
        lambda: replace(
            SOUND, decisions=(Decision(run="r", step=1, kind="fail"), *SOUND.decisions[1:])
        ),
    ),
    "an operation that nobody decided": (
        6,
        lambda: replace(SOUND, decisions=SOUND.decisions[1:]),
    ),
    "a completion by nobody's decision": (
        7,
        lambda: replace(SOUND, decisions=SOUND.decisions[:2]),
    ),
    "an end with an open operation": (7, lambda: with_operation(status="UNKNOWN")),
    "a journal row that went missing": (8, lambda: replace(SOUND, journal=JOURNAL[1:])),
    "a state that no row explains": (8, lambda: with_run(state="READY")),
    "a status that no row explains": (8, lambda: with_operation(status="REJECTED")),
    "evidence that was rewritten": (
        8,
        lambda: replace(SOUND, evidence=(replace(SOUND.evidence[0], verdict="unknown"),)),
    ),
    "a run that nobody moves": (9, lambda: with_run(state="READY")),
    "a second effect in silence": (
        10,
        lambda: replace(
            SOUND, effects=(*SOUND.effects, Effect(operation="op_1", reference="re_2"))
        ),
    ),
    "a rejection with an effect": (10, lambda: with_operation(status="REJECTED")),
    "an intent that was carried out twice": (
        10,
        lambda: replace(
            SOUND, effects=(*SOUND.effects, Effect(operation="op_2", reference="re_2"))
        ),
    ),
    "a repeat that was sent": (
        10,
        lambda: replace(SOUND, operations=(REFUND, replace(AGAIN, attempts=1))),
    ),
}


def test_a_sound_picture_has_no_violations() -> None:
    assert violations(SOUND, SOUND) == []
    assert violations(sent_again("NON_IDEMPOTENT_WRITE", negatives=3)) == []
    assert violations(sent_again("NON_IDEMPOTENT_WRITE", negatives=1, unsent=1)) == []
    assert violations(sent_again("IDEMPOTENT_WRITE", negatives=0)) == []


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str) -> None:
    number, plant = PLANTED[fault]
    found = violations(plant(), SOUND)
    assert any(what.startswith(f"{number}: ") for what in found), found


def test_every_invariant_has_a_planted_fault() -> None:
    assert {number for number, _ in PLANTED.values()} == set(CHECKS) == set(range(1, 11))

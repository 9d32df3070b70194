"""Any program, under any sequence of faults, deaths, requests and people, keeps the invariants.

The told lives take each of the rare ways, whatever the machine's speed; Hypothesis tells the
others. What may happen, and when it is checked, is in `lives.py`.

For a long search: `AGENTOPS_LIVES=2000 python -m pytest tests/protocol/test_programs.py -s`.
"""

from collections import Counter
from operator import methodcaller

import pytest

from runs.events import Name
from tests.protocol.lives import Life
from tests.protocol.programs import Program
from tests.protocol.searching import LIVES, search

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(LIVES * 30 or 300)]

EXAMPLES = 12


def start(*steps: object, **options: object) -> methodcaller:
    return methodcaller("start", Program(steps=steps, **options))  # type: ignore[arg-type]


def do(name: str, *given: object, **named: object) -> methodcaller:
    return methodcaller(name, *given, **named)


def dies(at: Name, *, nth: int) -> methodcaller:
    return do("die", [], at, nth, True)


WORK = do("work")
CHILD = Program(("keyed 2",))
SORRY = Program(("keyed 1", "unkeyed 2"), end="fail", compensates=True)

# (what happens, the edges that it cannot but take)
TOLD = {
    "a sleep, and calls beside each other": (
        [start("sleep", "keyed 1 + unkeyed 1 + read 1"), WORK, WORK],
        ["WAIT", "WAKE", "COMPLETE"],
    ),
    "a signal comes early, and twice": (
        [start("wait for go", "wait for go"), do("signal", 0), do("signal", 0), WORK, WORK],
        ["WAIT", "WAKE", "COMPLETE"],
    ),
    "signals come while it waits, one of them for nobody": (
        [start("wait for go"), WORK, do("signal", 0, "stop"), WORK, do("signal", 0), WORK],
        ["WAIT", "WAKE", "COMPLETE"],
    ),
    "nobody signals or answers in time": (
        [start("wait for go in time", "ask in time"), WORK, WORK, WORK],
        ["WAIT", "WAKE", "COMPLETE"],
    ),
    "a person answers": ([start("ask"), WORK, do("answer")], ["WAIT", "WAKE", "COMPLETE"]),
    "a cancel ends the wait for an answer": (
        [start("ask"), WORK, do("cancel", 0), WORK],
        ["WAIT", "CANCEL"],
    ),
    "a signature is denied": (
        [start("signed 1"), WORK, do("sign", "deny"), WORK],
        ["HOLD", "DENY"],
    ),
    "nobody signs for a day": ([start("signed 1"), WORK, do("wait", 30.0)], ["HOLD", "EXPIRE"]),
    "a signature, and a worker that dies with its send": (
        [start("signed 1"), WORK, do("sign"), dies(Name.CALL_DONE, nth=1)],
        ["HOLD", "APPROVE", "TAKE_OVER", "COMPLETE"],
    ),
    "it is paused with a call to be sent, and resumed": (
        [start("signed 1"), WORK, do("sign"), do("pause", 0), WORK, do("resume", 0), WORK],
        ["HOLD", "RESUME", "SEND"],
    ),
    "it needs more than its budget": (
        [start("keyed 1", "keyed 2", "read 1", most_steps=2), WORK, do("resume", 0)],
        ["RESUME", "COMPLETE"],
    ),
    "it only repeats itself": (
        [start("read 1", "read 1", "read 1", repeats_allowed=2), WORK, WORK],
        ["RESUME", "COMPLETE"],
    ),
    "two children, one of which fails": (
        [start((CHILD, Program(("keyed 1",), end="fail"))), WORK, WORK, WORK],
        ["WAIT", "WAKE", "REJECT", "COMPLETE"],
    ),
    **{
        f"a worker dies as a child starts, at its commit {nth}": (
            [start((CHILD,)), dies(Name.COMMIT_STARTING, nth=nth), WORK],
            ["WAIT", "WAKE", "COMPLETE"],
        )
        for nth in (2, 3, 4)
    },
    "a worker dies before a parent hears of its child": (
        [start((CHILD,)), WORK, dies(Name.COMMIT_DONE, nth=3), dies(Name.COMMIT_DONE, nth=1)],
        ["WAIT", "WAKE", "COMPLETE"],
    ),
    "a cancel reaches the children": (
        [start((Program(("wait for go",)), CHILD)), WORK, WORK, do("cancel", 0), WORK, WORK],
        ["WAIT", "CANCEL"],
    ),
    "a cancel meets a child that corrects what it did": (
        [start((SORRY,)), WORK, WORK, do("cancel", 0), WORK, WORK],
        ["COMPENSATE", "CANCEL"],
    ),
    "what it did is corrected, newest first": (
        [start("keyed 1 + unkeyed 1", (CHILD,), "again 1", end="fail", compensates=True), WORK],
        ["COMPENSATE", "FAIL"],
    ),
    "its own decision has it corrected, with a signature": (
        [start("signed 1", "keyed 1", end="compensate"), WORK, do("sign"), WORK, WORK, WORK],
        ["COMPENSATE", "HOLD", "APPROVE", "FAIL"],
    ),
    "only a person can correct it": (
        [start("keyed 1", "final 1", end="fail", compensates=True), WORK, WORK],
        ["COMPENSATE", "RESUME", "FAIL"],
    ),
    "a compensation is refused, and a person lets it try again": (
        [start("keyed 1", end="fail", compensates=True), WORK, do("work", ["rejected"]), WORK],
        ["COMPENSATE", "REJECT", "RESUME", "FAIL"],
    ),
    "the answer to a compensation is lost": (
        [start("unkeyed 1", end="fail", compensates=True), WORK, do("work", ["lost"])],
        ["COMPENSATE", "LOSE_OUTCOME", "FAIL"],
    ),
    "it is cancelled, and corrected first": (
        [start("keyed 1", "wait for go"), WORK, do("cancel_and_correct", 0), WORK],
        ["WAIT", "COMPENSATE", "CANCEL"],
    ),
    "it is corrected after its end": (
        [start("keyed 1", (CHILD,)), WORK, WORK, WORK, do("compensate", 0), WORK],
        ["COMPLETE", "COMPENSATE", "CANCEL"],
    ),
    "it is corrected while its child is": (
        [start((CHILD,)), WORK, WORK, WORK, do("compensate", 1), do("compensate", 0), WORK, WORK],
        ["COMPLETE", "COMPENSATE", "CANCEL"],
    ),
    "it fails after an effect, and is tried again": (
        [start("again 1", "read 1", end="fail"), WORK, do("retry", 0), WORK],
        ["FAIL", "RETRY", "COMPLETE"],
    ),
    "a fork goes on from what was done, and repeats nothing": (
        [start("keyed 1", "keyed 1 + keyed 2", "wait for go"), WORK, do("fork", 0, 1), WORK],
        ["REPLAY", "COMPLETE"],
    ),
    "a fork has the same done by others again": (
        [start("sleep", (CHILD,)), WORK, WORK, WORK, WORK, do("fork", 0, 1), WORK, WORK],
        ["REPLAY", "COMPLETE"],
    ),
    "a stopped worker goes on after another": (
        [start("unkeyed 1", "keyed 1"), do("stand_still", ["lost"], Name.CALL_DONE, 1), WORK],
        ["TAKE_OVER", "COMPLETE"],
    ),
}


@pytest.mark.parametrize("title", TOLD)
def test_a_told_life_breaks_no_invariant(title: str) -> None:
    moves, edges = TOLD[title]
    life = Life()
    try:
        for move in moves:
            move(life)
            life.nothing_is_violated()
    finally:
        life.teardown()
    assert set(life.taken) >= set(edges), Counter(life.taken)


def test_no_life_breaks_an_invariant() -> None:
    taken: Counter[str] = Counter()

    class Told(Life):
        def teardown(self) -> None:
            super().teardown()
            taken.update(self.taken)

    search(Told, examples=EXAMPLES)
    print(taken)
    assert taken.keys() >= {"SEND", "COMMIT", "WAIT"}, taken

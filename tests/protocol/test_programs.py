"""Any program, under any sequence of faults, deaths, requests and people, keeps the invariants.

The told lives take each of the rare ways, whatever the machine's speed; Hypothesis tells the
others. What may happen, and when it is checked, is in `lives.py`.

For a long search: `AGENTOPS_LIVES=2000 python -m pytest tests/protocol/test_programs.py -s`.
"""

import os
from collections import Counter
from operator import methodcaller

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from runs.events import Name
from tests.protocol.lives import Life
from tests.protocol.programs import Program

LIVES = int(os.environ.get("AGENTOPS_LIVES", "0"))

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(LIVES * 30 or 300)]

EXAMPLES = 20
MOVES = 10


def start(*steps: object, **options: object) -> methodcaller:
    return methodcaller("start", Program(steps=steps, **options))  # type: ignore[arg-type]


def do(name: str, *given: object, **named: object) -> methodcaller:
    return methodcaller(name, *given, **named)


WORK = do("work")
CHILD = Program(("keyed 2",))
UNDONE = "OPEN_STEP", "COMPENSATE", "FAIL"

# (what happens, the edges that it cannot but take)
TOLD = {
    "a sleep and calls beside each other": (
        [start("sleep", "keyed 1 + unkeyed 1 + read 1"), WORK, WORK],
        ["WAIT", "WAKE", "COMPLETE"],
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

    run_state_machine_as_test(
        Told,
        settings=settings(
            max_examples=LIVES or EXAMPLES,
            stateful_step_count=MOVES,
            deadline=None,
            derandomize=not LIVES,
            # Shrinking takes many minutes: only who searches for long has them.
            phases=[Phase.generate, Phase.shrink] if LIVES else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(taken)
    assert taken.keys() >= {"SEND", "COMMIT", "WAIT"}, taken

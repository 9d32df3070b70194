"""Runs whose llm answers badly, late, not at all, or hands off untruly keep the invariants.

Told lives meet each fault once; Hypothesis mixes them with deaths, requests and people.

For a long search: `AGENTOPS_LIVES=2000 python -m pytest tests/protocol/test_llm_programs.py -s`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Literal

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from runs.events import Name
from runs.models import Handoff, LlmRequest
from runs.undecided import MAX_FAILURES, MOST_TRIES
from tests.protocol.lives import Life
from tests.protocol.llms import AWAY, INVALID, SAID, UNUSABLE
from tests.protocol.programs import Program, programs
from tests.protocol.searching import LIVES, search

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(LIVES * 30 or 300)]

EXAMPLES = 8
FAULTS = st.lists(st.sampled_from(SAID), min_size=1, max_size=4)


class AskingLife(Life):
    """As any life, of runs that ask an llm, which does what is told of it next."""

    @initialize(program=programs(asks=True), faults=FAULTS)
    def start_first(self, program: Program, faults: Sequence[str]) -> None:
        self.start(program)
        self.arm(faults)

    @rule(faults=FAULTS)
    def work_so(self, faults: Sequence[str]) -> None:
        self.arm(faults)
        self.work()

    def arm(self, faults: Sequence[str]) -> None:
        """What the next requests meet, whichever run asks."""
        self.llm.faults.extend(faults)


Move = Callable[[AskingLife], None]


def start(*steps: str, end: Literal["finish", "fail", "compensate"] = "finish") -> Move:
    return methodcaller("start", Program(steps=steps, end=end, asks=True))


def so(*faults: str) -> Move:
    return methodcaller("arm", faults)


def dies(at: Name, *, nth: int = 1) -> Move:
    return _is_replaced(methodcaller("die", [], at, nth, True))


def is_stopped(at: Name, *, nth: int) -> Move:
    return _is_replaced(methodcaller("stand_still", [], at, nth))


def _is_replaced(move: Move) -> Move:
    def replace_worker(life: AskingLife) -> None:
        worker = life.worker
        move(life)
        assert life.worker != worker, "it never came to that"

    return replace_worker


WORK = methodcaller("work")
ONE = start("keyed 1")
# More than a window holds, one call after the other, so that its commits can be counted.
STEPS = 8
FULL = start(*["again 1", "again 2"] * (STEPS // 2))

# (what happens, the edges that it cannot but take, the outcomes of its requests)
TOLD = {
    **{
        f"an answer is no good: {fault}": (
            [ONE, so(fault), WORK, WORK],
            ["DECIDER_FAILED", "COMMIT", "COMPLETE"],
            {"unusable", "used"},
        )
        for fault in UNUSABLE
    },
    **{
        f"neither the llm nor its fallback answers: {fault}": (
            [ONE, so(fault, fault), WORK, WORK, WORK],
            ["DECIDER_FAILED", "COMMIT", "COMPLETE"],
            {"failed", "used"},
        )
        for fault in AWAY
    },
    "the fallback answers": ([ONE, so("overloaded"), WORK], ["COMMIT"], {"failed", "used"}),
    "the fallback answers what is no good": (
        [ONE, so("silent", "malformed"), WORK, WORK],
        ["DECIDER_FAILED", "COMMIT"],
        {"failed", "unusable", "used"},
    ),
    **{
        f"a call that cannot be made: {fault}": (
            [start("keyed 1", "keyed 2"), so(fault), WORK],
            ["COMMIT", "COMPLETE"],
            {"used"},
        )
        for fault in INVALID
    },
    "no answer is ever any good": (
        [ONE, so(*["empty"] * MAX_FAILURES), *[WORK] * MAX_FAILURES],
        ["DECIDER_FAILED", "FAIL"],
        {"unusable"},
    ),
    "nobody answers for hours": (
        [ONE, so(*["overloaded"] * 2 * MOST_TRIES), *[WORK] * (MOST_TRIES + 1)],
        ["DECIDER_FAILED", "RESUME", "COMPLETE"],
        {"failed", "used"},
    ),
    "it waits, asks and gives up": (
        [start("sleep", "wait for go in time", "ask", end="fail"), *[WORK] * 3],
        ["WAIT", "WAKE", "FAIL"],
        {"used"},
    ),
    "it takes back what it did": (
        [start("keyed 1", end="compensate"), WORK, WORK],
        ["COMPENSATE", "FAIL"],
        {"used"},
    ),
    "a worker dies with a bad answer in its hands": (
        [ONE, so("empty"), dies(Name.COMMIT_STARTING, nth=2), WORK, WORK],
        ["COMMIT", "COMPLETE"],
        {"used"},
    ),
    "a worker dies after a bad answer": (
        [ONE, so("empty"), dies(Name.COMMIT_DONE, nth=2), WORK],
        ["DECIDER_FAILED", "COMPLETE"],
        {"unusable", "used"},
    ),
    "a worker dies with a decision in its hands": (
        [ONE, dies(Name.DECIDER_DONE), WORK],
        ["COMMIT", "COMPLETE"],
        {"used"},
    ),
}
# It hands off to end, after a decision and two commits for each of its steps.
LATER = [""] * STEPS
HANDING = 2 * STEPS + 2
# (what happens, who wrote the handoffs that there are then, how many of them were lost)
HANDED = {
    "the window is full": ([FULL, WORK], ["function:first"], 0),
    "it is untrue at first": ([FULL, so(*LATER, "untrue handoff"), WORK], ["function:first"], 0),
    "it is never true": ([FULL, so(*LATER, *["untrue handoff"] * 2), WORK], ["rows"], 0),
    "the fallback writes it": ([FULL, so(*LATER, "overloaded"), WORK], ["function:second"], 0),
    "nobody writes it at first": (
        [FULL, so(*LATER, *["silent"] * 2), WORK, WORK],
        ["function:first"],
        0,
    ),
    "too much is shown to write it": ([FULL, so(*LATER, "too long"), WORK], ["rows"], 0),
    "a worker dies before it is recorded": (
        [FULL, dies(Name.COMMIT_STARTING, nth=HANDING), WORK],
        ["function:first"],
        1,
    ),
    "a worker dies after it is recorded": (
        [FULL, dies(Name.COMMIT_DONE, nth=HANDING), WORK],
        ["function:first"],
        0,
    ),
    "a worker is stopped before it is recorded": (
        [FULL, is_stopped(Name.COMMIT_STARTING, nth=HANDING), WORK],
        ["function:first"],
        1,
    ),
}


@pytest.mark.parametrize("title", TOLD)
def test_a_told_life_of_an_llm_breaks_no_invariant(title: str) -> None:
    moves, edges, outcomes = TOLD[title]
    life = _tell(moves)
    assert set(life.taken) >= set(edges), Counter(life.taken)
    asked = LlmRequest.objects.filter(run__in=life._ids())
    assert set(asked.values_list("outcome", flat=True)) == outcomes


@pytest.mark.parametrize("title", HANDED)
def test_a_told_life_with_a_handoff_breaks_no_invariant(title: str) -> None:
    moves, writers, lost = HANDED[title]
    life = _tell(moves)
    handed = Handoff.objects.filter(run__in=life._ids()).order_by("id")
    assert list(handed.values_list("written_by", flat=True)) == writers
    recorded = LlmRequest.objects.filter(run__in=life._ids(), purpose="handoff")
    assert life.llm.asked["handoff"] == recorded.count() + lost


def _tell(moves: Sequence[Move]) -> AskingLife:
    life = AskingLife()
    try:
        for move in moves:
            move(life)
            life.nothing_is_violated()
    finally:
        life.teardown()
    return life


def test_no_life_of_an_llm_breaks_an_invariant() -> None:
    outcomes: Counter[str] = Counter()

    class Told(AskingLife):
        def teardown(self) -> None:
            super().teardown()
            asked = LlmRequest.objects.filter(run__in=self._ids())
            outcomes.update(asked.values_list("outcome", flat=True))
            outcomes.update(asked.filter(purpose="handoff").values_list("purpose", flat=True))

    search(Told, examples=EXAMPLES)
    print(outcomes)
    assert outcomes.keys() >= {"used", "unusable", "failed"}

"""Any sequence of faults, deaths, cancels and people keeps the ten invariants.

The told stories take each of the rare edges, whatever the machine's speed; Hypothesis
tells the others. What may happen at all, and when it is checked, is in `story.py`.
"""

from collections import Counter
from datetime import timedelta
from operator import methodcaller

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from runs.events import Name
from tests.database.kit import ON_DATABASE
from tests.protocol.story import Story

pytestmark = [ON_DATABASE, pytest.mark.timeout(300)]

LONGEST_STORY = 8


class PatientStory(Story):
    """Nobody becomes impatient while a slow machine settles "not found"."""

    objective = timedelta(minutes=10)


def start(*kinds: str) -> methodcaller:
    """A run of one step, which calls these tools with the same arguments."""
    return methodcaller("start", [[(kind, 1) for kind in kinds]])


def work(*answers: str, look_ups: tuple[str, ...] = ()) -> methodcaller:
    return methodcaller("work", list(answers), list(look_ups))


def die(answer: str, *, at: Name, is_known: bool) -> methodcaller:
    return methodcaller("die", [answer], at, 1, is_known)


CANCEL = methodcaller("cancel", 0)
ASK_PERSON = methodcaller("ask_person", "not_committed")
SOUND = "SEND", "COMMIT", "COMPLETE"

# (what happens, the edges that it cannot but take)
TOLD = {
    "one intent twice in a step": ([start("keyed", "keyed"), work()], ["REPLAY", *SOUND]),
    "nothing leaves at first": ([start("unkeyed"), work("not_sent")], ["NOT_SENT", *SOUND]),
    "the provider refuses": ([start("unkeyed"), work("rejected")], ["REJECT"]),
    "a cancel before the first step": ([start("keyed"), CANCEL], ["CANCEL"]),
    "a cancel with an unknown outcome": (
        [start("final"), work("lost"), work(look_ups=("cannot say",)), CANCEL],
        ["LOSE_OUTCOME", "NEED_PERSON", "CANCEL"],
    ),
    "a request is lost under a key": (
        [start("keyed"), work("nothing")],
        ["LOSE_OUTCOME", "SEND_AGAIN", *SOUND],
    ),
    "an answer is lost under a key": (
        [start("keyed"), work("lost"), work(look_ups=("cannot say",))],
        ["LOSE_OUTCOME", "SEND_AGAIN", *SOUND],
    ),
    "a request is lost without a key": (
        [start("unkeyed"), work("nothing")],
        ["LOSE_OUTCOME", "SEND_AGAIN", *SOUND],
    ),
    "a request lands late": ([start("unkeyed"), work("late")], ["LOSE_OUTCOME", *SOUND]),
    "the answer to a final call is lost": (
        [start("final"), work("lost"), work(look_ups=("cannot say",))],
        ["LOSE_OUTCOME", "NEED_PERSON", *SOUND],
    ),
    "a final call is lost, and a person says so": (
        [start("final"), work("nothing"), work(), ASK_PERSON],
        ["LOSE_OUTCOME", "NEED_PERSON", "NOT_SENT", *SOUND],
    ),
    "a sender dies after its call": (
        [start("keyed"), die("ok", at=Name.CALL_DONE, is_known=True)],
        ["TAKE_OVER", *SOUND],
    ),
    "a sender dies before its call": (
        [start("unkeyed"), die("ok", at=Name.CALL_STARTING, is_known=True)],
        ["TAKE_OVER", "SEND_AGAIN", *SOUND],
    ),
}
TOGETHER = {
    "both answers of a batch are lost": (
        [start("keyed", "unkeyed"), work("lost")],
        ["LOSE_OUTCOME", *SOUND],
    ),
    "one of a batch never leaves, one is lost, and the run is cancelled": (
        [start("keyed", "unkeyed"), methodcaller("work_unequally"), CANCEL],
        ["LOSE_OUTCOME", "NOT_SENT", "CANCEL"],
    ),
    "the sender of a batch dies after the first answer": (
        [start("keyed", "unkeyed"), die("ok", at=Name.CALL_DONE, is_known=True)],
        ["TAKE_OVER", *SOUND],
    ),
    "the sender of a batch dies before any of it leaves": (
        [start("keyed", "unkeyed"), die("ok", at=Name.CALL_STARTING, is_known=True)],
        ["TAKE_OVER", "SEND_AGAIN", *SOUND],
    ),
}
IMPATIENT = {
    "a sender dies and nobody notices": (
        [start("unkeyed"), die("nothing", at=Name.CALL_DONE, is_known=False)],
        ["TAKE_OVER", "NEED_PERSON"],
    ),
}
RICH = {
    "TAKE_OVER",
    "LOSE_OUTCOME",
    "SEND_AGAIN",
    "NOT_SENT",
    "REJECT",
    "REPLAY",
    "NEED_PERSON",
    "CANCEL",
}


@pytest.mark.parametrize("title", [*TOLD, *TOGETHER, *IMPATIENT])
def test_a_told_story_breaks_no_invariant(title: str) -> None:
    moves, edges = (TOLD | TOGETHER | IMPATIENT)[title]
    story = Story() if title in IMPATIENT else PatientStory()
    try:
        for move in moves:
            move(story)
            story.nothing_is_violated()
    finally:
        story.teardown()
    assert set(story.taken) >= set(edges), Counter(story.taken)


def test_the_told_stories_take_every_rare_edge() -> None:
    assert {edge for _, edges in TOLD.values() for edge in edges} >= RICH


def test_no_story_breaks_an_invariant() -> None:
    taken: Counter[str] = Counter()

    class Told(Story):
        def teardown(self) -> None:
            super().teardown()
            taken.update(self.taken)

    run_state_machine_as_test(
        Told,
        settings=settings(
            max_examples=15,
            stateful_step_count=LONGEST_STORY,
            deadline=None,
            derandomize=True,
            # A story takes a second or more: shrinking one would take many minutes.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(taken)
    # The least that makes them stories; what is rare is told above.
    assert taken.keys() >= {"SEND", "COMMIT"}, taken

"""The circuit breaker: a run that only repeats itself, or that keeps failing, waits for a person.

Guarantees: a step that made the same calls and got the same answers as the one before, so
often in a row as its agent allows, is the last one until somebody resumes the run; a step that
so many workers in a row did not get through is parked with the reason. Waiting in between makes
a repetition deliberate: polling is no loop.

Does not judge whether the repetition makes sense.
"""

from typing import Final

from runs.agents import Agent
from runs.work import Work
from tools.canonical import digest

# In a row and without any other end: beyond this the step itself is at fault, or what it runs on.
MOST_LOST_ATTEMPTS: Final = 10


def note_action(work: Work) -> None:
    """Count the step that ends now, if its calls and their answers are those of the last one."""
    action = digest(
        [
            [one.tool, one.arguments_digest, one.status, one.result, one.error]
            for one in work.operations
        ]
    )
    repeats = work.repeats + 1 if action == work.newest_action else 0
    if action != work.newest_action:
        work.newest_action = work.change.run["newest_action"] = action
    _set_repeats(work, repeats)


def forget_actions(work: Work) -> None:
    """A wait came between: what comes next is no repetition."""
    if work.newest_action:
        work.newest_action = work.change.run["newest_action"] = ""
    _set_repeats(work, 0)


def trip_loop(work: Work, agent: Agent) -> bool:
    """Plan a pause if the run only repeats itself; True if it does."""
    if work.repeats + 1 < agent.repeats_allowed:
        return False
    times = work.repeats + 1
    forget_actions(work)
    work.pause(f"loop: the same calls came to the same {times} times in a row")
    return True


def trip_poison(work: Work) -> bool:
    """Plan a pause if this step keeps losing its workers; True if it does.

    The attempt that finds this out is parked and not lost, so whoever resumes the run gives it
    as many again.
    """
    lost = max(work.lost_attempts, work.setbacks)
    if lost < MOST_LOST_ATTEMPTS:
        return False
    if work.setbacks:
        # Whoever resumes the run gives it as many again.
        work.setbacks = work.change.run["setbacks"] = 0
    work.pause(f"given up: {lost} attempts in a row at step {work.step_number} did not come back")
    return True


def _set_repeats(work: Work, repeats: int) -> None:
    if repeats != work.repeats:
        work.repeats = work.change.run["repeats"] = repeats

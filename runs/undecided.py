"""What follows where a decider was asked and no decision came.

Guarantees: a decider that answers what cannot be used is asked again a bounded number of times,
and then its run fails; one that nobody can reach just now is waited for, longer each time, and
then its run is paused: an outage fails no run.

Does not ask anybody: whoever claims the run when it is due does.
"""

from typing import Final

from runs.endings import fail
from runs.errors import LlmUnavailable, UnusableAnswer
from runs.models import TEXT_LIMIT, StepAttempt
from runs.state import RunEvent
from runs.work import Work
from tools.outcome import describe
from tools.redaction import bound_text

# Decisions in a row that could not be used, or tries that brought none.
MAX_FAILURES: Final = 3
# Whoever does not answer is asked again after 2, 4, 8, … seconds, and 15 minutes at the most;
# after so many tries in one step, which take almost four hours, a person is asked. Of what only a
# person can mend, after a minute: another worker may have the key that is missing here.
FIRST_WAIT: Final = 2.0
LONGEST_WAIT: Final = 900.0
MOST_TRIES: Final = 24
FEW_TRIES: Final = 6


def follow_failure(work: Work, error: Exception) -> None:
    """Give the run back to be decided later, or end it."""
    if isinstance(error, LlmUnavailable):
        return _wait_for_llm(work, error)
    reason = bound_text(describe(error), TEXT_LIMIT)
    count_failures(work, work.failures + 1)
    if work.failures >= MAX_FAILURES:
        return fail(work, f"no decision in {work.failures} tries; the last: {reason}")
    work.move(RunEvent.DECIDER_FAILED, reason)
    # What was wrong with an answer is told with the next question, so that can be put at once.
    wake_in = 0.0 if isinstance(error, UnusableAnswer) else float(2**work.failures)
    work.release(wake_in=wake_in, attempt_outcome="failed")


def count_failures(work: Work, failures: int) -> None:
    if failures != work.failures:
        work.failures = failures
        work.change.run["failures"] = failures


def _wait_for_llm(work: Work, error: LlmUnavailable) -> None:
    """Nothing was decided badly: whoever is away is asked again later."""
    failed = StepAttempt.objects.filter(
        step_id=work.open_step_id, outcome=StepAttempt.Outcome.FAILED
    )
    tries = failed.count() + 1
    work.move(RunEvent.DECIDER_FAILED, bound_text(str(error), TEXT_LIMIT))
    grown = min(FIRST_WAIT * 2 ** min(tries - 1, 10), LONGEST_WAIT)
    # A provider says when it may be asked again at the earliest.
    wake_in: float | None = max(error.retry_in or 0.0, grown)
    if tries % (FEW_TRIES if error.needs_person else MOST_TRIES) == 0:
        # Again after as many more, once somebody has resumed it.
        work.pause(f"no llm answered in {tries} tries; the last: {error}")
        wake_in = None
    work.release(wake_in=wake_in, attempt_outcome="failed")

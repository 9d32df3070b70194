"""What is counted, by name: the rows of `Rollup`, the counters at `/metrics`, the SLO figures.

Guarantees: a name says what one unit of its count is. A measure of a run stands under its agent
and version with no tool; a measure of an operation under its tool too.

Does not count: `rolling.py` does.
"""

from enum import StrEnum
from math import inf
from typing import Final


class Measure(StrEnum):
    """Counted in the slice of time in which it happened or ended."""

    # -- Of runs -----------------------------------------------------------------
    RUNS_STARTED = "runs_started"
    # How each life of a run ended: one that failed and was let go on by a person ends again.
    # Not the end of a correction that was asked for after the end, which is no second one.
    RUNS_COMPLETED = "runs_completed"
    RUNS_FAILED = "runs_failed"
    RUNS_CANCELLED = "runs_cancelled"
    # In which a person had a say: signed, changed, refused, answered, settled, steered.
    RUNS_TOUCHED = "runs_touched"
    # Of those that completed or failed, which nobody cut short: of this life alone. What it has
    # cost and used includes what its child runs did, which are counted for themselves too.
    RUN_SECONDS = "run_seconds"
    # The same without the time in which a person was waited for.
    RUN_WORKING_SECONDS = "run_working_seconds"
    RUN_COST_USD = "run_cost_usd"
    RUN_TOKENS = "run_tokens"
    # -- Of operations -----------------------------------------------------------
    # Begun; a send that did not leave the process is one too.
    OPERATIONS_SENT = "operations_sent"
    # Of these, sends of an operation that had been sent before.
    OPERATIONS_RESENT = "operations_resent"
    OPERATIONS_COMMITTED = "operations_committed"
    OPERATIONS_REJECTED = "operations_rejected"
    # Never sent: refused, denied, expired, replaced, or cancelled with its run.
    OPERATIONS_CANCELLED = "operations_cancelled"
    # The same intent, or the same call, once more: answered with what is recorded, or not done.
    REPEATS_ANSWERED = "repeats_answered"
    REPEATS_REFUSED = "repeats_refused"
    COMPENSATIONS_COMMITTED = "compensations_committed"
    COMPENSATIONS_FAILED = "compensations_failed"
    # From the first unknown outcome to the answer, and which of these came in its tool's
    # `reconcile_within`. One that does not is over its objective once: as soon as that is noticed.
    UNKNOWN_SECONDS = "unknown_seconds"
    UNKNOWN_IN_TIME = "unknown_in_time"
    UNKNOWN_OVER_OBJECTIVE = "unknown_over_objective"
    # How often each way of settling it; what remains was settled by sending it again.
    UNKNOWN_SETTLED_BY_LOOK_UP = "unknown_settled_by_look_up"
    UNKNOWN_SETTLED_BY_PERSON = "unknown_settled_by_person"
    # -- Incidents and audits ------------------------------------------------------
    DUPLICATES = "duplicates"
    LATE_COMMITS = "late_commits"
    UNAPPROVED = "unapproved"
    EFFECTS_UNACCOUNTED = "effects_unaccounted"
    EFFECTS_MISSING = "effects_missing"
    # -- People --------------------------------------------------------------------
    # Each request once: signed as it was asked, replaced by what a person proposed, refused, or
    # left alone. A proposal is a request of its own, which somebody else signs.
    APPROVALS_UNCHANGED = "approvals_unchanged"
    APPROVALS_CHANGED = "approvals_changed"
    APPROVALS_DENIED = "approvals_denied"
    APPROVALS_EXPIRED = "approvals_expired"
    # Asked for anew because what was to be sent was not what had been signed.
    APPROVALS_MISMATCHED = "approvals_mismatched"
    # Until a person decided.
    APPROVAL_SECONDS = "approval_seconds"
    QUESTIONS_ANSWERED = "questions_answered"
    # -- Workers and llms ------------------------------------------------------------
    LEASES_LOST = "leases_lost"
    LLM_REQUESTS = "llm_requests"
    # Of these: no answer, or none that can be used.
    LLM_FAILURES = "llm_failures"
    LLM_SECONDS = "llm_seconds"
    LLM_TOKENS = "llm_tokens"
    LLM_COST_USD = "llm_cost_usd"


# Of these the sum of the values is what is meant, and not how often there was one.
SUMS: Final = frozenset({Measure.RUN_TOKENS, Measure.LLM_TOKENS, Measure.LLM_COST_USD})

# Upper bounds of the buckets of a distribution. A value is counted in one bucket alone.
SECONDS: Final = (1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400, 604_800, inf)
CALL_SECONDS: Final = (0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, inf)
US_DOLLARS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, inf)
DISTRIBUTIONS: Final[dict[Measure, tuple[float, ...]]] = {
    Measure.RUN_SECONDS: SECONDS,
    Measure.RUN_WORKING_SECONDS: SECONDS,
    Measure.RUN_COST_USD: US_DOLLARS,
    Measure.UNKNOWN_SECONDS: SECONDS,
    Measure.APPROVAL_SECONDS: SECONDS,
    Measure.LLM_SECONDS: CALL_SECONDS,
}

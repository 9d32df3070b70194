"""What each measure counts, in words: the HELP texts of what comes from rollups."""

from collections.abc import Mapping
from typing import Final

from runs.slo.measures import Measure

WHAT: Final[Mapping[Measure, str]] = {
    Measure.RUNS_STARTED: "Runs that were started.",
    Measure.RUNS_COMPLETED: "Runs that completed.",
    Measure.RUNS_FAILED: "Runs that failed.",
    Measure.RUNS_CANCELLED: "Runs that were cancelled.",
    Measure.RUNS_TOUCHED: "Runs that ended after a person had had a say in them.",
    Measure.RUN_SECONDS: "From the start of a run to its end, in seconds.",
    Measure.RUN_WORKING_SECONDS: (
        "From the start of a run to its end, in seconds, without the time in which a person was "
        "waited for."
    ),
    Measure.RUN_COST_USD: "What llms cost a run, its child runs included, in US dollars.",
    Measure.RUN_TOKENS: "Tokens that runs which ended had used, their child runs included.",
    Measure.OPERATIONS_SENT: "Sends that were begun.",
    Measure.OPERATIONS_RESENT: "Sends of an operation that had been sent before.",
    Measure.OPERATIONS_COMMITTED: "Operations whose effect exists.",
    Measure.OPERATIONS_REJECTED: "Operations that were refused for good.",
    Measure.OPERATIONS_CANCELLED: "Operations that were never sent.",
    Measure.REPEATS_ANSWERED: "Repeats that were answered with what is recorded.",
    Measure.REPEATS_REFUSED: "Repeats that were not carried out.",
    Measure.COMPENSATIONS_COMMITTED: "Corrections whose effect exists.",
    Measure.COMPENSATIONS_FAILED: "Corrections that came to nothing.",
    Measure.UNKNOWN_SECONDS: "From an unknown outcome to the answer, in seconds.",
    Measure.UNKNOWN_IN_TIME: "Unknown outcomes that were settled within their tool's objective.",
    Measure.UNKNOWN_OVER_OBJECTIVE: (
        "Unknown outcomes that were not settled within their tool's objective."
    ),
    Measure.UNKNOWN_SETTLED_BY_LOOK_UP: "Unknown outcomes that the provider's answer settled.",
    Measure.UNKNOWN_SETTLED_BY_PERSON: "Unknown outcomes that a person settled.",
    Measure.DUPLICATES: "Incidents: a provider has more than one effect of one operation.",
    Measure.LATE_COMMITS: "Incidents: an effect appeared after its operation was closed.",
    Measure.UNAPPROVED: "Incidents: sent without the signature that its policy asks for.",
    Measure.EFFECTS_UNACCOUNTED: "Effects that a provider lists and that no operation asked for.",
    Measure.EFFECTS_MISSING: "Effects that are known here and that their provider does not list.",
    Measure.APPROVALS_UNCHANGED: "Requests for a signature that were signed as they were.",
    Measure.APPROVALS_CHANGED: "Requests for a signature that a person's proposal replaced.",
    Measure.APPROVALS_DENIED: "Requests for a signature that were refused.",
    Measure.APPROVALS_EXPIRED: "Requests for a signature that nobody decided in time.",
    Measure.APPROVALS_MISMATCHED: (
        "Signatures asked for anew because what was to be sent was not what had been signed."
    ),
    Measure.APPROVAL_SECONDS: "From the request for a signature to its verdict, in seconds.",
    Measure.QUESTIONS_ANSWERED: "Questions that people answered.",
    Measure.LEASES_LOST: "Executions of a step whose worker lost its lease or died.",
    Measure.LLM_REQUESTS: "Requests to an llm.",
    Measure.LLM_FAILURES: "Requests to an llm without an answer that could be used.",
    Measure.LLM_SECONDS: "From a request to an llm to its answer, in seconds.",
    Measure.LLM_TOKENS: "Tokens that llms read and wrote.",
    Measure.LLM_COST_USD: "What llms cost, in US dollars.",
}

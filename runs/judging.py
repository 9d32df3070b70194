"""What policy says of a call, by the newest policies that this run has heard of.

Guarantees: every commit of a run names the newest policy there is, and judging reads policies
anew where this process knows others; an operation remembers, while it is held in memory, under
which policies it was judged.

Does not act on the verdict: `planning.py` and `gate.py` do.
"""

from functools import partial
from typing import Final

from runs.decisions import CallTools
from runs.models import ToolOperation
from runs.windows import read_window
from runs.work import Judgement, Work
from tools.policy import (
    Circumstances,
    PolicyDecision,
    evaluate,
    find_stop,
    known_generation,
    refresh,
)
from tools.spec import ToolSpec

# The outcome of policies that holds a call.
NEEDED: Final = "require_approval"


def judge(work: Work, operation: ToolOperation, spec: ToolSpec) -> PolicyDecision:
    """What the newest policies that this run has heard of say of the operation."""
    refresh(work.policy_generation)
    generation = known_generation()
    decision = work.decision
    policy = evaluate(
        spec,
        operation.arguments,
        Circumstances(
            agent=work.agent,
            requester=work.requester,
            confidence=(
                decision.confidence_in(operation.ordinal)
                if isinstance(decision, CallTools)
                else None
            ),
            read_window=partial(read_window, work, operation),
        ),
    )
    work.judged[operation.id] = Judgement(generation=generation, counts=policy.counts)
    return policy


def adopt(operation: ToolOperation, policy: PolicyDecision) -> None:
    """Write down on the operation what was said of it."""
    operation.policy_outcome = policy.outcome
    operation.policy_rule = policy.rule
    operation.policy_version = policy.version


def find_stop_now(work: Work, spec: ToolSpec) -> str:
    """Why sending is stopped for the tool, by the newest policies; empty if it is not."""
    refresh(work.policy_generation)
    return find_stop(spec)

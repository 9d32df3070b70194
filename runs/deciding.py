"""Deciding: asking the decider, and recording its answer with what it calls for.

Guarantees: what is recorded is what will be decoded again; the first decision recorded wins; a
decider that fails or calls what cannot be called is asked again a bounded number of times.

Does not carry anything out: `engine.py` does.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from runs import deciders, decisions, events
from runs.agents import Agent
from runs.change import Change, NewDecision
from runs.context import Context
from runs.decisions import CallTools, Decision
from runs.endings import fail
from runs.intents import find_holders
from runs.lease import margin_seconds
from runs.models import TEXT_LIMIT, NeverSent
from runs.planning import plan_operations, tool_versions
from runs.state import OperationStatus, RunEvent, RunState
from runs.work import Work
from tools.canonical import check_json
from tools.execution import run_within
from tools.outcome import describe
from tools.redaction import bound_text

MAX_CALLS: Final = 32
# Decisions in a row that could not be used, or tries that brought none.
MAX_FAILURES: Final = 3
DECIDER_SECONDS: Final = 300.0


def decide(work: Work, agent: Agent) -> bool:
    """Ask the decider and plan what it said. False when the run was parked or failed."""
    work.commit()
    context = work.context
    work.lease.expect(DECIDER_SECONDS + margin_seconds())
    events.emit(events.Name.DECIDER_STARTING, run_id=work.run_id)
    try:
        decision, body = _ask(agent, context)
    except Exception as error:  # noqa: BLE001  a decider is somebody else's code
        return _decider_failed(work, error)
    events.emit(events.Name.DECIDER_DONE, run_id=work.run_id)
    _record(work, agent, decision, body, holders={})
    return True


def _record(
    work: Work,
    agent: Agent,
    decision: Decision,
    body: dict[str, Any],
    *,
    holders: Mapping[str, str],
) -> None:
    """Plan the decision's row and its operations; `holders` as in `plan_operations`."""
    failures = work.failures
    work.decision = decision
    calls = decision.calls if isinstance(decision, CallTools) else ()
    work.change.decision = NewDecision(
        kind=body["kind"],
        body=body,
        decider=bound_text(agent.decider_name, 100),
        agent_version=agent.version,
        tool_versions=tool_versions(calls),
        failures_before=failures,
    )
    work.move(RunEvent.RECORD_DECISION)
    work.operations = plan_operations(work, agent=agent, calls=calls, holders=holders)
    # A person's no is an answer, and no failure to decide.
    refused = any(
        operation.status == OperationStatus.CANCELLED and operation.never_sent != NeverSent.DENIED
        for operation in work.operations
    )
    _count_failures(work, failures + 1 if refused else 0)


def plan_again(work: Work, agent: Agent) -> None:
    """An intent of the decision turned out to be held: nothing was written, so plan anew."""
    recorded = work.change.decision
    assert recorded is not None, "new operations are written with their decision"
    holders = find_holders(operation.holds_intent for operation in work.operations)
    assert work.decision is not None, "it was planned before"
    work.change = Change()
    work.state = RunState.DECIDING
    work.failures = recorded.failures_before
    _record(work, agent, work.decision, recorded.body, holders=holders)


def _ask(agent: Agent, context: Context) -> tuple[Decision, dict[str, Any]]:
    """The decider's answer as it will be stored; raises whatever makes it unusable.

    Asked in a thread of its own, as tools are called: one that never answers costs a try,
    and what it does to its database connection does not reach ours.
    """
    ask = partial(deciders.ask, agent.decider, context)
    body = decisions.encode(run_within(ask, seconds=DECIDER_SECONDS))
    check_json(body, field="decision")
    decision = decisions.decode(body, where=f"run {context.run_id} step {context.step_number}")
    if isinstance(decision, CallTools) and not 0 < len(decision.calls) <= MAX_CALLS:
        raise ValueError(f"a decision calls 1 to {MAX_CALLS} tools, not {len(decision.calls)}")
    return decision, body


def _decider_failed(work: Work, error: Exception) -> bool:
    reason = bound_text(describe(error), TEXT_LIMIT)
    _count_failures(work, work.failures + 1)
    if work.failures >= MAX_FAILURES:
        fail(work, f"no decision in {work.failures} tries; the last: {reason}")
        return False
    work.move(RunEvent.DECIDER_FAILED, reason)
    work.release(wake_in=float(2**work.failures), attempt_outcome="failed")
    return False


def _count_failures(work: Work, failures: int) -> None:
    if failures != work.failures:
        work.failures = failures
        work.change.run["failures"] = failures

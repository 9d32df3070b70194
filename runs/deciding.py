"""Deciding: asking the decider, and recording its answer with what it calls for.

Guarantees: what is recorded is what will be decoded again; the first decision recorded wins; a
decider that fails or calls what cannot be called is asked again a bounded number of times.

Does not carry anything out: `engine.py` does.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, assert_never

from runs import budgets, deciders, decisions, events, flow
from runs.agents import Agent
from runs.canonical import build_context
from runs.change import Change, NewDecision
from runs.compensation import plan_compensation
from runs.context import Context, Usage
from runs.deciders import Llm
from runs.decisions import (
    Ask,
    CallTools,
    Compensate,
    Decision,
    Delegate,
    DelegateAll,
    Fail,
    Finish,
    Sleep,
    ToolCall,
    WaitFor,
)
from runs.delegation import plan_children
from runs.endings import fail
from runs.errors import LlmUnavailable, UnusableAnswer
from runs.handoffs import hand_off_if_full
from runs.intents import find_holders
from runs.lease import margin_seconds
from runs.llm.asking import ask_llm
from runs.models import TEXT_LIMIT, NeverSent, ToolOperation
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
# Whoever decides what a compensating run does next: `saga.py`.
SAGA: Final = "saga"


def decide(work: Work, agent: Agent) -> bool:
    """Ask the decider and plan what it said. False when the run was parked or failed."""
    reserved = budgets.reservation(agent.budget)
    if breach := _find_breach(work, agent, reserved):
        work.pause(breach)
        work.release(wake_in=None)
        return False
    work.spend(work.spent.plus(reserved))
    work.commit()
    if work.is_paused or work.cancel_requested_by is not None:
        # Asked for since this worker last looked; the release heeds a cancel.
        return _put_off(work, reserved, wake_in=None if work.is_paused else 0)
    if (wait := _take_turn(work, agent)) is not None:
        return _put_off(work, reserved, wake_in=wait)
    context = build_context(work, agent)
    work.lease.expect(DECIDER_SECONDS + margin_seconds())
    events.emit(events.Name.DECIDER_STARTING, run_id=work.run_id)
    try:
        if isinstance(agent.decider, Llm):
            context = hand_off_if_full(work, agent, context)
        decision, body = _ask(agent, context)
    except Exception as error:  # noqa: BLE001  a decider is somebody else's code
        # What it used before it failed may not be all that it used.
        used = _used(context.usage)
        work.spend(work.spent.plus(used.minus(reserved)))
        work.change.llm_requests += context.requests
        return _decider_failed(work, error)
    finally:
        _give_turn_back(work, agent)
    events.emit(events.Name.DECIDER_DONE, run_id=work.run_id)
    work.spend(work.spent.minus(reserved).plus(_used(context.usage)))
    work.change.llm_requests += context.requests
    _record(work, agent, decision, body, holders={})
    return True


def decide_correction(
    work: Work, target: ToolOperation, call: ToolCall, *, agent: Agent | None
) -> None:
    """Plan what corrects `target` as the decision of this step."""
    work.commit()
    decision = CallTools(call)
    _plan_decision(
        work,
        decision,
        decisions.encode(decision),
        decider=SAGA,
        agent_version=agent.version if agent is not None else "",
    )
    work.operations = [plan_compensation(work, target, call)]


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
    _plan_decision(work, decision, body, decider=agent.decider_name, agent_version=agent.version)
    match decision:
        case CallTools(calls=calls):
            work.operations = plan_operations(work, agent=agent, calls=calls, holders=holders)
        case Delegate():
            work.operations = plan_children(work, [decision])
        case DelegateAll(children=children):
            work.operations = plan_children(work, children)
        case Finish() | Fail() | Sleep() | WaitFor() | Ask() | Compensate():
            work.operations = []
        case _ as never:
            assert_never(never)
    # A person's no is an answer, and no failure to decide.
    refused = any(
        operation.status == OperationStatus.CANCELLED and operation.never_sent != NeverSent.DENIED
        for operation in work.operations
    )
    _count_failures(work, failures + 1 if refused else 0)


def _plan_decision(
    work: Work, decision: Decision, body: dict[str, Any], *, decider: str, agent_version: str
) -> None:
    work.decision = decision
    work.parked = None
    work.change.decision = NewDecision(
        kind=body["kind"],
        body=body,
        decider=bound_text(decider, 100),
        agent_version=agent_version,
        tool_versions=tool_versions(decision.calls if isinstance(decision, CallTools) else ()),
        failures_before=work.failures,
    )
    work.move(RunEvent.RECORD_DECISION)


def _find_breach(work: Work, agent: Agent, reserved: budgets.Spent) -> str:
    """Why the decider may not be asked (again); its step is spent already."""
    limits = budgets.limits_of(own=work.budget, budget=agent.budget, created_at=work.created_at)
    return budgets.find_breach(limits, work.spent, needed=reserved, now=work.now)


def _put_off(work: Work, reserved: budgets.Spent, *, wake_in: float | None) -> bool:
    """Give the run back before its decider was asked; nothing was spent."""
    work.spend(work.spent.minus(reserved))
    work.release(wake_in=wake_in)
    return False


def _take_turn(work: Work, agent: Agent) -> float | None:
    """The seconds to wait until the agent's llm may be asked; None if it may now."""
    if (limited := agent.llm_limits) is None:
        return None
    seconds = DECIDER_SECONDS + 2 * margin_seconds()
    return flow.take(
        name=limited.name, limits=limited.limits, holder=_holder(work), seconds=seconds
    )


def _give_turn_back(work: Work, agent: Agent) -> None:
    if agent.llm_limits is not None and agent.llm_limits.concurrency is not None:
        flow.give_back([_holder(work)])


def _holder(work: Work) -> str:
    return f"{work.run_id}:{work.step_number}"


def _used(usage: Usage) -> budgets.Spent:
    return budgets.Spent(tokens=usage.tokens, cost_usd=usage.cost_usd)


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
    if isinstance(agent.decider, Llm):
        ask = partial(ask_llm, agent.decider, agent, context)
    else:
        ask = partial(deciders.ask, agent.decider, context)
    body = decisions.encode(run_within(ask, seconds=DECIDER_SECONDS))
    check_json(body, field="decision")
    decision = decisions.decode(body, where=f"run {context.run_id} step {context.step_number}")
    if isinstance(decision, CallTools) and not 0 < len(decision.calls) <= MAX_CALLS:
        raise ValueError(f"a decision calls 1 to {MAX_CALLS} tools, not {len(decision.calls)}")
    return decision, body


def _decider_failed(work: Work, error: Exception) -> bool:
    reason = bound_text(describe(error), TEXT_LIMIT)
    if isinstance(error, LlmUnavailable):
        # Nothing was decided badly: whoever is away is asked again later.
        work.move(RunEvent.DECIDER_FAILED, reason)
        work.release(wake_in=error.retry_in or 2.0, attempt_outcome="failed")
        return False
    _count_failures(work, work.failures + 1)
    if work.failures >= MAX_FAILURES:
        fail(work, f"no decision in {work.failures} tries; the last: {reason}")
        return False
    work.move(RunEvent.DECIDER_FAILED, reason)
    wake_in = 0.0 if isinstance(error, UnusableAnswer) else float(2**work.failures)
    work.release(wake_in=wake_in, attempt_outcome="failed")
    return False


def _count_failures(work: Work, failures: int) -> None:
    if failures != work.failures:
        work.failures = failures
        work.change.run["failures"] = failures

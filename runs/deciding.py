"""Deciding: asking the decider, and recording its answer with what it calls for.

Guarantees: what is recorded is what will be decoded again; the first decision recorded wins; a
decider that fails or calls what cannot be called is asked again a bounded number of times.

Does not carry anything out: `engine.py` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, assert_never

from runs import budgets, deciders, decisions, events, external, flow
from runs.agents import Agent
from runs.canonical import build_context
from runs.change import Change, NewDecision
from runs.compensation import plan_compensation
from runs.context import Context
from runs.deciders import Llm
from runs.decisions import (
    MOST_CALLS,
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
from runs.final_results import fit_result
from runs.handoffs import hand_off_if_full
from runs.intents import find_holders
from runs.lease import margin_seconds
from runs.llm.asking import ask_llm, most_seconds
from runs.models import LlmRequest, NeverSent, ToolOperation
from runs.planning import plan_operations, tool_versions
from runs.state import OperationStatus, RunEvent, RunState
from runs.undecided import count_failures, follow_failure
from runs.work import Work
from tools.canonical import check_json
from tools.execution import run_within
from tools.redaction import bound_text

DECIDER_SECONDS: Final = 300.0
# Whoever decides what a compensating run does next: `saga.py`.
SAGA: Final = "saga"


@dataclass(frozen=True)
class Versions:
    """Of the prompt and of the llm, as it answered, behind a decision."""

    prompt: str = ""
    llm: str = ""


NO_LLM: Final = Versions()
# Columns of the run that are set before there is a decision.
_BEFORE_DECISION: Final = frozenset(
    {"spent_steps", "spent_tokens", "spent_cost_usd", "step_number", "setbacks", "agent_version"}
)


def decide(work: Work, agent: Agent, *, may_hand_off: bool = True) -> bool:
    """Ask the decider and plan what it said. False when the run was parked or failed.

    Where an llm's window is full it is asked for a handoff first, and that is reserved, limited
    and paid like a decision.
    """
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
    work.lease.expect(_seconds_of(agent) + margin_seconds())
    events.emit(events.Name.DECIDER_STARTING, **work.about(), decider=agent.decider_name)
    answer = None
    try:
        if not (may_hand_off and hand_off_if_full(work, agent, context)):
            answer = _ask(agent, context)
    except Exception as error:  # noqa: BLE001  a decider is somebody else's code
        events.emit(events.Name.DECIDER_FAILED, **work.about(), error=type(error).__name__)
        # What code said that it used may not be all. Each request of an llm is noted.
        _settle(work, context, reserved, is_all_noted=isinstance(agent.decider, Llm))
        follow_failure(work, error)
        return False
    finally:
        _give_turn_back(work, agent)
    events.emit(events.Name.DECIDER_DONE, **work.about())
    _settle(work, context, reserved)
    if answer is None:
        # The handoff is written with what is reserved next, before anybody decides from it.
        return decide(work, agent, may_hand_off=False)
    decision, body = answer
    _record(work, agent, decision, body, holders={}, versions=_find_versions(context))
    return True


def decide_called(work: Work, agent: Agent) -> None:
    """Plan what an agent that runs elsewhere asked for as the decision of this step.

    Nothing has to be reserved or asked, so the step may be opened by the same commit.
    """
    if work.change.close_step:
        # What came before it is not the same step's.
        work.commit()
    decision, ids, taken = external.decide_called(work, agent)
    work.change.taken_calls = taken
    body = decisions.encode(decision)
    _record(work, agent, decision, body, holders={}, versions=NO_LLM, ids=ids)


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
    versions: Versions,
    ids: tuple[str, ...] = (),
) -> None:
    """Plan the decision's row and its operations; `holders` and `ids` as in `plan_operations`."""
    failures = work.failures
    _plan_decision(
        work,
        decision,
        body,
        decider=agent.decider_name,
        agent_version=agent.version,
        versions=versions,
        ids=ids,
    )
    match decision:
        case CallTools(calls=calls):
            work.operations = plan_operations(
                work, agent=agent, calls=calls, holders=holders, ids=ids
            )
        case Delegate():
            work.operations = plan_children(work, [decision])
        case DelegateAll(children=children):
            work.operations = plan_children(work, children)
        case Finish() | Fail() | Sleep() | WaitFor() | Ask() | Compensate():
            work.operations = []
        case _ as never:
            assert_never(never)
    # A person's no is an answer, and no failure to decide. Who decides elsewhere is told by itself.
    refused = not external.is_external(agent) and any(
        operation.status == OperationStatus.CANCELLED and operation.never_sent != NeverSent.DENIED
        for operation in work.operations
    )
    count_failures(work, failures + 1 if refused else 0)


def _plan_decision(
    work: Work,
    decision: Decision,
    body: dict[str, Any],
    *,
    decider: str,
    agent_version: str,
    versions: Versions = NO_LLM,
    ids: tuple[str, ...] = (),
) -> None:
    work.decision = decision
    work.parked = None
    work.change.decision = NewDecision(
        kind=body["kind"],
        body=body,
        decider=bound_text(decider, 100),
        agent_version=agent_version,
        tool_versions=tool_versions(decision.calls if isinstance(decision, CallTools) else ()),
        prompt_version=versions.prompt,
        llm_version=versions.llm,
        policy_version=str(work.policy_generation),
        failures_before=work.failures,
        operation_ids=ids,
    )
    work.move(RunEvent.RECORD_DECISION)


def _find_versions(context: Context) -> Versions:
    for asked in reversed(context.requests):
        if asked.purpose == LlmRequest.Purpose.DECIDE:
            return Versions(prompt=asked.prompt_version, llm=asked.llm_version)
    return NO_LLM


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
    seconds = _seconds_of(agent) + 2 * margin_seconds()
    return flow.take(
        name=limited.name, limits=limited.limits, holder=_holder(work), seconds=seconds
    )


def _give_turn_back(work: Work, agent: Agent) -> None:
    if agent.llm_limits is not None and agent.llm_limits.concurrency is not None:
        flow.give_back([_holder(work)])


def _holder(work: Work) -> str:
    return f"{work.run_id}:{work.step_number}"


def _seconds_of(agent: Agent) -> float:
    """How long its decider may take for one decision."""
    return most_seconds(agent.decider) if isinstance(agent.decider, Llm) else DECIDER_SECONDS


def _settle(
    work: Work, context: Context, reserved: budgets.Spent, *, is_all_noted: bool = True
) -> None:
    """Plan what was used in place of what was reserved, and the requests that used it.

    Where that is not known it counts as no less than what was reserved.
    """
    tokens, cost = context.usage.tokens, context.usage.cost_usd
    if not is_all_noted or any(one.input_tokens is None for one in context.requests):
        tokens = max(tokens, reserved.tokens)
    if not is_all_noted or any(one.cost_usd is None for one in context.requests):
        cost = max(cost, reserved.cost_usd)
    used = budgets.Spent(tokens=tokens, cost_usd=cost)
    work.spend(work.spent.minus(reserved).plus(used))
    work.change.llm_requests += context.requests


def plan_again(work: Work, agent: Agent) -> None:
    """An intent of the decision turned out to be held: nothing was written, so plan anew."""
    recorded = work.change.decision
    assert recorded is not None, "new operations are written with their decision"
    holders = find_holders(operation.holds_intent for operation in work.operations)
    assert work.decision is not None, "it was planned before"
    # What came before the decision, and what that took, is what it is, whatever its calls come to.
    before = work.change
    events_before = [edge.event for edge in before.edges]
    work.change = Change(
        edges=before.edges[: events_before.index(RunEvent.RECORD_DECISION)],
        run={name: value for name, value in before.run.items() if name in _BEFORE_DECISION},
        open_step=before.open_step,
        open_attempt=before.open_attempt,
        llm_requests=before.llm_requests,
        taken_calls=before.taken_calls,
    )
    work.state = RunState.DECIDING
    work.failures = recorded.failures_before
    versions = Versions(prompt=recorded.prompt_version, llm=recorded.llm_version)
    _record(
        work,
        agent,
        work.decision,
        recorded.body,
        holders=holders,
        versions=versions,
        ids=recorded.operation_ids,
    )


def _ask(agent: Agent, context: Context) -> tuple[Decision, dict[str, Any]]:
    """The decider's answer as it will be stored; raises whatever makes it unusable.

    Code is asked in a thread of its own, as tools are called: one that never answers costs a
    try, and what it does to its database connection does not reach ours.
    """
    if isinstance(agent.decider, Llm):
        answer = ask_llm(agent.decider, agent, context)
    else:
        ask = partial(deciders.ask, agent.decider, context)
        answer = run_within(ask, seconds=DECIDER_SECONDS)
        if isinstance(answer, Finish):
            answer = Finish(fit_result(answer.result, agent.output))
    body = decisions.encode(answer)
    check_json(body, field="decision")
    decision = decisions.decode(body, where=f"run {context.run_id} step {context.step_number}")
    if isinstance(decision, CallTools) and not 0 < len(decision.calls) <= MOST_CALLS:
        raise ValueError(f"a decision calls 1 to {MOST_CALLS} tools, not {len(decision.calls)}")
    return decision, body

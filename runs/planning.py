"""Planning: from the calls of a decision to operations with a durable intent.

Guarantees: an operation's id is a pure function of its run, step and place, so every worker
plans the same one; arguments are validated and normalised before anything is stored; what
policy says, and which intent the call carries out, stands on the operation before it can be
sent.

Does not send (`operations.py`) and does not ask a person (`approvals`).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import assert_never
from uuid import UUID

from runs.agents import Agent
from runs.decisions import ToolCall
from runs.intents import REPLAY, name_intent
from runs.models import TEXT_LIMIT, ToolOperation
from runs.outcomes import settle
from runs.state import OperationEvent
from runs.work import Work
from tools.canonical import digest
from tools.errors import InvalidArguments, InvalidPayload, UnknownTool
from tools.policy import evaluate
from tools.redaction import bound_text
from tools.registry import get_tool
from tools.spec import ToolSpec


def operation_id(*, run_id: UUID, step_number: int, logical_action: str) -> str:
    """The operation's one id: a digest over an injective encoding of what names it."""
    name = json.dumps([str(run_id), step_number, logical_action])
    return "op_" + hashlib.sha256(name.encode()).hexdigest()[:40]


def plan_operations(
    work: Work, *, agent: Agent, calls: Sequence[ToolCall], holders: Mapping[str, str]
) -> list[ToolOperation]:
    """Plan the operations of a decision's calls, in order.

    `holders` are the operations that are known to hold an intent, by its name. Whoever
    holds one without being named there makes the commit raise `IntentTaken`.
    """
    taken = dict(holders)
    planned = []
    for ordinal, call in enumerate(calls):
        operation = _plan(work, agent=agent, ordinal=ordinal, call=call, taken=taken)
        if operation.holds_intent is not None:
            taken[operation.holds_intent] = operation.id
        planned.append(operation)
    return planned


def tool_versions(calls: Sequence[ToolCall]) -> dict[str, str]:
    """By name: the version of each tool that the calls name and this process serves."""
    versions = {}
    for name in {call.tool for call in calls}:
        try:
            versions[name] = get_tool(name).version
        except UnknownTool:
            continue
    return versions


def _plan(
    work: Work, *, agent: Agent, ordinal: int, call: ToolCall, taken: Mapping[str, str]
) -> ToolOperation:
    """One operation: intended, held for a signature, a repeat, or refused."""
    operation = ToolOperation(
        id=operation_id(
            run_id=work.run_id,
            step_number=work.step_number,
            logical_action=f"{call.tool}#{ordinal}",
        ),
        run_id=work.run_id,
        step_id=work.open_step_id,
        step_number=work.step_number,
        ordinal=ordinal,
        tool=bound_text(call.tool, 100),
        status="",
        arguments=dict(call.arguments),
        sensitive=[],
    )
    operation.idempotency_key = operation.id
    try:
        spec = get_tool(call.tool)
        # First of all: what is sensitive is hidden of a refused call too.
        _copy_declaration(operation, spec)
        if call.tool not in agent.tools:
            raise UnknownTool(call.tool, near=agent.tools)
        operation.arguments = spec.validate(operation.arguments)
        intent = name_intent(operation, spec=spec, run_id=work.run_id)
    except (UnknownTool, InvalidArguments, InvalidPayload) as error:
        operation.arguments_digest = digest(operation.arguments)
        return _refuse(work, operation, str(error), rule="invalid call")
    operation.arguments_digest = digest(operation.arguments)
    policy = evaluate(spec, operation.arguments)
    operation.policy_outcome = policy.outcome
    operation.policy_rule = policy.rule
    operation.policy_version = policy.version
    if policy.outcome == "refuse":
        return _refuse(work, operation, policy.rule, rule=policy.rule)
    if intent is not None and intent in taken:
        return _plan_repeat(work, operation, spec, holder=taken[intent])
    operation.holds_intent = intent
    match policy.outcome:
        case "allow":
            work.move_operation(operation, OperationEvent.INTEND)
        case "require_approval":
            work.move_operation(operation, OperationEvent.HOLD, policy.rule)
        case _ as never:
            assert_never(never)
    return operation


def _plan_repeat(
    work: Work, operation: ToolOperation, spec: ToolSpec, *, holder: str
) -> ToolOperation:
    operation.repeats_id = holder
    rule = f"operation {holder} has the same intent"
    match spec.on_repeated_intent:
        case "return_recorded":
            operation.policy_outcome = REPLAY
            operation.policy_rule = rule
            work.move_operation(operation, OperationEvent.INTEND, rule)
        case "ask":
            operation.policy_outcome = "require_approval"
            operation.policy_rule = rule
            work.move_operation(operation, OperationEvent.HOLD, rule)
        case "refuse":
            return _refuse(work, operation, f"refused: {rule}", rule=rule)
        case _ as never:
            assert_never(never)
    return operation


def _refuse(work: Work, operation: ToolOperation, error: str, *, rule: str) -> ToolOperation:
    operation.policy_outcome = "refuse"
    operation.policy_rule = rule
    operation.error = bound_text(error, TEXT_LIMIT)
    settle(work, operation)
    work.move_operation(operation, OperationEvent.REFUSE, operation.error)
    return operation


def _copy_declaration(operation: ToolOperation, spec: ToolSpec) -> None:
    operation.tool_version = spec.version
    operation.effect_type = spec.effect_type
    operation.provider = spec.provider_name
    operation.account = spec.account
    operation.sensitive = list(spec.sensitive)

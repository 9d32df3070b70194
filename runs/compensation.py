"""Compensation: from an effect that is to be corrected to an operation with a durable intent.

Guarantees: a compensation is an operation like any other, with an id, a policy verdict, a
signature where policy asks for one, and unknowns of its own; it holds what it corrects, so that
the database itself refuses a second one that may take effect. What the run's agent, or another
run, did already under the same intent is sent only with a person's word.

Does not choose the effect (`saga.py`) and does not send (`operations.py`). A tool need not be
among the agent's tools: what corrects an effect is the tool's declaration, not the decider's
choice.
"""

from typing import assert_never

from runs.built_in import build_in, is_delegation
from runs.decisions import ToolCall
from runs.gate import ask
from runs.intents import find_holders, name_correction, name_forward, name_intent
from runs.judging import NEEDED, adopt, judge
from runs.models import NeverSent, ToolOperation
from runs.planning import copy_declaration, name_operation, refuse_operation
from runs.state import OperationEvent
from runs.work import Work
from tools import Approve
from tools.canonical import digest
from tools.errors import InvalidArguments, InvalidPayload, UnknownTool
from tools.registry import get_tool
from tools.spec import ToolSpec


def plan_compensation(work: Work, target: ToolOperation, call: ToolCall) -> ToolOperation:
    """The operation that corrects `target`: intended, held for a signature, or refused.

    A commit of it raises `IntentTaken` where another compensation of `target` may take effect
    or has: then `find_next` reads anew.
    """
    operation = name_operation(work, tool=call.tool, ordinal=0, revision=0)
    operation.compensates_id = target.id
    operation.arguments = dict(call.arguments)
    if is_delegation(target):
        return _plan_run(work, operation)
    try:
        spec = get_tool(call.tool)
        # First of all: what is sensitive is hidden of a refused call too.
        copy_declaration(operation, spec)
        operation.arguments = spec.validate(operation.arguments)
        held = name_intent(operation, spec=spec, run_id=work.lineage or work.run_id)
    except (UnknownTool, InvalidArguments, InvalidPayload) as error:
        operation.arguments_digest = digest(operation.arguments)
        return refuse_operation(
            work, operation, str(error), rule="invalid call", why=NeverSent.INVALID
        )
    operation.arguments_digest = digest(operation.arguments)
    policy = judge(work, operation, spec)
    adopt(operation, policy)
    if policy.outcome == "refuse":
        return refuse_operation(work, operation, policy.rule, rule=policy.rule)
    operation.holds_intent = held
    why = f"corrects operation {target.id} ({target.tool})"
    if holder := _find_holder(work, operation, spec):
        operation.repeats_id = holder
        operation.policy_outcome = NEEDED
        operation.policy_rule = f"operation {holder} has the same intent"
        approve = policy.approve or spec.approval_policy or Approve()
        ask(work, operation, spec, approve=approve, why=why)
        return operation
    match policy.outcome:
        case "allow":
            work.move_operation(operation, OperationEvent.INTEND)
        case "require_approval":
            ask(work, operation, spec, approve=policy.approve or Approve(), why=why)
        case _ as never:
            assert_never(never)
    return operation


def _find_holder(work: Work, operation: ToolOperation, spec: ToolSpec) -> str | None:
    """Who carries out, or has, the very thing that the compensation would do again."""
    name = name_forward(operation, spec=spec, run_id=work.lineage or work.run_id)
    return find_holders([name]).get(name) if name is not None else None


def _plan_run(work: Work, operation: ToolOperation) -> ToolOperation:
    """The compensation of a child run, which the kernel itself carries out."""
    build_in(operation)
    operation.arguments_digest = digest(operation.arguments)
    assert operation.compensates_id is not None, "it corrects an operation"
    operation.holds_intent = name_correction(operation.compensates_id)
    work.move_operation(operation, OperationEvent.INTEND)
    return operation

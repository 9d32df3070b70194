"""Planning: from the calls of a decision to operations with a durable intent.

Guarantees: an operation's id is a pure function of its run, step and place, so every worker
plans the same one; arguments are validated and normalised before anything is stored; what
policy says, and which intent the call carries out, stands on the operation before it can be
sent.

Does not send (`operations.py`), and does not collect the signatures that it has asked for
(`approvals`).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never
from uuid import UUID

from runs.agents import Agent
from runs.argument_versions import is_outdated
from runs.decisions import ToolCall
from runs.gate import Proposer, ask, asked_before
from runs.intents import REPLAY, find_holders, name_intent
from runs.judging import NEEDED, adopt, judge
from runs.models import Approval, NeverSent, ToolOperation
from runs.outcomes import end_unsent, move_run
from runs.state import OperationEvent, RunEvent, RunState
from runs.work import Work
from tools import Approve
from tools.canonical import digest
from tools.errors import InvalidArguments, InvalidPayload, Problem, UnknownTool
from tools.redaction import REDACTED, bound_text, find_secrets
from tools.registry import get_tool
from tools.spec import ToolSpec

# After a denial the same action is refused so often without asking; then the run pauses.
MOST_REFUSALS: Final = 3
HIDDEN: Final = Problem(
    field="a sensitive argument",
    value=REDACTED,
    fix="this stands for a value that is kept from you; name what it belongs to instead",
)
# Of one intent, so many denials are looked through.
MOST_DENIALS: Final = 100


def operation_id(*, run_id: UUID, step_number: int, logical_action: str) -> str:
    """The operation's one id: a digest over an injective encoding of what names it."""
    name = json.dumps([str(run_id), step_number, logical_action])
    return "op_" + hashlib.sha256(name.encode()).hexdigest()[:40]


def plan_operations(
    work: Work,
    *,
    agent: Agent,
    calls: Sequence[ToolCall],
    holders: Mapping[str, str],
    ids: Sequence[str] = (),
) -> list[ToolOperation]:
    """Plan the operations of a decision's calls, in order.

    `ids` are theirs, where whoever called gave them. `holders` are the operations that are known
    to hold an intent, by its name. Whoever holds one without being named there makes the commit
    raise `IntentTaken`.
    """
    taken = dict(holders)
    planned = []
    for ordinal, call in enumerate(calls):
        operation = name_operation(work, tool=call.tool, ordinal=ordinal, revision=0)
        if ids:
            operation.id = operation.idempotency_key = ids[ordinal]
        _plan(work, operation, agent=agent, call=call, taken=taken)
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
    work: Work,
    operation: ToolOperation,
    *,
    agent: Agent,
    call: ToolCall,
    taken: Mapping[str, str],
) -> ToolOperation:
    """One operation: intended, held for a signature, a repeat, or refused."""
    operation.arguments = dict(call.arguments)
    try:
        spec = get_tool(call.tool)
        # First of all: what is sensitive is hidden of a refused call too.
        copy_declaration(operation, spec)
        if call.tool not in agent.allowed_tools:
            raise UnknownTool(call.tool, near=agent.allowed_tools)
        if REDACTED in find_secrets(operation.arguments, spec.sensitive):
            # Copied from what a decider was shown in place of the value.
            raise InvalidArguments(call.tool, [HIDDEN])
        operation.arguments = spec.validate(operation.arguments)
        intent = name_intent(operation, spec=spec, run_id=work.lineage or work.run_id)
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
    if intent is not None and intent in taken:
        return _plan_repeat(work, operation, spec, policy.approve, holder=taken[intent])
    if policy.outcome == NEEDED and (denied := _find_denial(work, operation, spec)):
        return refuse_operation(work, operation, denied, rule=policy.rule, why=NeverSent.DENIED)
    operation.holds_intent = intent
    match policy.outcome:
        case "allow":
            work.move_operation(operation, OperationEvent.INTEND)
        case "require_approval":
            ask(work, operation, spec, approve=policy.approve or Approve())
        case _ as never:
            assert_never(never)
    return operation


def replace_operation(work: Work, operation: ToolOperation, approval: Approval) -> None:
    """Plan what a person proposed in place of a held operation: another action, in its place.

    It is held whatever policy says of it, since a person's change is nobody's signature; what
    policy asks of it, or else what was asked of the first, must be signed by others.
    """
    put_in_place(
        work,
        operation,
        arguments=approval.proposed_arguments or {},
        ended=f"{approval.proposed_by} proposed other arguments",
        why=f"proposed by {approval.proposed_by} in place of what was asked",
        instead_of=approval,
        is_held=True,
        proposer=(approval.proposed_by, approval.proposed_by_user_id),
    )


def put_in_place(
    work: Work,
    operation: ToolOperation,
    *,
    arguments: Mapping[str, Any],
    ended: str,
    why: str,
    instead_of: Approval | None,
    is_held: bool,
    proposer: Proposer | None = None,
) -> None:
    """Plan an action with other arguments in place of one that was never sent, or came to nothing.

    `ended` is said of the one, `why` of the other. It is a new action, which policy judges; what
    `is_held` needs signatures whatever policy says. `proposer` as in `ask`.
    """
    spec = get_tool(operation.tool)
    proposed = name_operation(
        work, tool=operation.tool, ordinal=operation.ordinal, revision=operation.revision + 1
    )
    proposed.arguments = dict(arguments)
    copy_declaration(proposed, spec)
    proposed.compensates_id = operation.compensates_id
    proposed.holds_intent, held = None, operation.holds_intent
    end_unsent(
        work,
        operation,
        OperationEvent.REPLACE,
        why=NeverSent.CHANGED,
        error=f"{ended}: operation {proposed.id}",
    )
    work.operations.insert(work.operations.index(operation) + 1, proposed)
    try:
        proposed.arguments = spec.validate(proposed.arguments)
        intent = name_intent(proposed, spec=spec, run_id=work.lineage or work.run_id)
    except (InvalidArguments, InvalidPayload) as error:
        proposed.arguments_digest = digest(proposed.arguments)
        refuse_operation(work, proposed, str(error), rule="invalid call", why=NeverSent.INVALID)
        return _drop_call(work)
    proposed.arguments_digest = digest(proposed.arguments)
    if intent is not None and intent != held and (holders := find_holders([intent])):
        proposed.repeats_id = holders[intent]
        if spec.on_repeated_intent != "ask":
            rule = f"operation {holders[intent]} has the same intent"
            refuse_operation(work, proposed, rule, rule=rule)
            return _drop_call(work)
    else:
        proposed.holds_intent = intent
    policy = judge(work, proposed, spec)
    adopt(proposed, policy)
    if policy.outcome == "refuse":
        refuse_operation(work, proposed, policy.rule, rule=policy.rule)
        return _drop_call(work)
    if policy.outcome == "allow" and not is_held and proposed.repeats_id is None:
        return work.move_operation(proposed, OperationEvent.INTEND, why)
    proposed.policy_outcome = NEEDED
    asked = asked_before(instead_of) if instead_of is not None else spec.approval_policy
    ask(
        work,
        proposed,
        spec,
        approve=policy.approve or asked or Approve(),
        why=why,
        instead_of=instead_of,
        proposer=proposer,
    )


def _drop_call(work: Work) -> None:
    if work.state not in (RunState.WAITING_FOR_APPROVAL, RunState.TOOL_PREPARED):
        move_run(work, RunEvent.HOLD)
    move_run(work, RunEvent.DENY, "what took its place cannot be sent")


def name_operation(work: Work, *, tool: str, ordinal: int, revision: int) -> ToolOperation:
    """A new operation with its one id, and nothing else yet."""
    action = f"{tool}#{ordinal}" + (f"~{revision}" if revision else "")
    operation = ToolOperation(
        id=operation_id(run_id=work.run_id, step_number=work.step_number, logical_action=action),
        run_id=work.run_id,
        step_number=work.step_number,
        ordinal=ordinal,
        revision=revision,
        tool=bound_text(tool, 100),
        status="",
        sensitive=[],
    )
    operation.idempotency_key = operation.id
    if work.step_id is not None:
        # Not yet, where its step is opened by the very same commit.
        operation.step_id = work.step_id
    return operation


def _find_denial(work: Work, operation: ToolOperation, spec: ToolSpec) -> str:
    """Why the very same action is not asked about again in this run; empty if it is.

    Proposed once too often, it also pauses the run: a decider that does not take no for an
    answer needs a person, and not another refusal.
    """
    denials = ToolOperation.objects.filter(
        run_id=work.run_id,
        intent=operation.intent,
        never_sent=NeverSent.DENIED,
        tool=operation.tool,
    ).order_by("step_number", "ordinal", "revision")
    errors = [
        denied.error
        for denied in denials[:MOST_DENIALS]
        if _is_same_action(spec, denied, operation)
    ]
    if not errors:
        return ""
    if len(errors) > MOST_REFUSALS:
        work.pause(f"{operation.tool} was proposed again {len(errors)} times after a denial")
    return f"refused without asking again: {errors[0]}"


def _is_same_action(spec: ToolSpec, denied: ToolOperation, operation: ToolOperation) -> bool:
    if is_outdated(denied, spec):
        # The same words may have meant something else.
        return False
    try:
        return spec.means_the_same(denied.arguments, operation.arguments)
    except InvalidArguments:
        return False


def _plan_repeat(
    work: Work,
    operation: ToolOperation,
    spec: ToolSpec,
    approve: Approve | None,
    *,
    holder: str,
) -> ToolOperation:
    operation.repeats_id = holder
    rule = f"operation {holder} has the same intent"
    match spec.on_repeated_intent:
        case "return_recorded":
            operation.policy_outcome = REPLAY
            operation.policy_rule = rule
            work.move_operation(operation, OperationEvent.INTEND, rule)
        case "ask":
            if denied := _find_denial(work, operation, spec):
                return refuse_operation(work, operation, denied, rule=rule, why=NeverSent.DENIED)
            operation.policy_outcome = NEEDED
            operation.policy_rule = rule
            approve = approve or spec.approval_policy or Approve()
            ask(work, operation, spec, approve=approve)
        case "refuse":
            return refuse_operation(work, operation, f"refused: {rule}", rule=rule)
        case _ as never:
            assert_never(never)
    return operation


def refuse_operation(
    work: Work,
    operation: ToolOperation,
    error: str,
    *,
    rule: str,
    why: NeverSent = NeverSent.REFUSED,
) -> ToolOperation:
    operation.policy_outcome = "refuse"
    operation.policy_rule = rule
    end_unsent(work, operation, OperationEvent.REFUSE, why=why, error=error)
    return operation


def copy_declaration(operation: ToolOperation, spec: ToolSpec) -> None:
    operation.tool_version = spec.version
    operation.arguments_version = spec.arguments_version
    operation.effect_type = spec.effect_type
    operation.provider = spec.provider_name
    operation.account = spec.account
    operation.sensitive = list(spec.sensitive)

"""The last look: the intent of a call is durable, and nothing has left.

Guarantees: a cancel, a pause, a stop, a policy or a count that was committed before the intent
is seen here, and whatever comes later comes after the send; where that cannot be found out,
nothing leaves. A repeat is what was signed, or a person's.

Does not hold anything: `operations.py` takes the call back, and it is judged anew.
"""

from runs.fingerprint import differences, fingerprint
from runs.gate import Admitted, asks_more, find_approval
from runs.judging import NEEDED, find_stop_now, judge
from runs.models import TEXT_LIMIT, Approval, ToolOperation
from runs.work import Work
from tools import Approve, Call
from tools.outcome import describe
from tools.redaction import bound_text, scrub
from tools.spec import ToolSpec


def find_objection(
    work: Work, operation: ToolOperation, spec: ToolSpec, call: Call, *, admitted: Admitted | None
) -> str:
    """Why a call whose intent is durable may not leave after all; empty if it may.

    Whoever stopped sending, tightened a policy or was counted before the intent was committed
    is seen here, and who cancelled or paused the run; whoever comes later comes after the send.
    A repeat of what may have happened already was not `admitted` anew: of it only a stop is
    asked.
    """
    try:
        stop = find_stop_now(work, spec)
        if stop or admitted is None:
            return stop
        if work.cancel_requested_by is not None:
            return "its run is to be cancelled"
        if work.is_paused:
            return "its run is paused"
        return _find_change(work, operation, spec, call, admitted.approval)
    except Exception as error:  # noqa: BLE001  nothing has left: whatever it is, nothing shall
        why = scrub(describe(error), operation.arguments, operation.sensitive)
        return bound_text(f"the policies could not be asked: {why}", TEXT_LIMIT)


def _find_change(
    work: Work, operation: ToolOperation, spec: ToolSpec, call: Call, approval: Approval | None
) -> str:
    if approval is not None:
        leaving = {**approval.covered, "arguments": dict(call.arguments)}
        if fingerprint(leaving) != approval.fingerprint:
            return "the arguments that would leave are not those that were signed"
    judged = work.judged[operation.id]
    if judged.generation == work.policy_generation and not judged.counts:
        return ""
    policy = judge(work, operation, spec)
    if policy.outcome == "allow":
        return ""
    if policy.outcome == NEEDED and approval is not None:
        is_signed = policy.version == approval.policy_version
        if is_signed and not asks_more(policy.approve or Approve(), approval):
            return ""
    return policy.rule


def find_recovery_objection(operation: ToolOperation, spec: ToolSpec) -> str:
    """Why a repeat is not what was signed, so that the signature of the first does not carry it.

    Policies are not judged again: what may have happened is settled under those it began under.
    """
    approval = find_approval(operation) if operation.policy_outcome == NEEDED else None
    if approval is None:
        return ""
    leaving = {
        **approval.covered,
        "tool_version": spec.version,
        "provider": spec.provider_name,
        "account": spec.account,
        "arguments": operation.arguments,
    }
    changed = ", ".join(differences(approval.covered, leaving))
    return f"changed since it was signed: {changed}" if changed else ""

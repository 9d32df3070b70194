"""The gate: what needs a signature is held, and what leaves is what was signed.

Guarantees: an operation that policy holds has one pending request, written in the commit
that holds it; a verdict is read from its row, so any worker acts on it. Just before a send
the policies are judged anew, the resource's version is asked anew, and the fingerprint is
made anew from the arguments that will leave: where anything differs, the old signature has
no force and the question is put again. A signature is spent by the statement that opens the
send, and is given back only if that send provably did not leave. A repeat under the same
idempotency key is the same use; any other repeat needs a signature of its own.

Does not collect signatures: `approvals` does. Does not cover the moment between asking for
the resource's version and the provider's own act.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, assert_never

from uuid_utils.compat import uuid7

from runs.argument_versions import is_outdated
from runs.asking import find_corrector
from runs.calls import build_call
from runs.change import NewApproval
from runs.evidence import find_sender_left
from runs.fingerprint import Action, differences, fingerprint
from runs.judging import NEEDED, adopt, find_stop_now, judge
from runs.lease import margin_seconds
from runs.models import (
    TEXT_LIMIT,
    Approval,
    NeverSent,
    Notice,
    ToolOperation,
)
from runs.outcomes import drop_approval, end_unsent, move_run, park
from runs.serving import UNSERVED_SECONDS
from runs.state import OperationEvent, RunEvent, RunState
from runs.work import Work
from tools import Approve
from tools.errors import ResourceUnreadable
from tools.policy import (
    PolicyDecision,
)
from tools.redaction import bound_text
from tools.resource_version import read_resource_version
from tools.spec import ToolSpec

# A run that is stopped is woken when sending is resumed; this is for a wake-up that got lost.
STOPPED_SECONDS: Final = 300.0
# How a request begins to say why it is asked anew: by it they are counted (`runs.slo`).
CHANGED: Final = "changed since it was signed"
Status = Approval.Status
Proposer = tuple[str, int | None]


@dataclass(frozen=True)
class Admitted:
    """It may be sent; `approval` is spent by the send."""

    approval: Approval | None


# -- Asking --------------------------------------------------------------------


def ask(
    work: Work,
    operation: ToolOperation,
    spec: ToolSpec,
    *,
    approve: Approve,
    why: str = "",
    instead_of: Approval | None = None,
    proposer: Proposer | None = None,
) -> None:
    """Plan a request for signatures on the operation, and its edge to AWAITING_APPROVAL.

    `why` is what changed since `instead_of` was asked for. `proposer` is who wants this action,
    if not who started the run.
    """
    if proposer is None and instead_of is not None:
        proposer = (instead_of.requester, instead_of.requester_user_id)
    if proposer is None:
        proposer = _find_proposer(work, operation)
    requester, requester_user_id = proposer
    try:
        version, problem = _ask_version(work, operation, spec), ""
    except ResourceUnreadable as error:
        # Asked all the same; a version that can be read later is another one.
        version, problem = "", str(error)
    covered = _cover(
        operation,
        spec,
        policy_version=operation.policy_version,
        resource_version=version,
        requester=requester,
    )
    approval = Approval(
        id=uuid7(),
        operation_id=operation.id,
        status=Status.PENDING,
        fingerprint=fingerprint(covered),
        covered=covered,
        rule=bound_text(operation.policy_rule, TEXT_LIMIT),
        policy_version=operation.policy_version,
        resource_version=version,
        requester=requester,
        requester_user_id=requester_user_id,
        groups=list(approve.groups),
        quorum=approve.quorum,
        escalate_to=list(approve.escalate_to),
        execute_within=approve.execute_by,
        supersedes_id=instead_of.id if instead_of is not None else None,
        asked_because=bound_text("; ".join(one for one in (why, problem) if one), TEXT_LIMIT),
    )
    work.change.new_approvals.append(_with_dates(approval, approve))
    if instead_of is not None:
        work.change.ended_approvals[instead_of.id] = Status.SUPERSEDED
    operation.approval_id = approval.id
    work.move_operation(operation, OperationEvent.HOLD, why or operation.policy_rule)
    work.notify(
        Notice.Kind.APPROVAL_REQUESTED,
        approval.id,
        operation_id=operation.id,
        approval_id=approval.id,
        status=Status.PENDING,
    )


def _find_proposer(work: Work, operation: ToolOperation) -> Proposer:
    """Who wants the action: who started the run, or who had it corrected."""
    if operation.compensates_id is not None and (asked := find_corrector(work.run_id)):
        return asked
    return work.requester, work.requester_user_id


def find_approval(operation: ToolOperation) -> Approval | None:
    """The newest request for a signature on the operation."""
    if operation.approval_id is None:
        return None
    return Approval.objects.filter(id=operation.approval_id).first()


def follow_verdict(work: Work, operation: ToolOperation, approval: Approval) -> None:
    """Plan what a verdict, or the lack of one in time, makes of a held operation."""
    if work.state is not RunState.WAITING_FOR_APPROVAL:
        move_run(work, RunEvent.HOLD)
    status = Status(approval.status)
    match status:
        case Status.APPROVED:
            reason = f"signed by {approval.decided_by}"
            work.move_operation(operation, OperationEvent.APPROVE, reason)
            move_run(work, RunEvent.APPROVE, reason)
        case Status.DENIED:
            error = f"denied by {approval.decided_by}: {approval.reason}"
            end_unsent(work, operation, OperationEvent.DENY, why=NeverSent.DENIED, error=error)
            move_run(work, RunEvent.DENY, operation.error)
        case Status.EXPIRED:
            error = "expired: nobody decided in time"
            end_unsent(work, operation, OperationEvent.EXPIRE, why=NeverSent.EXPIRED, error=error)
            move_run(work, RunEvent.DENY, operation.error)
        case Status.PENDING | Status.CANCELLED | Status.SUPERSEDED:
            raise AssertionError(f"a held operation whose request is {status}")
        case _ as never:
            assert_never(never)


# -- Before a send -------------------------------------------------------------


def admit(work: Work, operation: ToolOperation, spec: ToolSpec) -> Admitted | None:
    """Whether a prepared operation may be sent now; None, with what follows planned, if not."""
    if stop := find_stop_now(work, spec):
        put_off(work, operation, stop, seconds=STOPPED_SECONDS)
        return None
    is_new = any(operation is one for one in work.change.new_operations)
    if is_new and operation.policy_outcome != NEEDED:
        # Judged a moment ago, in this very change.
        return Admitted(None)
    policy = judge(work, operation, spec)
    match policy.outcome:
        case "refuse":
            if put_off_for_sender(work, operation):
                return None
            adopt(operation, policy)
            end_unsent(
                work, operation, OperationEvent.REFUSE, why=NeverSent.REFUSED, error=policy.rule
            )
            move_run(work, RunEvent.DENY, operation.error)
            return None
        case "allow" if not is_held_anyhow(operation):
            if operation.policy_outcome == NEEDED:
                drop_approval(work, operation, Status.SUPERSEDED)
            adopt(operation, policy)
            return Admitted(None)
    return _require_signature(work, operation, spec, policy)


def is_held_anyhow(operation: ToolOperation) -> bool:
    """Whether a person asked for the signature, or a repetition did: then no policy waives it."""
    is_proposed = operation.revision > 0 and operation.policy_outcome == NEEDED
    return operation.repeats_id is not None or is_proposed


def _require_signature(
    work: Work, operation: ToolOperation, spec: ToolSpec, policy: PolicyDecision
) -> Admitted | None:
    approval = find_approval(operation)
    approve = policy.approve or (asked_before(approval) if approval else Approve())
    why = _why_void(approval, approve, now=work.now)
    if not why and approval is not None:
        try:
            version = _ask_version(work, operation, spec)
        except ResourceUnreadable as error:
            seconds = spec.retry_policy.delay(max(1, work.attempt))
            put_off(work, operation, str(error), seconds=seconds)
            return None
        leaving = _cover(
            operation,
            spec,
            policy_version=policy.version,
            resource_version=version,
            requester=approval.requester,
        )
        if fingerprint(leaving) == approval.fingerprint:
            return Admitted(approval)
        changed = ", ".join(differences(approval.covered, leaving))
        why = f"{CHANGED}: {changed or 'the request itself'}"
    if operation.repeats_id is None:
        adopt(operation, policy)
    operation.policy_outcome = NEEDED
    operation.policy_version = policy.version
    ask(work, operation, spec, approve=approve, why=why, instead_of=approval)
    move_run(work, RunEvent.HOLD, why)
    park(work, operation, seconds=None)
    return None


def asked_before(approval: Approval) -> Approve:
    """The terms of an earlier request."""
    return Approve(
        groups=tuple(approval.groups),
        quorum=approval.quorum,
        approve_by=approval.approve_by - approval.requested_at,
        execute_by=approval.execute_within,
        escalate_to=tuple(approval.escalate_to),
    )


def _why_void(approval: Approval | None, approve: Approve, *, now: datetime) -> str:
    """Why a signature allows no send, whatever the action; empty if it may."""
    if approval is None:
        return "policy asks for a signature by now"
    if approval.status != Status.APPROVED:
        return f"the request for it is {approval.status}"
    if approval.spent_at is not None:
        return "its signature was used for an earlier send"
    if approval.execute_by is None or approval.execute_by <= now:
        return "its signature ran out before it was used"
    if asks_more(approve, approval):
        return "policy asks for more signatures by now"
    return ""


def asks_more(approve: Approve, approval: Approval) -> bool:
    """Whether policy asks for signatures that the request did not."""
    return not set(approve.groups) <= set(approval.groups) or approve.quorum > approval.quorum


def put_off(work: Work, operation: ToolOperation, why: str, *, seconds: float) -> None:
    """Leave a prepared operation unsent for so long, and say why."""
    operation.error = bound_text(f"not sent yet: {why}", TEXT_LIMIT)
    work.change.touch(operation)
    park(work, operation, seconds=seconds)


def put_off_for_sender(work: Work, operation: ToolOperation) -> bool:
    """Leave it alone while some worker may yet send it; what ends makes room for another."""
    sender = find_sender_left(operation, pending=work.change.observations)
    if sender is None:
        return False
    why = f"worker {sender or 'without a name'} is not known to have ended, and may yet send it"
    put_off(work, operation, f"{why} as it was; see list_workers", seconds=UNSERVED_SECONDS)
    return True


# -- What the action is --------------------------------------------------------


def _cover(
    operation: ToolOperation,
    spec: ToolSpec,
    *,
    policy_version: str,
    resource_version: str,
    requester: str,
) -> dict[str, Any]:
    return Action(
        operation_id=operation.id,
        run_id=str(operation.run_id),
        step_number=operation.step_number,
        tool=spec.name,
        tool_version=spec.version,
        arguments=operation.arguments,
        provider=spec.provider_name,
        account=spec.account,
        resource_version=resource_version,
        policy_version=policy_version,
        requester=requester,
    ).covered()


def _ask_version(work: Work, operation: ToolOperation, spec: ToolSpec) -> str:
    """The resource's version now. Raises ResourceUnreadable.

    Nothing of what is outdated, whose arguments name a resource only to an earlier tool.
    """
    if spec.resource_version is None or is_outdated(operation, spec):
        return ""
    work.commit_outcomes()
    seconds = spec.timeout_policy.seconds
    work.lease.expect(seconds + margin_seconds())
    return read_resource_version(spec=spec, call=build_call(work, operation, seconds=seconds))


def _with_dates(approval: Approval, approve: Approve) -> NewApproval:
    decide_in = approve.approve_by.total_seconds()
    remind_in = decide_in / 2
    if approve.remind_after is not None:
        remind_in = approve.remind_after.total_seconds()
    escalate_in = None
    if approve.escalate_to:
        escalate_in = decide_in * 3 / 4
        if approve.escalate_after is not None:
            escalate_in = approve.escalate_after.total_seconds()
    return NewApproval(
        approval=approval, decide_in=decide_in, remind_in=remind_in, escalate_in=escalate_in
    )

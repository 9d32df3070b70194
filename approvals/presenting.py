"""Approvals as the JSON that callers read, without what they must not.

Guarantees: arguments are shown complete, as they would be sent, but for the values that a tool
declared sensitive, which are hidden in every text too. A page that `inbox.py` found costs no
query per row.

Does not show what an llm wrote: a description is in the words of the tool.
"""

from approvals import shapes
from approvals.commands import read_missing
from runs.argument_versions import describe_stored
from runs.models import Approval
from runs.sensitive import names_of_operation, without_secrets
from tools.redaction import redact, scrub


def present_approval(approval: Approval) -> shapes.Approval:
    """One approval with its signatures, oldest first; take it from `inbox.py`."""
    operation = approval.operation
    hidden = names_of_operation(operation)
    replaced_by = max(
        approval.superseded_by.all(), key=lambda one: (one.requested_at, one.id), default=None
    )
    proposed = None
    if approval.proposed_arguments is not None:
        proposed = shapes.Proposed(
            arguments=redact(approval.proposed_arguments, hidden), by=approval.proposed_by
        )
    is_pending = approval.status == Approval.Status.PENDING
    return shapes.Approval(
        id=approval.id,
        status=approval.status,  # type: ignore[arg-type]  # the row's choices are the shape's
        operation_id=operation.id,
        run=approval.run_id,
        tool=operation.tool,
        description=describe(approval),
        arguments=redact(operation.arguments, hidden),
        fingerprint=approval.fingerprint,
        policy_version=approval.policy_version,
        resource_version=approval.resource_version,
        rule=approval.rule,
        reason_required=approval.rule,
        requester=approval.requester,
        requested_at=approval.requested_at,
        approve_by=approval.approve_by,
        execute_by=approval.execute_by,
        quorum=max(approval.quorum, len(approval.groups)),
        groups=approval.groups,
        escalate_to=approval.escalate_to,
        escalated_at=approval.escalated_at,
        missing=str(read_missing(approval)) if is_pending else None,
        verdicts=[
            shapes.VerdictGiven(
                user=one.name,
                verdict=one.verdict,  # type: ignore[arg-type]  # as above
                reason=scrub(one.reason, operation.arguments, hidden),
                groups=one.groups,
                via=one.via,
                event_id=one.event_id,
                at=one.at,
            )
            for one in sorted(approval.verdicts.all(), key=lambda one: one.pk)
        ],
        decided_at=approval.decided_at,
        decided_by=approval.decided_by or None,
        asked_because=scrub(approval.asked_because, operation.arguments, hidden),
        reason=scrub(approval.reason, operation.arguments, hidden),
        spent_at=approval.spent_at,
        proposed=proposed,
        supersedes=approval.supersedes_id,
        superseded_by=replaced_by.id if replaced_by is not None else None,
    )


def describe(approval: Approval) -> str:
    """The action in the words of its tool; empty where it has none for these arguments."""
    return without_secrets(describe_stored(approval.operation), approval.operation)

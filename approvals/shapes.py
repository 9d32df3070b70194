"""The JSON that callers read and send about approvals, for the API and `--json` alike.

Guarantees: the published schema is made from these classes, so an answer has exactly the
fields that the schema names; a body with a field that it does not name is refused.

Does not read rows and hides nothing; `presenting.py` does both.
"""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from approvals.models import EVENT_ID
from runs.models import TEXT_LIMIT
from runs.shapes import Shape

# As the rows have them; a test compares.
ApprovalStatus = Literal["pending", "approved", "denied", "expired", "cancelled", "superseded"]


class VerdictGiven(Shape):
    """One person's word. `groups` are those that the person stood for."""

    user: str
    verdict: Literal["approve", "deny", "propose"]
    reason: str
    groups: list[str]
    via: str
    event_id: str | None
    at: datetime


class Proposed(Shape):
    """What a person wants sent in place of what was asked for."""

    arguments: Any
    by: str


class Approval(Shape):
    """One question to people: may exactly this be sent? Sensitive values read `[redacted]`."""

    id: UUID
    status: ApprovalStatus
    operation_id: str
    run: UUID
    tool: str
    description: str = Field(description="the action in the words of its tool; may be empty")
    arguments: Any = Field(description="complete, as they would be sent")
    fingerprint: str = Field(description="of the exact action; a verdict names it")
    policy_version: str
    resource_version: str
    rule: str = Field(description="which rule asks for a signature")
    reason_required: str = Field(description="why a signature is needed, in words")
    requester: str = Field(description="who asks for the action, and may not decide on it")
    requested_at: datetime
    approve_by: datetime
    execute_by: datetime | None = Field(description="null until it is approved")
    quorum: int = Field(description="how many people must sign")
    groups: list[str] = Field(description="each must be represented by a signer of its own")
    escalate_to: list[str]
    escalated_at: datetime | None
    missing: str | None = Field(description="whose signatures are missing, while it is pending")
    verdicts: list[VerdictGiven]
    decided_at: datetime | None
    decided_by: str | None
    asked_because: str = Field(description="what changed since the request that it supersedes")
    reason: str = Field(description="why it was denied, or ended otherwise")
    spent_at: datetime | None = Field(description="when the send that it allowed began")
    proposed: Proposed | None
    supersedes: UUID | None
    superseded_by: UUID | None


class ApprovalPage(Shape):
    """Approvals: pending ones first, the nearest to its end on top; then the newest."""

    next: str | None
    previous: str | None
    results: list[Approval]


class GiveVerdict(BaseModel):
    """The body of `POST approvals/{id}/verdict/`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    verdict: Literal["approve", "deny"]
    fingerprint: str = Field(max_length=80, description="as the approval shows it")
    reason: str = Field(default="", max_length=TEXT_LIMIT, description="required to deny")
    event_id: str = Field(
        default="", max_length=EVENT_ID, description="names the word: heard once however often sent"
    )


class ProposeChange(BaseModel):
    """The body of `POST approvals/{id}/propose/`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    arguments: dict[str, Any] = Field(
        description="all of them; a `[redacted]` one that is sent back stays what it is"
    )
    fingerprint: str = Field(max_length=80, description="as the approval shows it")
    reason: str = Field(max_length=TEXT_LIMIT, description="why; it stands in the record")

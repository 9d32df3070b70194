"""What a lease holder is about to commit, as a value.

Guarantees nothing by itself: `work.py` plans a change edge by edge, `statement.py`
puts it into SQL, `commit.py` writes it.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from runs import events
from runs.models import (
    AgentRun,
    Approval,
    Handoff,
    Incident,
    LlmRequest,
    Notice,
    Question,
    ToolObservation,
    ToolOperation,
    Wait,
)
from runs.state import OperationStatus

# Who waits for an answer until then is told besides: what is committed now may come too late.
NEARLY_OVER: Final = timedelta(seconds=5)


@dataclass(frozen=True)
class Edge:
    """One journal row: an edge of the run, or of one of its operations."""

    event: str
    from_state: str
    to_state: str
    reason: str
    step_number: int
    attempt: int
    operation_id: str | None = None


@dataclass(frozen=True)
class NewDecision:
    kind: str
    body: dict[str, Any]
    decider: str
    agent_version: str
    tool_versions: dict[str, str]
    prompt_version: str = ""
    llm_version: str = ""
    policy_version: str = ""
    # Not written: what the run's count of failures was before this decision was planned.
    failures_before: int = 0
    # Nor these: the ids of its operations, where whoever called gave them.
    operation_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class NewApproval:
    """A request for signatures, with its dates in seconds from the commit."""

    approval: Approval
    decide_in: float
    remind_in: float
    escalate_in: float | None


@dataclass(frozen=True)
class NewWait:
    """What the open step waits for, `seconds` from the commit at the most; None is no end."""

    kind: Wait.Kind
    name: str
    step_number: int
    seconds: float | None


@dataclass(frozen=True)
class EndedWait:
    """How the wait of the open step ended, and the signal that ended it."""

    outcome: Wait.Outcome
    step_number: int
    result: Any = None
    author: str = ""
    signal_id: int | None = None


@dataclass(frozen=True)
class NewQuestion:
    """A question, with its dates in seconds from the commit."""

    question: Question
    answer_in: float | None
    remind_in: float | None
    escalate_in: float | None


@dataclass(frozen=True)
class SettledCall:
    """A call that came to its end, under the id that its caller knows.

    `is_late`: its caller was answered before, or will be, that it takes long.
    """

    operation_id: str
    status: OperationStatus
    is_late: bool


@dataclass(frozen=True)
class Release:
    """Give the lease back. A worker is due again after `wake_in` seconds, or never (None).

    Whoever made the run due while it was held, after `held_since`, is heeded: the holder may
    have read the rows before.

    Where the run could be cancelled as it stands (`can_cancel`), a request that came in
    meanwhile makes it due at once: the requester found it held and relies on that.
    """

    wake_in: float | None
    can_cancel: bool
    held_since: datetime | None = None


@dataclass
class Change:
    """What happened since the last commit, not yet written."""

    edges: list[Edge] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    open_step: int | None = None
    open_attempt: int | None = None
    # How the attempt ended that this very change opens, if it goes no further.
    opened_outcome: str = ""
    close_attempt: str = ""
    close_step: bool = False
    decision: NewDecision | None = None
    checkpoint: dict[str, Any] | None = None
    llm_requests: list[LlmRequest] = field(default_factory=list)
    new_handoff: Handoff | None = None
    new_operations: list[ToolOperation] = field(default_factory=list)
    moved_operations: list[ToolOperation] = field(default_factory=list)
    observations: list[ToolObservation] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    new_approvals: list[NewApproval] = field(default_factory=list)
    # Approvals that lose their force unless they are spent: by id, the status they end in.
    ended_approvals: dict[UUID, Approval.Status] = field(default_factory=dict)
    # The whole change is written only if each of these may be spent at that moment.
    spent_approvals: set[UUID] = field(default_factory=set)
    # Given back, because the send that spent them provably did not leave.
    returned_approvals: set[UUID] = field(default_factory=set)
    # Gateway calls that the decision of this change is about.
    taken_calls: list[int] = field(default_factory=list)
    new_wait: NewWait | None = None
    ended_wait: EndedWait | None = None
    new_question: NewQuestion | None = None
    new_children: list[AgentRun] = field(default_factory=list)
    # With which of these begin.
    handed_over: list[Handoff] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    # What nobody took up is never done: the run ends.
    drops_calls: bool = False
    # Of which those are told that do not wait for the answer any more.
    settled_calls: list[SettledCall] = field(default_factory=list)
    # Told once this is written, and not before.
    told: list[tuple[events.Name, dict[str, Any]]] = field(default_factory=list)
    lease_seconds: float | None = None
    release: Release | None = None

    def __bool__(self) -> bool:
        return self != Change()

    def touch(self, operation: ToolOperation) -> None:
        """Write this operation's row as it will stand when the change is committed."""
        known = (*self.new_operations, *self.moved_operations)
        if not any(operation is one for one in known):
            self.moved_operations.append(operation)

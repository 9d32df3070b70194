"""A run as the holder of its lease sees it, and the change it is about to commit.

Guarantees: every state in memory was reached by a legal edge, and each edge has a
journal row in the pending change; `commit` writes all of it or raises `LeaseLost`.

Does not decide what to do next; `engine.py` does.
"""

import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from psycopg.pq import TransactionStatus

from runs import events
from runs.agents import may_be_called
from runs.budgets import Spent
from runs.called import Called
from runs.change import NEARLY_OVER, Change, Edge, Release, SettledCall
from runs.commit import Written, commit_if_held, read_back, require_no_transaction, write_if_held
from runs.context import BadAnswer, Observed
from runs.decisions import Decision
from runs.handoff_rows import Handed
from runs.history import Origin
from runs.lease import Lease
from runs.models import (
    TEXT_LIMIT,
    Incident,
    NeverSent,
    Notice,
    ToolObservation,
    ToolOperation,
    Wait,
)
from runs.state import (
    FINAL_STATES,
    RUN_EDGES,
    SETTLED_STATUSES,
    OperationEvent,
    OperationStatus,
    RunEvent,
    RunState,
    next_operation_status,
    next_run_state,
)
from runs.statement import Held
from tools.redaction import bound_text

# What somebody outside may wait for: an end, or that it will take long.
_TOLD_OUTSIDE: Final = SETTLED_STATUSES | {
    OperationStatus.AWAITING_APPROVAL,
    OperationStatus.UNKNOWN,
}


@dataclass(frozen=True)
class Judgement:
    """Under which policies an operation was judged, and whether they count in a window."""

    generation: int
    counts: bool


@dataclass(frozen=True)
class Saga:
    """Why the run corrects what it did, and the state that it ends in."""

    since: datetime
    reason: str
    ending: RunState


@dataclass
class Work:
    """One claimed run. Fields mirror the rows as they will stand after `commit`."""

    lease: Lease
    run_id: UUID
    agent: str
    # Pinned: the version that decides for the run.
    agent_version: str
    objective: str
    input: Any
    created_at: datetime
    state: RunState
    version: int
    step_number: int
    failures: int
    cancel_requested_by: str | None
    requester: str
    requester_user_id: int | None
    # Of the policies, as the last statement of this run saw them.
    policy_generation: int
    is_paused: bool
    clock: tuple[datetime, float]
    # What it has spent, and its own limits in place of its agent's.
    spent: Spent
    budget: dict[str, Any] | None
    labels: dict[str, str] = field(default_factory=dict)
    cancel_compensates: bool = False
    saga: Saga | None = None
    parent_id: UUID | None = None
    root: UUID | None = None
    depth: int = 0
    priority: int = 0
    origin: Origin | None = None
    # Names the runs whose intents count as this one's.
    lineage: UUID | None = None
    # Of the request that started it.
    traceparent: str = ""
    inherited_steps: int = 0
    voided_steps: int = 0
    setbacks: int = 0
    newest_action: str = ""
    repeats: int = 0
    due_at: datetime | None = None
    step_id: int | None = None
    attempt: int = 0
    attempt_id: int | None = None
    # Attempts of the open step whose worker died or gave up, the newest ones in a row.
    lost_attempts: int = 0
    # What was wrong with answers of an llm in the open step, oldest first.
    bad_answers: list[BadAnswer] = field(default_factory=list)
    wait: Wait | None = None
    decision: Decision | None = None
    operations: list[ToolOperation] = field(default_factory=list)
    # By operation id: in how many seconds those that must wait are due again, None for not by
    # themselves. Not looked at yet is None itself.
    parked: dict[str, float | None] | None = None
    # What may be under way is settled, and all else is left to workers that serve its agent.
    settles_only: bool = False
    # By operation id: how policy judged those that this holder planned or admitted.
    judged: dict[str, Judgement] = field(default_factory=dict)
    change: Change = field(default_factory=Change)
    # Loaded when a decider is first asked, then kept up to date in memory.
    window: deque[Observed] | None = None
    # The newest that counts, loaded with the window: what came before it is not in there.
    handoff: Handed | None = None
    # What its agent, which runs elsewhere, asked for and was not taken up: loaded once per claim.
    called: Called | None = None
    # Open from a TRANSACTIONAL tool's call until the commit that records its outcome.
    open_transaction: transaction.Atomic | None = None

    @property
    def now(self) -> datetime:
        """The database's time, carried on by this process's monotonic clock."""
        at, monotonic = self.clock
        return at + timedelta(seconds=time.monotonic() - monotonic)

    @property
    def open_step_id(self) -> int:
        """The open step's id, which exists from the commit that opened it."""
        assert self.step_id is not None, "a step is committed before anything hangs on it"
        return self.step_id

    @property
    def position(self) -> int:
        """The open step's place in the plan, from 1."""
        return self.step_number - self.voided_steps + self.inherited_steps

    def move(self, event: RunEvent, reason: str = "") -> None:
        """Plan the run's edge; raises `IllegalTransition` before anything is written."""
        target = next_run_state(state=self.state, event=event)
        self._journal(event, self.state, target, reason)
        self.state = target
        self.change.run["state"] = str(target)

    def move_operation(
        self, operation: ToolOperation, event: OperationEvent, reason: str = ""
    ) -> None:
        """Plan an operation's edge, and its row as it stands then."""
        before = OperationStatus(operation.status) if operation.status else None
        target = next_operation_status(status=before, event=event)
        self._journal(event, before or "", target, reason, operation.id)
        operation.status = target
        if target in _TOLD_OUTSIDE and operation.never_sent != NeverSent.CHANGED:
            self.tell(events.Name.OPERATION_STANDS, operation, status=target)
        if target in SETTLED_STATUSES and may_be_called(self.agent):
            self._tell_caller(operation, before)
        if before is None:
            self.change.new_operations.append(operation)
        else:
            self.change.touch(operation)

    def observe(self, observation: ToolObservation) -> None:
        self.change.observations.append(observation)

    def open_incident(
        self, operation: ToolOperation, *, kind: Incident.Kind, detail: str, external_ref: str = ""
    ) -> None:
        """Plan an incident; the same finding again is none."""
        self.change.incidents.append(
            Incident(
                operation_id=operation.id,
                kind=kind,
                external_ref=external_ref,
                detail=bound_text(detail, TEXT_LIMIT),
            )
        )
        self.tell(events.Name.INCIDENT, operation, kind=kind.value)

    def notify(
        self,
        kind: Notice.Kind,
        subject: object,
        *,
        operation_id: str = "",
        approval_id: UUID | None = None,
        question_id: UUID | None = None,
        status: str = "",
    ) -> None:
        """Plan a notice; one of the same kind and subject that exists already is none."""
        self.change.notices.append(
            Notice(
                event_id=f"{kind.value}:{subject}",
                kind=kind,
                operation_id=operation_id,
                approval_id=approval_id,
                question_id=question_id,
                status=status,
            )
        )

    def pause(self, reason: str) -> None:
        """Plan that no step is opened and nothing new is sent until a person resumes the run."""
        self.is_paused = True
        self.change.run |= {"paused_at": self.now, "pause_reason": bound_text(reason, TEXT_LIMIT)}
        self.notify(Notice.Kind.RUN_PAUSED, f"{self.run_id}:{self.step_number}:{self.version}")

    def spend(self, spent: Spent) -> None:
        """Plan what the run has spent by then, reservations included."""
        for name in ("steps", "tokens", "cost_usd"):
            if (now := getattr(spent, name)) != getattr(self.spent, name):
                self.change.run[f"spent_{name}"] = now
        self.spent = spent

    def tell(self, name: events.Name, operation: ToolOperation, **fields: Any) -> None:
        """Emit an event about the operation once what is pending is written."""
        self.change.told.append((name, self.about(operation) | fields))

    def about(self, operation: ToolOperation | None = None) -> dict[str, Any]:
        """What an event is about: ids, names and counts."""
        about: dict[str, Any] = {"run_id": self.run_id, "agent": self.agent}
        about |= {"step_number": self.step_number, "fence_token": self.lease.fence_token}
        if operation is not None:
            about |= {"operation_id": operation.id, "tool": operation.tool}
            about |= {"attempt": operation.attempts}
        return about

    def commit(self) -> None:
        """Write what is pending, if anything; raises `LeaseLost`."""
        if not self.change:
            return
        asked_at = time.monotonic()
        held = Held(
            run_id=self.run_id,
            version=self.version,
            fence_token=self.lease.fence_token,
            actor=self.lease.owner,
            step_id=self.step_id,
            attempt_id=self.attempt_id,
        )
        if self.open_transaction is None:
            written = commit_if_held(held, self.change)
        else:
            written = self._commit_transaction(held)
        self.version = written.version
        self.cancel_compensates = written.cancel_compensates
        # What is being corrected is not cancelled in the middle.
        self.cancel_requested_by = written.cancel_requested_by if self.saga is None else None
        self.is_paused = written.is_paused
        self.policy_generation = written.policy_generation
        has_closed = self.change.close_step
        self.step_id = written.step_id or (None if has_closed else self.step_id)
        self.attempt_id = written.attempt_id or (None if has_closed else self.attempt_id)
        self.lease.extend(asked_at=asked_at, left=written.lease_left)
        for operation in self.change.new_operations:
            if self.step_id is not None:
                operation.step_id = self.step_id
        told, self.change = self.change.told, Change()
        for name, fields in told:
            events.emit(name, **fields)

    def commit_outcomes(self) -> None:
        """Write what calls came to, before anything that may fail or take long.

        What else is pending can be planned again; an answer cannot be had a second time.
        """
        if self.change.observations:
            self.commit()

    def commit_opening(self) -> None:
        """Write the opening of a step that is about to end: no commit does both."""
        if self.change.open_step is not None and self.step_id is None:
            self.commit()

    def begin_transaction(self) -> None:
        """Let what follows on this connection commit with the next `commit`, or not at all."""
        require_no_transaction()
        self.open_transaction = transaction.atomic(durable=True)
        self.open_transaction.__enter__()

    def roll_back(self) -> None:
        """Undo an open transaction, and forget what was learned in it; harmless without one."""
        if self.open_transaction is None:
            return
        begun, self.open_transaction = self.open_transaction, None
        self.change.observations = []
        try:
            connection.needs_rollback = True
            begun.__exit__(None, None, None)
        except Exception:  # noqa: BLE001  the server undoes what a broken connection began
            connection.close()
        if connection.in_atomic_block:
            # The tool opened a block and never left it.
            connection.close()
            del connections[DEFAULT_DB_ALIAS]

    def is_transaction_whole(self) -> bool:
        """Whether the tool left the transaction as it found it, so that a commit commits."""
        began = connection.in_atomic_block and not connection.needs_rollback
        if not began or connection.savepoint_ids or connection.connection is None:
            return False
        # An error that the tool swallowed is known to the server alone.
        status = connection.connection.info.transaction_status
        return status in (TransactionStatus.IDLE, TransactionStatus.INTRANS)

    def _commit_transaction(self, held: Held) -> Written:
        assert self.open_transaction is not None, "called for an open transaction"
        try:
            written = write_if_held(held, self.change)
        except BaseException:
            self.roll_back()
            raise
        begun, self.open_transaction = self.open_transaction, None
        try:
            begun.__exit__(None, None, None)
        except Exception:
            # Committed or not, the error says neither; nobody else writes under our token.
            connection.close()
            if (found := read_back(held)) is None:
                self.change.observations = []
                raise
            written = found
        events.emit(events.Name.COMMIT_DONE, run_id=self.run_id, fence_token=held.fence_token)
        return written

    def release(
        self, *, wake_in: float | None, attempt_outcome: str = "parked", heed_cancel: bool = True
    ) -> None:
        """Give the lease back together with what is pending.

        Without `heed_cancel` a request to cancel does not make the run due earlier.
        """
        if self.change.open_attempt is not None:
            self.change.opened_outcome = attempt_outcome
        elif self.attempt_id is not None and not self.change.close_attempt:
            self.change.close_attempt = attempt_outcome
        may_cancel = self.saga is None and (self.state, RunEvent.CANCEL) in RUN_EDGES
        can_cancel = heed_cancel and may_cancel
        held_since = None if self.state in FINAL_STATES else self.clock[0]
        self.change.release = Release(wake_in=wake_in, can_cancel=can_cancel, held_since=held_since)
        self.commit()

    def _tell_caller(self, operation: ToolOperation, before: OperationStatus | None) -> None:
        """Plan that whoever called hears of the end, unless it is what they wait for."""
        if operation.never_sent == NeverSent.CHANGED:
            return
        first = operation.id
        if operation.revision:
            place = [one for one in self.operations if one.ordinal == operation.ordinal]
            first = next((one.id for one in place if not one.revision), first)
        is_late = before is OperationStatus.UNKNOWN or operation.attempts > 1
        is_late = is_late or operation.approval_id is not None
        answer_by = self.called.answer_by.get(first) if self.called is not None else None
        if is_late or answer_by is None or answer_by <= self.now + NEARLY_OVER:
            status = OperationStatus(operation.status)
            self.change.settled_calls.append(SettledCall(first, status, is_late))

    def _journal(
        self, event: str, before: str, after: str, reason: str, operation_id: str | None = None
    ) -> None:
        self.change.edges.append(
            Edge(
                event=event,
                from_state=before,
                to_state=after,
                reason=bound_text(reason, TEXT_LIMIT),
                step_number=self.step_number,
                attempt=self.attempt,
                operation_id=operation_id,
            )
        )

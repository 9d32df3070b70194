"""Every condition that the kernel reports, one class each.

RunsError
├── LeaseLost            another worker may hold the run: stop, write nothing
├── NotPermitted         the actor lacks a scope
├── UnknownAgent         no agent of that name is registered
├── UnknownRun           no run of that id
├── UnknownOperation     no operation of that id
├── KeyReused            an idempotency key came back with another request
├── KeyInUse             the first request with this key is still being written
├── InvalidInput         a field of a request cannot be stored
├── WrongState           the run's state does not allow the request
├── ParentDecides        the run's parent is to be asked instead
├── ParentHeld           a worker holds the run's parent at this moment
├── NothingToCorrect     the run has no committed effect that is not corrected
├── AlreadyCorrected     what the run did was corrected: it cannot go on from it
├── OneCall              the run is one call from outside, which has its answer
├── OverBudget           the run cannot go on within its budget
├── EventReused          an event id came back with another signal
├── TooManySignals       the run has not taken the signals that it was sent
├── AlreadySettled       the operation is not unknown: there is nothing to settle
├── StillInFlight        an earlier send is on its way: nobody can know yet that it fails
├── ProvenCommitted      our own evidence proves the effect that a person denies
├── ProvenRefused        the answer to the only send was a refusal
├── RunHeld              a worker holds the run at this moment
├── UndecodableDecision  a stored decision has an unknown form
├── UndecodableHandoff   a stored handoff has an unknown form
├── DeciderUnavailable   the agent's decider cannot be asked here
├── LlmUnavailable       no llm answered: it is asked again later
├── UnusableAnswer       an llm answered what makes no decision
├── ResultDoesNotFit     a final result is not what its agent declares
├── SignatureGone        a signature that a change would spend can be spent no more
├── IntentTaken          another operation holds the intent of a planned one
├── UnknownSchedule      no schedule of that name
├── InvalidSchedule      a schedule has mistakes in it
├── ScheduleChanged      somebody saved the schedule meanwhile
├── NoEffect             the operation had no effect that could be corrected
├── EffectCorrected      the operation's effect was corrected before
├── BeingCorrected       a compensation of the operation may yet take effect
└── InsideTransaction    a lease holder's commit was tried inside a transaction
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches

from tools.errors import Problem


class RunsError(Exception):
    """Base of all conditions below."""


class LeaseLost(RunsError):
    def __init__(self, *, run_id: str, fence_token: int) -> None:
        self.run_id, self.fence_token = run_id, fence_token
        super().__init__(f"Run {run_id} is no longer held under token {fence_token}.")


class NotPermitted(RunsError):
    def __init__(self, *, actor: str, scope: str) -> None:
        self.actor, self.scope = actor, scope
        super().__init__(f"{actor} lacks the scope {scope!r}; use a token that has it.")


class UnknownAgent(RunsError):
    def __init__(self, *, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = sorted(known)
        close = get_close_matches(name, self.known, n=1)
        if close:
            fix = f"Did you mean {close[0]!r}?"
        elif self.known:
            fix = f"Registered: {', '.join(self.known)}."
        else:
            fix = "No agent is registered; list the Django apps that hold yours in AGENTOPS_APPS."
        self.fix = fix
        super().__init__(f"agent: no agent is called {name!r}. {fix}")


class UnknownRun(RunsError):
    def __init__(self, *, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"run: there is no run {run_id!r}; list_runs shows those that exist.")


class UnknownOperation(RunsError):
    def __init__(self, *, operation_id: str) -> None:
        self.operation_id = operation_id
        super().__init__(
            f"operation: there is no operation {operation_id!r}; "
            "list_operations shows those that exist."
        )


class KeyReused(RunsError):
    def __init__(self, *, key: str, run_id: str) -> None:
        self.key, self.run_id = key, run_id
        super().__init__(
            f"Idempotency-Key: {key!r} already names run {run_id} with another request; "
            "use a new key for a new request."
        )


class KeyInUse(RunsError):
    def __init__(self, *, key: str) -> None:
        self.key = key
        super().__init__(
            f"Idempotency-Key: the first request with {key!r} is still in flight; try again."
        )


class InvalidInput(RunsError):
    def __init__(self, *, field: str, value: str, fix: str) -> None:
        self.field, self.value, self.fix = field, value, fix
        super().__init__(f"{field}: {value} is not possible. {fix}")


class WrongState(RunsError):
    def __init__(self, *, run_id: str, state: str, request: str) -> None:
        self.run_id, self.state, self.request = run_id, state, request
        super().__init__(f"Run {run_id} is {state}: it can no longer be asked to {request}.")


class AlreadySettled(RunsError):
    def __init__(self, *, operation_id: str, status: str) -> None:
        self.operation_id, self.status = operation_id, status
        super().__init__(
            f"Operation {operation_id} is {status}, not UNKNOWN: there is nothing to settle."
        )


class StillInFlight(RunsError):
    """Until `until`; or, where that is None, until its `sender` is known to have ended."""

    def __init__(self, *, operation_id: str, until: datetime | None, sender: str = "") -> None:
        self.operation_id, self.until, self.sender = operation_id, until, sender
        if until is not None:
            why = (
                f"an earlier send is on its way until {until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
            )
        else:
            why = (
                f"its sender, {sender or 'a worker'}, is not known to have ended "
                "(`worker_ended` says so)"
            )
        super().__init__(
            f"Operation {operation_id}: {why}, so it may yet take effect; until then it can only "
            "be settled as committed."
        )


class ProvenCommitted(RunsError):
    def __init__(self, *, operation_id: str, source: str, external_ref: str) -> None:
        self.operation_id, self.source, self.external_ref = operation_id, source, external_ref
        named = f" ({external_ref})" if external_ref else ""
        super().__init__(
            f"Operation {operation_id}: {source} proves that it happened{named}; it can only be "
            "settled as committed."
        )


class ProvenRefused(RunsError):
    def __init__(self, *, operation_id: str, refusal: str) -> None:
        self.operation_id, self.refusal = operation_id, refusal
        super().__init__(
            f"Operation {operation_id}: the answer to its only send was a refusal ({refusal}); it "
            "cannot be settled as committed."
        )


class RunHeld(RunsError):
    def __init__(self, *, run_id: str, operation_id: str) -> None:
        self.run_id, self.operation_id = run_id, operation_id
        super().__init__(
            f"Operation {operation_id}: a worker is asking the provider at this moment; "
            "try again in a moment."
        )


class UndecodableDecision(RunsError):
    def __init__(self, *, where: str, why: str) -> None:
        self.where, self.why = where, why
        super().__init__(f"The decision of {where} cannot be read: {why}.")


class UndecodableHandoff(RunsError):
    def __init__(self, *, where: str, why: str) -> None:
        self.where, self.why = where, why
        super().__init__(f"The artifact of {where} cannot be read: {why}.")


class DeciderUnavailable(RunsError):
    def __init__(self, *, decider: str, why: str) -> None:
        self.decider, self.why = decider, why
        super().__init__(f"{decider} cannot decide: {why}.")


class LlmUnavailable(RunsError):
    """`retry_in` is when the provider wants to be asked again, in seconds, if it said so.

    `needs_person` says that asking again will not help before somebody has mended something.
    """

    def __init__(
        self, *, llm: str, why: str, retry_in: float | None = None, needs_person: bool = False
    ) -> None:
        self.llm, self.why, self.retry_in = llm, why, retry_in
        self.needs_person = needs_person
        super().__init__(f"llm {llm} did not answer: {why}.")


class UnusableAnswer(RunsError):
    """`kind` is one of `LlmRequest.Problem`; `detail` is what the llm is told of it."""

    def __init__(self, *, llm: str, kind: str, detail: str) -> None:
        self.llm, self.kind, self.detail = llm, kind, detail
        super().__init__(f"llm {llm} gave no usable answer ({kind}): {detail}.")


class ResultDoesNotFit(RunsError):
    """`problems` name fields, and never what was given for them."""

    def __init__(self, *, output: str, problems: Sequence[str]) -> None:
        self.output, self.problems = output, tuple(problems)
        super().__init__(f"the result does not fit {output}: {'; '.join(problems)}")


class InsideTransaction(RunsError):
    def __init__(self) -> None:
        super().__init__(
            "Claims and commits of a run stand alone: inside a transaction they would not be "
            "durable before the call that follows. Leave transaction.atomic() first."
        )


class SignatureGone(RunsError):
    """Raised to the engine alone, which gives the run back to be judged anew."""

    def __init__(self, *, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"A signature that run {run_id} would spend ran out at this moment.")


class IntentTaken(RunsError):
    """Raised to the engine alone, which plans the decision's calls again as repeats."""

    def __init__(self, *, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"A call that run {run_id} planned has an intent that is held already.")


class ParentDecides(RunsError):
    def __init__(self, *, run_id: str, parent_id: str, request: str, why: str) -> None:
        self.run_id, self.parent_id, self.request = run_id, parent_id, request
        super().__init__(
            f"Run {run_id} was started by run {parent_id}, which {why}; ask that run to {request}."
        )


class ParentHeld(RunsError):
    def __init__(self, *, run_id: str, parent_id: str) -> None:
        self.run_id, self.parent_id = run_id, parent_id
        super().__init__(
            f"Run {run_id} was started by run {parent_id}, where a worker is at work at this "
            "moment; try again in a moment."
        )


class NothingToCorrect(RunsError):
    def __init__(self, *, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"Run {run_id} has no committed effect that is not corrected yet.")


class OneCall(RunsError):
    def __init__(self, *, run_id: str, request: str) -> None:
        self.run_id, self.request = run_id, request
        super().__init__(
            f"Run {run_id} is one call from outside, and for ever what that came to: it cannot be "
            f"asked to {request}. Send the call again under a new key."
        )


class AlreadyCorrected(RunsError):
    def __init__(self, *, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"What run {run_id} did was corrected, so it cannot go on from there; fork it from an "
            "earlier step, or start a new run."
        )


class OverBudget(RunsError):
    def __init__(self, *, run_id: str, breach: str) -> None:
        self.run_id, self.breach = run_id, breach
        super().__init__(f"Run {run_id} cannot go on: {breach}. Resume it with more.")


class EventReused(RunsError):
    def __init__(self, *, event_id: str, run_id: str) -> None:
        self.event_id, self.run_id = event_id, run_id
        super().__init__(
            f"event_id: {event_id!r} already names another signal to run {run_id}; use a new id "
            "for a new signal."
        )


class TooManySignals(RunsError):
    def __init__(self, *, run_id: str, limit: int) -> None:
        self.run_id, self.limit = run_id, limit
        super().__init__(
            f"Run {run_id} has {limit:,} signals that it has not taken yet; it can be sent more "
            "once it does."
        )


class UnknownSchedule(RunsError):
    def __init__(self, *, name: str) -> None:
        self.name = name
        super().__init__(
            f"name: there is no schedule {name[:80]!a}; list_schedules shows those that exist."
        )


class InvalidSchedule(RunsError):
    """`problems` has one entry for each mistake."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class ScheduleChanged(RunsError):
    """Nothing of this save was written."""

    def __init__(self, *, name: str, saved_by: str) -> None:
        self.name, self.saved_by = name, saved_by
        super().__init__(
            f"name: {saved_by} saved schedule {name!r} meanwhile. Look at it, then save again."
        )


class NoEffect(RunsError):
    def __init__(self, *, operation_id: str, status: str) -> None:
        self.operation_id, self.status = operation_id, status
        super().__init__(
            f"Operation {operation_id} is {status} and has no effect of its own that is known: "
            "there is nothing to correct."
        )


class EffectCorrected(RunsError):
    def __init__(self, *, operation_id: str) -> None:
        self.operation_id = operation_id
        super().__init__(f"The effect of operation {operation_id} was corrected before.")


class BeingCorrected(RunsError):
    def __init__(self, *, operation_id: str, compensation_id: str, status: str) -> None:
        self.operation_id, self.compensation_id = operation_id, compensation_id
        self.status = status
        super().__init__(
            f"Operation {operation_id} may yet be corrected by operation {compensation_id}, which "
            f"is {status}; settle or deny that one first."
        )

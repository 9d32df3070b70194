"""Reading an operation's observations: what proves it, refuses it, and ended its sends.

Guarantees: evidence counts whoever brought it; a person's word is evidence like any other.
A send counts as ended only by its own function's return or by the known end of the worker
process that made it.

Does not write anything and does not conclude: `recovery.py` does.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from runs.models import TEXT_LIMIT, StepAttempt, ToolObservation, ToolOperation, Worker
from runs.recovery import Proof
from runs.settling import Send, Settling, settle
from tools import EffectType, Reconciled
from tools.redaction import bound_text, scrub

# Of further effects that one look-up reports, so many are written down.
MOST_FURTHER: Final = 20
REFERENCE_LIMIT: Final = 255
Source = ToolObservation.Source
Verdict = ToolObservation.Verdict
_WHERE_FROM: Final = {
    Source.LOOK_UP: "the provider's look-up",
    Source.STALE_WORKER: "the late answer to an earlier worker",
    Source.PERSON: "a person's word",
}


def find_proof(evidence: Iterable[ToolObservation]) -> Proof | None:
    """The first observation that says it happened."""
    for seen in evidence:
        if seen.verdict == Verdict.COMMITTED:
            return Proof(
                result=seen.result,
                external_ref=seen.external_ref,
                source=_WHERE_FROM.get(Source(seen.source), "an answer"),
            )
    return None


def find_refusal(evidence: Sequence[ToolObservation]) -> str | None:
    """The newest refusal, if it is the newest answer to a send."""
    for seen in reversed(evidence):
        if seen.source not in (Source.LOOK_UP, Source.TAKE_OVER):
            return seen.detail if seen.verdict == Verdict.REJECTED else None
    return None


def has_nothing_left(operation: ToolOperation, evidence: Sequence[ToolObservation]) -> bool:
    """Whether every send came back, and none of them had left this side."""
    said = {
        seen.attempt: seen.verdict
        for seen in evidence
        if seen.source in (Source.WORKER, Source.STALE_WORKER)
    }
    sends = range(1, operation.attempts + 1)
    return all(said.get(number) == Verdict.NOT_SENT for number in sends)


def read_settling(
    operation: ToolOperation,
    evidence: Sequence[ToolObservation],
    *,
    window: timedelta,
    now: datetime,
) -> Settling:
    """How far it is settled that the operation did not happen."""
    sends = read_sends(operation, evidence)
    negatives = [
        _asked_at(seen)
        for seen in evidence
        if seen.source == Source.LOOK_UP and seen.verdict == Verdict.NOT_FOUND
    ]
    return settle(sends=sends, negatives=negatives, window=window, now=now)


def find_sender_left(
    operation: ToolOperation, *, pending: Iterable[ToolObservation] = ()
) -> str | None:
    """A worker that is not known to have ended and may yet send the operation: nothing is to be
    sent in its place, since another key joins no two sends. Empty where its name is not known.

    `pending` is evidence that is not written yet.
    """
    harmless = (EffectType.READ, EffectType.TRANSACTIONAL)
    if not operation.attempts or operation.effect_type in harmless:
        return None
    evidence = [*operation.observations.order_by("id")]
    evidence += [seen for seen in pending if seen.operation_id == operation.id]
    sends = read_sends(operation, evidence)
    return next((send.worker for send in sends if send.ended_at is None), None)


def read_sends(operation: ToolOperation, evidence: Sequence[ToolObservation]) -> list[Send]:
    """Every send begun, oldest first, with its worker where it is not known to have ended."""
    returned: dict[int, datetime] = {}
    tokens = {operation.attempts: operation.fence_token}
    for seen in evidence:
        if seen.source in _OF_A_SEND:
            tokens[seen.attempt] = seen.fence_token
        # Past its deadline a function may go on: then only a later word of it is its return.
        if seen.source in _BY_ITS_SENDER and "returned_at" in (seen.window or {}):
            returned[seen.attempt] = seen.observed_at
    numbers = range(1, operation.attempts + 1)
    out = [tokens[number] for number in numbers if number in tokens and number not in returned]
    senders = _senders(operation, out) if out else {}
    return [
        Send(number=number, worker="", ended_at=returned[number])
        if number in returned
        else Send(number, *senders.get(tokens.get(number, 0), ("", None)))
        for number in numbers
    ]


_BY_ITS_SENDER: Final = (Source.WORKER, Source.STALE_WORKER)
_OF_A_SEND: Final = (*_BY_ITS_SENDER, Source.TAKE_OVER)


def _senders(operation: ToolOperation, tokens: list[int]) -> dict[int, tuple[str, datetime | None]]:
    """By fencing token: the worker that sent under it, and when it is known to have ended."""
    attempts = StepAttempt.objects.filter(step_id=operation.step_id, fence_token__in=tokens)
    by_token = dict(attempts.values_list("fence_token", "worker"))
    ends = dict(
        Worker.objects.filter(name__in=by_token.values(), ended_at__isnull=False).values_list(
            "name", "ended_at"
        )
    )
    return {token: (worker, ends.get(worker)) for token, worker in by_token.items()}


def observe_look_up(
    operation: ToolOperation, found: Reconciled[object], *, asked_at: datetime, fence_token: int
) -> ToolObservation:
    """What a look-up that began at `asked_at` said, as evidence that is not written yet."""
    verdict = Verdict.FAILED if found.failed else Verdict(found.verdict)
    also = [bound_text(one, REFERENCE_LIMIT) for one in found.also[:MOST_FURTHER]]
    detail = scrub(found.why or "", operation.arguments, operation.sensitive)
    return ToolObservation(
        operation_id=operation.id,
        run_id=operation.run_id,
        source=Source.LOOK_UP,
        verdict=verdict,
        detail=bound_text(detail, TEXT_LIMIT),
        result=found.result,
        external_ref=found.external_ref or "",
        attempt=operation.attempts,
        fence_token=fence_token,
        # What the provider said is true of no later moment than this one.
        window={"opened_at": asked_at.isoformat()},
        also=also or None,
    )


def _asked_at(seen: ToolObservation) -> datetime:
    opened_at = (seen.window or {}).get("opened_at")
    return datetime.fromisoformat(opened_at) if opened_at else seen.observed_at

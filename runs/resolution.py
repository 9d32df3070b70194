"""A person's word on an unknown operation.

Guarantees: a resolution is a permitted, evidenced and journaled transition through the same
door as a worker's: under a lease of its own and the next fencing token, so that it and a
worker never both conclude. What is settled stays settled.

Does not verify the evidence, and does not wait for a worker that is asking the provider at
this moment: the caller is told, and tries again.
"""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Literal, assert_never, get_args

from runs.access import OPERATIONS_RESOLVE, Actor
from runs.argument_versions import is_outdated
from runs.change import Change
from runs.errors import (
    AlreadySettled,
    InvalidInput,
    LeaseLost,
    ProvenCommitted,
    ProvenRefused,
    RunHeld,
    StillInFlight,
    UndecodableDecision,
    UnknownOperation,
)
from runs.evidence import find_proof, find_refusal, read_settling
from runs.lease import Claimed, claim
from runs.loading import begin, load
from runs.models import TEXT_LIMIT, ToolObservation, ToolOperation
from runs.outcomes import (
    commit_operation,
    establish_not_sent,
    lose_all_outcomes,
    reject_operation,
)
from runs.reconciliation import key_standing
from runs.recovery import stricter
from runs.state import OperationStatus
from runs.wake import hint
from runs.work import Work
from tools import EffectType
from tools.canonical import check_json
from tools.errors import InvalidPayload, UnknownTool
from tools.redaction import bound_text, scrub
from tools.registry import get_tool

Outcome = Literal["committed", "not_committed", "rejected"]
Verdict = ToolObservation.Verdict


def resolve_operation(
    *,
    actor: Actor,
    operation_id: str,
    outcome: Outcome,
    evidence: str,
    external_ref: str = "",
    result: Any = None,
) -> ToolOperation:
    """Settle an unknown operation by a person's word; returns it as it stands then.

    `committed`: it happened, as `result` and `external_ref` say. `not_committed`: it did
    not, and is sent again with the same id. `rejected`: it did not, and is not to be.

    Raises NotPermitted, InvalidInput, UnknownOperation, AlreadySettled (it is not unknown),
    StillInFlight (a send of ours may be on its way, so nobody can know that it did not
    happen; or its sender may yet wake up beside the one that would send again),
    ProvenCommitted or ProvenRefused (our own evidence says otherwise) or RunHeld.
    """
    actor.require(OPERATIONS_RESOLVE)
    _check(outcome=outcome, evidence=evidence, external_ref=external_ref, result=result)
    operation = _find(operation_id)
    _require_unknown(operation)
    claimed = claim(run_id=operation.run_id, owner=actor.name, even_if_not_due=True)
    if claimed is None:
        raise RunHeld(run_id=str(operation.run_id), operation_id=operation_id)
    work = begin(claimed)
    try:
        with suppress(UndecodableDecision):
            # Its rows are read by then, and settling needs no more.
            load(work)
        operation = _find_open(work, operation_id)
        if any(one.status == OperationStatus.RUNNING for one in work.operations):
            # Beside it, and its sender is gone: this is a take-over like any other.
            lose_all_outcomes(work)
        if outcome == "committed":
            _require_not_refused(operation)
        else:
            _require_landed(work, operation)
            _require_unproven(operation)
            _require_senders_ended(work, operation, outcome=outcome)
        _settle(
            work,
            operation,
            outcome=outcome,
            evidence=bound_text(
                scrub(evidence.strip(), operation.arguments, operation.sensitive), TEXT_LIMIT
            ),
            external_ref=external_ref,
            result=result,
        )
    except LeaseLost as error:
        raise RunHeld(run_id=str(operation.run_id), operation_id=operation_id) from error
    except Exception:
        _give_back(work, claimed)
        raise
    hint(work.run_id)
    return _find(operation_id)


def _give_back(work: Work, claimed: Claimed) -> None:
    """Leave the run as it was found."""
    due: datetime | None = claimed.row["wake_at"]
    wake_in = None if due is None else max(0.0, (due - work.now).total_seconds())
    work.change = Change()
    with suppress(LeaseLost):
        work.release(wake_in=wake_in)


def _settle(
    work: Work,
    operation: ToolOperation,
    *,
    outcome: Outcome,
    evidence: str,
    external_ref: str,
    result: Any,
) -> None:
    reason = f"{work.lease.owner} says so: {evidence}"
    work.observe(
        ToolObservation(
            operation_id=operation.id,
            run_id=operation.run_id,
            source=ToolObservation.Source.PERSON,
            verdict=_VERDICT[outcome],
            detail=evidence,
            result=result,
            external_ref=external_ref,
            attempt=operation.attempts,
            fence_token=work.lease.fence_token,
        )
    )
    match outcome:
        case "committed":
            commit_operation(
                work, operation, result=result, external_ref=external_ref, reason=reason
            )
        case "not_committed":
            establish_not_sent(work, operation, reason=reason)
        case "rejected":
            reject_operation(work, operation, reason=reason)
        case _ as never:
            assert_never(never)
    work.release(wake_in=0)


_VERDICT = {
    "committed": Verdict.COMMITTED,
    "not_committed": Verdict.NOT_FOUND,
    "rejected": Verdict.REJECTED,
}


def _find_open(work: Work, operation_id: str) -> ToolOperation:
    for operation in work.operations:
        if operation.id == operation_id:
            break
    else:
        # Of an earlier step, which closed only after it was settled.
        operation = _find(operation_id)
    _require_unknown(operation)
    return operation


def _require_landed(work: Work, operation: ToolOperation) -> None:
    until = operation.in_flight_until
    if until is not None and until > work.now:
        raise StillInFlight(operation_id=operation.id, until=until)


def _require_senders_ended(work: Work, operation: ToolOperation, *, outcome: Outcome) -> None:
    """Nobody may be left who could send it too: beside a repeat, or beside a new operation
    that carries out the intent which a rejection lets go."""
    if outcome == "not_committed" and _is_joined_by_key(work, operation):
        return
    evidence = list(operation.observations.order_by("id"))
    settling = read_settling(operation, evidence, window=timedelta(0), now=work.now)
    if settling.settles_in is None:
        raise StillInFlight(operation_id=operation.id, until=None, sender=settling.sender)


def _is_joined_by_key(work: Work, operation: ToolOperation) -> bool:
    if EffectType(operation.effect_type) in (EffectType.READ, EffectType.TRANSACTIONAL):
        return True
    try:
        spec = get_tool(operation.tool)
    except UnknownTool:
        return False
    if is_outdated(operation, spec):
        # What is sent in its place has a key of its own.
        return False
    is_keyed = stricter(EffectType(operation.effect_type), spec.effect_type)
    kept = key_standing(operation, spec, now=work.now) == "kept"
    return is_keyed is EffectType.IDEMPOTENT_WRITE and kept


def _require_unproven(operation: ToolOperation) -> None:
    proof = find_proof(operation.observations.order_by("id"))
    if proof is not None:
        raise ProvenCommitted(
            operation_id=operation.id, source=proof.source, external_ref=proof.external_ref
        )


def _require_not_refused(operation: ToolOperation) -> None:
    refusal = find_refusal(list(operation.observations.order_by("id")))
    if refusal is not None and operation.attempts == 1:
        raise ProvenRefused(operation_id=operation.id, refusal=refusal)


def _find(operation_id: str) -> ToolOperation:
    # PostgreSQL takes no NUL, so no id has one.
    known = "\0" not in operation_id
    operation = ToolOperation.objects.filter(id=operation_id).first() if known else None
    if operation is None:
        raise UnknownOperation(operation_id=operation_id)
    return operation


def _require_unknown(operation: ToolOperation) -> None:
    if operation.status != OperationStatus.UNKNOWN:
        raise AlreadySettled(operation_id=operation.id, status=operation.status)


def _check(*, outcome: str, evidence: str, external_ref: str, result: Any) -> None:
    if outcome not in get_args(Outcome):
        raise InvalidInput(
            field="outcome", value=str(outcome)[:80], fix=f"Use {', '.join(get_args(Outcome))}."
        )
    given = {"evidence": evidence, "external_ref": external_ref, "result": result}
    try:
        for field, value in given.items():
            check_json(value, field=field)
    except InvalidPayload as error:
        raise InvalidInput(field=error.field, value=error.value, fix=error.fix) from error
    if not evidence.strip() or len(evidence) > TEXT_LIMIT:
        raise InvalidInput(
            field="evidence",
            value=f"{len(evidence)} characters",
            fix=f"Say how you know, in 1 to {TEXT_LIMIT} characters.",
        )
    if len(external_ref) > 255:
        raise InvalidInput(
            field="external_ref", value=f"{len(external_ref)} characters", fix="Use at most 255."
        )
    if outcome != "committed":
        for field in ("external_ref", "result"):
            if given[field] not in ("", None):
                raise InvalidInput(
                    field=field,
                    value=str(given[field])[:80],
                    fix=f"Leave it out: {outcome} has no effect to describe.",
                )

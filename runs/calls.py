"""The call: what a tool's function or handler is told about one execution.

Guarantees: arguments in canonical form, and a deadline on this process's monotonic clock; a
compensation is told what it corrects, with the result and reference that are known of it.
Does not say whether anything may be sent.
"""

import json
import time
from datetime import datetime, timedelta
from typing import Any

from runs.evidence import find_proof
from runs.models import ToolOperation
from runs.state import OperationStatus
from runs.work import Work
from tools import Call, Compensated
from tools.canonical import canonical_json


def build_call(work: Work, operation: ToolOperation, *, seconds: float) -> Call:
    """What the tool's function or handler is told about this execution."""
    return _build_call(operation, fence_token=work.lease.fence_token, now=work.now, seconds=seconds)


def build_look_up_call(operation: ToolOperation, *, now: datetime, seconds: float) -> Call:
    """What a handler is told that is asked outside any lease, about a closed operation."""
    return _build_call(operation, fence_token=operation.fence_token, now=now, seconds=seconds)


def build_correction_call(work: Work, target: ToolOperation, *, seconds: float) -> Call:
    """What a compensation_handler is told: the operation that it is to find a correction for."""
    return _build_call(
        target,
        fence_token=work.lease.fence_token,
        now=work.now,
        seconds=seconds,
        compensates=describe_compensated(target),
    )


def describe_compensated(target: ToolOperation) -> Compensated:
    """The effect that is to be corrected, by its record or, where it came late, by its proof."""
    result, external_ref = target.result, target.external_ref
    if target.status != OperationStatus.COMMITTED:
        proof = find_proof(target.observations.order_by("id"))
        if proof is not None:
            result, external_ref = proof.result, proof.external_ref
    return Compensated(
        operation_id=target.id,
        tool=target.tool,
        arguments=_copy(target.arguments),
        result=_copy(result),
        external_ref=external_ref or None,
    )


def _build_call(
    operation: ToolOperation,
    *,
    fence_token: int,
    now: datetime,
    seconds: float,
    compensates: Compensated | None = None,
) -> Call:
    if operation.compensates_id is not None and operation.compensates is not None:
        # One query, for a compensation alone.
        compensates = describe_compensated(operation.compensates)
    return Call(
        operation_id=operation.id,
        idempotency_key=operation.idempotency_key,
        fence_token=fence_token,
        attempt=operation.attempts,
        run_id=str(operation.run_id),
        step_number=operation.step_number,
        # In canonical form, so that a repeat leaves as the same bytes although the database
        # keeps keys in another order.
        arguments=_copy(operation.arguments),
        expires_at_monotonic=time.monotonic() + seconds,
        deadline=now + timedelta(seconds=seconds),
        compensates=compensates,
    )


def _copy(value: Any) -> Any:
    """A copy in canonical form, so that a tool cannot change the record."""
    return json.loads(canonical_json(value))

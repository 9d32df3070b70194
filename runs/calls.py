"""The call: what a tool's function or handler is told about one execution.

Guarantees: arguments in canonical form, and those that are outdated only as today's tool may
read them; a deadline on this process's monotonic clock; a compensation is told what it
corrects, with the result and reference that are known of it.
Does not say whether anything may be sent.
"""

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from runs.argument_versions import read_arguments
from runs.evidence import find_proof
from runs.models import ToolOperation
from runs.state import OperationStatus
from runs.work import Work
from tools import Call, Compensated
from tools.canonical import canonical_copy


def build_call(work: Work, operation: ToolOperation, *, seconds: float) -> Call:
    """What the tool's function is told about this execution: the arguments as they are stored.

    In canonical form, so that a repeat leaves as the same bytes although the database keeps
    keys in another order.
    """
    return _build_call(
        operation,
        arguments=canonical_copy(operation.arguments),
        fence_token=work.lease.fence_token,
        now=work.now,
        seconds=seconds,
    )


def build_look_up_call(
    operation: ToolOperation, *, fence_token: int, now: datetime, seconds: float
) -> Call:
    """What a handler is told that is asked what became of the operation, with or without a lease:
    outdated arguments as today's tool may read them."""
    return _build_call(
        operation,
        arguments=read_arguments(operation),
        fence_token=fence_token,
        now=now,
        seconds=seconds,
    )


def build_correction_call(work: Work, target: ToolOperation, *, seconds: float) -> Call:
    """What a compensation_handler is told: the operation that it is to find a correction for."""
    return _build_call(
        target,
        arguments=read_arguments(target),
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
        arguments=read_arguments(target),
        result=canonical_copy(result),
        external_ref=external_ref or None,
    )


def _build_call(
    operation: ToolOperation,
    *,
    arguments: Mapping[str, Any],
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
        arguments=arguments,
        expires_at_monotonic=time.monotonic() + seconds,
        deadline=now + timedelta(seconds=seconds),
        compensates=compensates,
    )

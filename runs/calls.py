"""The call: what a tool's function or handler is told about one execution.

Guarantees: arguments in canonical form, and a deadline on this process's monotonic clock.
Does not say whether anything may be sent.
"""

import json
import time
from datetime import datetime, timedelta

from runs.models import ToolOperation
from runs.work import Work
from tools import Call
from tools.canonical import canonical_json


def build_call(work: Work, operation: ToolOperation, *, seconds: float) -> Call:
    """What the tool's function or handler is told about this execution."""
    return _build_call(operation, fence_token=work.lease.fence_token, now=work.now, seconds=seconds)


def build_look_up_call(operation: ToolOperation, *, now: datetime, seconds: float) -> Call:
    """What a handler is told that is asked outside any lease, about a closed operation."""
    return _build_call(operation, fence_token=operation.fence_token, now=now, seconds=seconds)


def _build_call(
    operation: ToolOperation, *, fence_token: int, now: datetime, seconds: float
) -> Call:
    return Call(
        operation_id=operation.id,
        idempotency_key=operation.idempotency_key,
        fence_token=fence_token,
        attempt=operation.attempts,
        run_id=str(operation.run_id),
        step_number=operation.step_number,
        # In canonical form, so that a repeat leaves as the same bytes although the database
        # keeps keys in another order; and a copy, so that a tool cannot change the record.
        arguments=json.loads(canonical_json(operation.arguments)),
        expires_at_monotonic=time.monotonic() + seconds,
        deadline=now + timedelta(seconds=seconds),
    )

"""Calls that are made by hand, outside of any run: for probes and for late requests.

Guarantees: a call has the identity that it is given and a deadline of its own; the
function and the handler are executed as the kernel executes them.
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tools.call import Call
from tools.spec import ToolSpec
from tools.testing.bench import Intended
from tools.testing.between import finish
from tools.testing.diary import Diary

PATIENT_SECONDS: Final = 60.0


def call_for(intended: Intended, *, seconds: float) -> Call:
    """A first call of an operation, with so many seconds until its deadline."""
    return Call(
        operation_id=intended.operation_id,
        idempotency_key=intended.idempotency_key,
        fence_token=1,
        attempt=1,
        run_id="00000000-0000-7000-8000-000000000000",
        step_number=1,
        arguments=dict(intended.arguments),
        **_deadline(seconds),
    )


def land(spec: ToolSpec, sent: Mapping[str, Any], diary: Diary, *, at: float) -> None:
    """Make a call at a monotonic time that another process began, as bytes do that arrive late.

    Nobody hears its answer. "landed" is noted when it is over.
    """
    time.sleep(max(0.0, at - time.monotonic()))
    call = Call(**sent, **_deadline(PATIENT_SECONDS))
    try:
        finish(spec.function(call, **spec.bind(call.arguments)))
    finally:
        diary.note("landed")


def _deadline(seconds: float) -> dict[str, Any]:
    return {
        "deadline": datetime.now(UTC) + timedelta(seconds=seconds),
        "expires_at_monotonic": time.monotonic() + seconds,
    }

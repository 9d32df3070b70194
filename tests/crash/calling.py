"""A process that takes one call, as a web process does: accepts it, drives its run, and answers.

Nothing of HTTP is in it: `tests/concurrency/test_gateway.py` has that.
"""

import os
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings

from runs.access import Actor, operator
from runs.gateway.accepting import Asked
from runs.gateway.calling import call_operation, raise_if_unanswerable
from runs.gateway.driving import drivers
from runs.gateway.errors import CallInFlight
from tests.crash.driving import DECLARED_ENDED, become_a_worker
from tests.crash.faultapp import faults

CALLER: Final = Actor(name="agent elsewhere", scopes=operator().scopes, token=4711)
# A call whose answer was lost is settled by a worker, which comes later.
LONGEST_WAIT: Final = 2.0


@dataclass(frozen=True)
class Request:
    """What the agent asks for. `fault` is told as `faults.arm` reads it, or empty."""

    names: dict[str, Any]
    provider_url: str
    log: str
    fault: str = ""
    lease_seconds: float = 1.0


def take_call(request: Request) -> None:
    """The whole life of a forked process; the last line that it says is where the call stands."""
    become_a_worker(request.log)
    os.environ["SHOP_PAYMENTS_URL"] = request.provider_url
    settings.AGENTOPS_LEASE_SECONDS = request.lease_seconds
    drivers.start(size=2, on_declared_ended=lambda: os._exit(DECLARED_ENDED))
    if request.fault:
        faults.arm(request.fault)
    asked = Asked(**request.names)
    while True:
        called = call_operation(actor=CALLER, asked=asked, wait_seconds=LONGEST_WAIT)
        try:
            raise_if_unanswerable(called)
        except CallInFlight:
            continue
        break
    drivers.stop()
    status = called.operation.status if called.operation is not None else "accepted"
    print(f"{status} {'again' if called.replayed else 'first'}", flush=True)

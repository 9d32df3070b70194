"""What a caller of the gateway may meet.

ClientError
├── Unreachable      nobody answered, or only to come later; the same key again is safe
├── NotAGateway      what answered is no gateway
├── Refused          the gateway refused the request, and did nothing because of it
│   ├── NotAllowed   the token is not valid, or may not do that
│   ├── KeyReused    the key names another request
│   ├── ActionReused the step and action of the thread are another call
│   ├── KeyForgotten the key was used, and what for is no longer known
│   └── RunEnded     the run, or the thread's run, has ended
└── NotCommitted     the operation has no result to give (`Operation.value`)
    ├── StillPending
    ├── OutcomeUncertain
    └── CallDenied
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentops.client.results import Operation


class ClientError(Exception):
    """Base of the conditions above."""


class Unreachable(ClientError):
    """The request may have been accepted. `key` is None for a look-up."""

    def __init__(self, *, why: str, key: str | None, seconds: float) -> None:
        self.why, self.key = why, key
        again = " What it asked for may have been done: send it again with the same key."
        super().__init__(f"no answer within {seconds:g} s: {why}.{again if key else ''}")


class NotAGateway(ClientError):
    def __init__(self, *, status: int, why: str) -> None:
        self.status = status
        super().__init__(f"the answer ({status}) is not one of a gateway: {why}")


class Refused(ClientError):
    """`status` is that of HTTP; `kind` names the condition; `field`, `value` and `fix` say how to
    mend it, where the gateway says so."""

    def __init__(self, *, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.kind = str(problem.get("type", "")).rpartition(":")[2]
        self.field, self.value, self.fix = (
            None if problem.get(name) is None else str(problem[name])
            for name in ("field", "value", "fix")
        )
        super().__init__(str(problem.get("detail") or problem.get("title") or self.kind))


class NotAllowed(Refused):
    pass


class KeyReused(Refused):
    pass


class ActionReused(Refused):
    """`operation_id` is what was done at this step, with other arguments."""

    @property
    def operation_id(self) -> str:
        return self.value or ""


class KeyForgotten(Refused):
    pass


class RunEnded(Refused):
    pass


class NotCommitted(ClientError):
    """`operation` is what is known of it."""

    def __init__(self, operation: "Operation") -> None:
        self.operation = operation
        super().__init__(f"{operation.tool}: {operation.explanation}")


class StillPending(NotCommitted):
    pass


class OutcomeUncertain(NotCommitted):
    pass


class CallDenied(NotCommitted):
    pass

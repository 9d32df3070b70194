"""What a request at the gateway may meet.

GatewayError
├── CallInFlight    the first request with this key is still being answered
├── ActionReused    the same step and action of a run was asked for with other arguments
├── KeyForgotten    the key, or step and action, was used, and what for is no longer known:
│                   never done anew
├── NotExternal     the run's agent decides by itself: nobody calls in its name
├── PolicyRefuses   policy refuses the call: nothing was sent
└── CallInvalid     the call fitted its tool when it was accepted, and does not any more
"""

from runs.errors import RunsError


class GatewayError(RunsError):
    """Base of the conditions below. `field`, `value` and `fix` say how to mend it."""

    def __init__(self, *, field: str, value: str, problem: str, fix: str) -> None:
        self.field, self.value, self.fix = field, value, fix
        super().__init__(f"{field}: {problem} {fix}")


class CallInFlight(GatewayError):
    def __init__(self, *, operation_id: str) -> None:
        self.operation_id = operation_id
        super().__init__(
            field="Idempotency-Key",
            value=operation_id,
            problem=f"the first request with this key, operation {operation_id}, is in flight.",
            fix="Send the same request again in a moment, or look at that operation.",
        )


class ActionReused(GatewayError):
    def __init__(self, *, operation_id: str) -> None:
        self.operation_id = operation_id
        super().__init__(
            field="action",
            value=operation_id,
            problem=f"this step and action of the run is operation {operation_id}, with another "
            "tool or other arguments.",
            fix="Name another action, or send the same arguments.",
        )


class KeyForgotten(GatewayError):
    def __init__(self, *, of_action: bool = False) -> None:
        super().__init__(
            field="action" if of_action else "Idempotency-Key",
            value="this step and action" if of_action else "this key",
            problem="it was used, and what became of that is no longer known here.",
            fix="Find out at the provider, and use a new name for a new request.",
        )


class NotExternal(GatewayError):
    def __init__(self, *, run_id: str, agent: str) -> None:
        self.run_id, self.agent = run_id, agent
        super().__init__(
            field="run",
            value=run_id,
            problem=f"its agent, {agent}, decides for itself what it calls.",
            fix="Start a run of an external agent, or leave the run out.",
        )


class PolicyRefuses(GatewayError):
    def __init__(self, *, operation_id: str, why: str) -> None:
        self.operation_id = operation_id
        super().__init__(
            field="tool",
            value=operation_id,
            problem=f"operation {operation_id} is refused by policy, nothing was sent: {why}.",
            fix="Ask whoever keeps the policies.",
        )


class CallInvalid(GatewayError):
    def __init__(self, *, operation_id: str, why: str) -> None:
        self.operation_id = operation_id
        super().__init__(
            field="arguments",
            value=operation_id,
            problem=f"operation {operation_id} cannot be made, nothing was sent: {why}.",
            fix="Send a new request with a new key.",
        )

"""What the tests of the gateway share: an agent elsewhere, and what it asks for."""

from typing import Any, Final

from runs.access import Actor, operator
from runs.engine import advance
from runs.gateway.accepting import Accepted, Asked, accept_call
from runs.models import AgentRun, GatewayCall, ToolOperation
from tests.database.kit import make_due
from tools import Approve

ELSEWHERE: Final = Actor(name="agent elsewhere", scopes=operator().scopes, token=4711)
# Beside it, with a token of its own.
NEIGHBOUR: Final = Actor(name="agent elsewhere", scopes=operator().scopes, token=4712)
NEVER: Final = Approve(when="false")


def send(
    key: str = "k1",
    tool: str = "pay",
    /,
    actor: Actor = ELSEWHERE,
    wait: float = 0.0,
    amount: Any = 1,
    **names: Any,
) -> Accepted:
    """Ask for `pay(amount)`; `names` as in `Asked`."""
    names.setdefault("arguments", {"amount": amount})
    return accept_call(actor=actor, asked=Asked(tool=tool, key=key, **names), wait_seconds=wait)


def run_of(sent: Accepted | GatewayCall) -> AgentRun:
    """The run of a call, as it stands."""
    call = sent.call if isinstance(sent, Accepted) else sent
    return AgentRun.objects.get(id=call.run_id)


def carry_out(sent: Accepted | GatewayCall, *, owner: str = "worker 1") -> AgentRun:
    """Have a worker take up what the run of the call is asked for, if it is due."""
    run = run_of(sent)
    advance(run_id=run.pk, owner=owner)
    run.refresh_from_db()
    return run


def carry_out_when_due(sent: Accepted, *, owner: str = "worker 1") -> AgentRun:
    """The same once the date of the run has come."""
    make_due(run_of(sent))
    return carry_out(sent, owner=owner)


def operation(sent: Accepted) -> ToolOperation:
    """What the call became."""
    return ToolOperation.objects.get(id=sent.call.operation_id)


def nothing_written() -> bool:
    """Whether a request left no trace."""
    return not AgentRun.objects.exists() and not GatewayCall.objects.exists()

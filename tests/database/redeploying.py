"""What tests of changed tools share: `pay(amount)`, and the `pay` of the next deployment.

The next one takes `cents`. Where a test needs arguments that still fit although their schema is
another one, it takes an `amount` that may be a text too.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from approvals.commands import propose
from runs.models import AgentRun, Release, ToolOperation, Worker
from tests.database.approving import acting, person
from tests.database.gating import request_of
from tests.database.kit import KEYED, Script, call_once, change, drive, make_due, scripted_tool
from tools import Call, EffectType, NotSent, Retry, Timeout, tool
from tools.registry import get_tool, isolated_registry

Start = Callable[..., AgentRun]
DEPLOYED: dict[str, Any] = {
    "effect_type": EffectType.IDEMPOTENT_WRITE,
    "provider": KEYED,
    "timeout_policy": Timeout(seconds=5.0),
    "retry_policy": Retry(max_attempts=3, first_delay=2.0, max_delay=100.0),
}


def in_cents(arguments: dict[str, Any], from_version: str) -> dict[str, Any]:
    """The migration that the author of `pay(cents)` writes."""
    return {"cents": arguments["amount"] * 100}


def parked(start: Start, **declared: Any) -> tuple[AgentRun, Script]:
    """A run whose `pay(amount=1)` did not leave, and is to be tried again."""
    script = scripted_tool(NotSent("no route"), "sent by the old tool", **declared)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    make_due(run)
    change("UPDATE runs_tooloperation SET next_try_at = NULL WHERE run_id = %s", run.id)
    assert run.operations.get().status == "PREPARED"
    return run, script


@contextmanager
def redeployed(*answers: Any, **declared: Any) -> Iterator[Script]:
    """The next deployment, with `pay(cents)`; inside, no tool of the old one is known."""
    with isolated_registry():
        yield pay_cents(*(answers or ("paid",)), **declared)


def pay_cents(*answers: Any, **declared: Any) -> Script:
    """`pay(cents)`, which gives these answers."""
    script = Script(*answers)

    def act(call: Call, cents: int) -> Any:
        """Pay."""
        return script(call)

    tool(name="pay", **DEPLOYED | declared)(act)
    return script


def pay_any(*answers: Any, **declared: Any) -> Script:
    """`pay(amount)` under another schema, which every old amount fits as it stands."""
    script = Script(*answers)

    def act(call: Call, amount: int | str = 1) -> Any:
        """Pay."""
        return script(call)

    tool(name="pay", **DEPLOYED | declared)(act)
    return script


@contextmanager
def old_worker_lives(version: str) -> Iterator[None]:
    """A worker of the old deployment, alive until the block ends."""
    tools = {"pay": {"version": "old", "arguments": version}}
    release = Release.objects.create(id="old release", agents={}, tools=tools)
    worker = Worker.objects.create(name="old", host="h", pid=1, release=release)
    with ExitStack() as after:
        after.callback(worker.delete)
        yield


def pay_version() -> str:
    """Of the arguments that `pay` takes here and now."""
    return get_tool("pay").arguments_version


def operations_of(run: AgentRun) -> list[ToolOperation]:
    """Oldest first."""
    return list(run.operations.order_by("step_number", "ordinal", "revision"))


def outcomes_of(run: AgentRun) -> list[tuple[str, str, Any]]:
    """(status, why never sent, arguments) of every operation, oldest first."""
    return [(one.status, one.never_sent, one.arguments) for one in operations_of(run)]


def propose_in_place(run: AgentRun, **arguments: Any) -> None:
    """Somebody asks for these arguments in place of what the run waits for."""
    asked, user = request_of(run), person("ida")
    propose(
        actor=acting(user),
        user=user,
        approval_id=asked.id,
        arguments=arguments,
        fingerprint=asked.fingerprint,
        reason="what it takes now",
    )
    drive(run)

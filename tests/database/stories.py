"""Runs in interesting states, brought there by the engine itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from runs import CallTools, Context, Decision, Finish, ToolCall, events
from runs.access import operator
from runs.commands import reconcile_now
from runs.engine import advance
from runs.models import AgentRun
from tests.database.kit import make_due
from tools import Call, EffectType, Provider, Reconciled, Retry, tool
from tools.spec import OnRepeatedIntent

Start = Callable[..., AgentRun]

payments = Provider(
    name="payments",
    account="acct_main",
    idempotency_support="key",
    idempotency_scope="account",
    idempotency_retention=timedelta(hours=24),
    lookup="by_key",
)
SECRET = "4111-1111-1111-1111"


class WorkerDied(BaseException):
    """What a killed worker looks like from inside."""


def define_refund(*, lose_answers: int = 1, found: bool = True) -> None:
    """The tool `refund`: its first answers get lost, then the look-up finds the effect."""
    sends: list[str] = []

    def look_up(call: Call) -> Reconciled[Any]:
        if not found:
            return Reconciled.indeterminate("the ledger is closed")
        return Reconciled.committed({"refund": 1, "card": SECRET}, external_ref="re_1")

    @tool(
        provider=payments,
        effect_type=EffectType.IDEMPOTENT_WRITE,
        reconcile_handler=look_up,
        retry_policy=Retry(first_delay=60.0),
        sensitive=("card",),
    )
    def refund(call: Call, order: str, card: str) -> dict[str, Any]:
        """Refund an order."""
        sends.append(call.operation_id)
        if len(sends) <= lose_answers:
            raise RuntimeError(f"no answer for {card}")
        return {"refund": 1, "card": card}


def decide(context: Context) -> Decision:
    if context.last is None:
        return CallTools(ToolCall("refund", order="17", card=SECRET))
    return Finish({"refund": context.last.result["refund"]})


def uncertain_run(start: Start, *, found: bool = True) -> AgentRun:
    """A run whose one call lost its answer under token 1."""
    define_refund(found=found)
    run = start(decider=decide, tools=("refund",), input={"card": SECRET})
    advance(run_id=run.id, owner="first")
    run.refresh_from_db()
    return run


def reconciled_run(start: Start) -> AgentRun:
    """The same run, reconciled and completed by another worker under token 2."""
    run = uncertain_run(start)
    reconcile_now(actor=operator())
    advance(run_id=run.id, owner="second")
    run.refresh_from_db()
    return run


def parked_run(start: Start, *, lose: int = 1) -> AgentRun:
    """A run that only a person can move: a call that nobody can be asked about is unknown."""
    sends: list[str] = []

    @tool(
        provider=Provider(name="payments", account="acct_main"),
        effect_type=EffectType.NON_IDEMPOTENT_WRITE,
        sensitive=("card",),
    )
    def wire(call: Call, order: str, card: str) -> dict[str, Any]:
        """Wire the money back."""
        sends.append(call.operation_id)
        if len(sends) <= lose:
            raise RuntimeError(f"no answer for {card}: <b>sorry</b>")
        return {"refund": 2, "card": card}

    def decide_once(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("wire", order="17", card=SECRET))
        return Finish({"status": context.last.status, "result": context.last.result})

    run = start(decider=decide_once, tools=("wire",), input={"card": SECRET})
    advance(run_id=run.id, owner="first")
    make_due(run)
    advance(run_id=run.id, owner="second")
    run.refresh_from_db()
    assert run.state == "WAITING_FOR_RESOLUTION"
    return run


def repeating_run(start: Start, *, on_repeated_intent: OnRepeatedIntent) -> AgentRun:
    """A run that asks for the same refund in two steps, the second time to be sure."""
    name = f"refund_{on_repeated_intent}"

    @tool(
        provider=payments,
        effect_type=EffectType.IDEMPOTENT_WRITE,
        name=name,
        intent_key=("order",),
        on_repeated_intent=on_repeated_intent,
    )
    def refund(call: Call, order: str) -> dict[str, Any]:
        """Refund an order."""
        return {"refund": 1}

    def decide_twice(context: Context) -> Decision:
        if context.step_number <= 2:
            return CallTools(ToolCall(name, order="17"))
        return Finish()

    run = start(decider=decide_twice, tools=(name,))
    advance(run_id=run.id, owner="first")
    run.refresh_from_db()
    return run


def taken_over_run(start: Start) -> AgentRun:
    """A run whose worker died in the middle of a call, completed by another."""
    define_refund(lose_answers=0)
    run = start(decider=decide, tools=("refund",))
    with dying_at(events.Name.CALL_DONE):
        advance(run_id=run.id, owner="first")
    AgentRun.objects.filter(id=run.id).update(
        lease_expires_at=Now() - timedelta(seconds=1), wake_at=Now()
    )
    advance(run_id=run.id, owner="second")
    run.refresh_from_db()
    return run


@contextmanager
def dying_at(name: events.Name) -> Iterator[None]:
    """The worker in this block dies when `name` happens; the block ends there."""

    def die(event: events.Event) -> None:
        if event.name is name:
            raise WorkerDied

    end = events.subscribe(die)
    try:
        yield
    except WorkerDied:
        pass
    else:
        raise AssertionError(f"{name} never happened")
    finally:
        end()

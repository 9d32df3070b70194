"""What the tests of delegation share: helpers that are delegated to, and deciders that delegate."""

from collections.abc import Callable
from typing import Any

from runs import Agent, Context, Decision, Delegate, DelegateAll, Finish, Script, ToolCall
from runs.models import AgentRun, ToolOperation
from tests.database.kit import scripted_tool
from tools import tool
from tools.declarations import EffectType


def child_of(run: AgentRun, n: int = 0) -> AgentRun:
    return list(AgentRun.objects.filter(parent=run).order_by("parent_operation", "created_at"))[n]


def children_of(run: AgentRun) -> list[AgentRun]:
    places = {one.id: one.ordinal for one in ToolOperation.objects.filter(run=run)}
    found = AgentRun.objects.filter(parent=run)
    return sorted(found, key=lambda one: places[one.parent_operation or ""])


def worker(decider: Any, name: str = "helper", **options: Any) -> None:
    Agent(name=name, decider=decider, **options)


def ends_as(context: Context) -> Decision:
    last = context.last
    assert last is not None
    return Finish([last.kind, last.tool, str(last.status), last.result, last.error])


def delegate(*children: Delegate) -> Callable[[Context], Decision]:
    def decide(context: Context) -> Decision:
        if context.step_number > 1:
            return ends_as(context)
        return children[0] if len(children) == 1 else DelegateAll(*children)

    return decide


def paying_child(*, undone: list[Any]) -> None:
    @tool(name="undo", effect_type=EffectType.IDEMPOTENT_WRITE)
    def undo(call: Any, amount: int) -> str:
        """Undo."""
        undone.append(call.compensates.operation_id)
        return "undone"

    scripted_tool({"paid": 1}, compensation_handler="undo")
    worker(Script(ToolCall("pay", amount=1), Finish(1)), tools=("pay",))

"""What tests of parallel calls share: a tool that acts by its argument, and runs of one decision.

Threads end in any order, so what a call does depends on what it is asked, never on its turn.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from runs import CallTools, Context, Decision, Finish, ToolCall, events
from runs.models import AgentRun, ToolOperation
from tests.database.kit import KEYED
from tools import Call, EffectType, Provider, Reconciled, Retry, Timeout, tool

Start = Callable[..., AgentRun]
Act = Callable[[Call, int], Any]


@dataclass
class Made:
    """What the provider of a tool was asked: numbers, in order of arrival."""

    calls: list[int] = field(default_factory=list)
    look_ups: list[int] = field(default_factory=list)

    @property
    def counts(self) -> dict[int, int]:
        return dict(Counter(self.calls))


def answer(call: Call, number: int) -> Any:
    return number


def together_tool(
    act: Act = answer,
    *,
    name: str = "pay",
    effect: EffectType = EffectType.IDEMPOTENT_WRITE,
    look_up: Act | None = None,
    provider: Provider | None = KEYED,
    parallel: bool = True,
    seconds: float = 5.0,
    max_attempts: int = 3,
    **declared: Any,
) -> Made:
    """Register `name(number)`, which does `act(call, number)`, and is looked up by `look_up`."""
    made = Made()

    def do(call: Call, number: int) -> Any:
        """Act by the number."""
        made.calls.append(number)
        return act(call, number)

    def look(call: Call) -> Reconciled[Any]:
        number = call.arguments["number"]
        made.look_ups.append(number)
        assert look_up is not None
        said: Reconciled[Any] = look_up(call, number)
        return said

    tool(
        name=name,
        effect_type=effect,
        provider=provider,
        parallel=parallel,
        reconcile_handler=look if look_up is not None else None,
        timeout_policy=Timeout(seconds=seconds),
        retry_policy=Retry(max_attempts=max_attempts, first_delay=2.0, max_delay=100.0),
        **declared,
    )(do)
    return made


def decide_once(*calls: tuple[str, int]) -> Callable[[Context], Decision]:
    """One decision of these calls, then the end, with what became of each as the decider saw it."""

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(*(ToolCall(name, number=number) for name, number in calls))
        return Finish([[seen.status, seen.result, seen.error] for seen in context.observations])

    return decide


def start_together(start: Start, *calls: tuple[str, int]) -> AgentRun:
    return start(decider=decide_once(*calls), tools=tuple({name for name, _ in calls}))


def pays(*numbers: int) -> list[tuple[str, int]]:
    return [("pay", number) for number in numbers]


def statuses(run: AgentRun) -> list[str]:
    """Of its operations, in the order of the decision."""
    return [one.status for one in operations(run)]


def operations(run: AgentRun) -> list[ToolOperation]:
    return list(run.operations.order_by("step_number", "ordinal", "revision"))


@contextmanager
def just_before(name: events.Name, do: Callable[[], None], *, nth: int = 1) -> Iterator[None]:
    """Have something happen at the nth event of this name."""
    seen = 0

    def hear(event: events.Event) -> None:
        nonlocal seen
        seen += event.name is name
        if event.name is name and seen == nth:
            do()

    unsubscribe = events.subscribe(hear)
    try:
        yield
    finally:
        unsubscribe()
    assert seen >= nth

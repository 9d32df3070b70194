"""Programs: what the deciders of the random runs decide, step by step, as words.

A step is one of WORDS ("sleep", "wait for go", …), some calls ("keyed 1 + unkeyed 2": the tool
and its amount), or a tuple of programs, which other runs carry out for this one.

Guarantees: a program prints as what it was told as, and its decider goes by the step's place in
the plan alone, so that whoever asks it again gets the same decision.

Does not drive anything: `lives.py` does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, Final, Literal

from hypothesis import strategies as st

from runs import (
    Agent,
    Ask,
    Budget,
    CallTools,
    Compensate,
    Decision,
    Delegate,
    DelegateAll,
    Fail,
    Finish,
    Sleep,
    ToolCall,
    WaitFor,
)
from tests.protocol.llms import Done, Plan, SimulatedLlm
from tests.protocol.provider import SimulatedProvider
from tools import Approve, Call, EffectType, Provider, Retry, Timeout, tool

SIGNAL: Final = "go"
IN_TIME: Final = timedelta(hours=1)
# By the clock of the tests, which they set forward.
LATEST: Final = 20.0
WINDOW: Final = timedelta(seconds=50)
OBJECTIVE: Final = timedelta(hours=2)

SCHEMA: Final = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
WORDS: Final[Mapping[str, Decision]] = {
    "sleep": Sleep(timedelta(minutes=1)),
    "wait for go": WaitFor(SIGNAL),
    "wait for go in time": WaitFor(SIGNAL, timeout=IN_TIME),
    "ask": Ask("Is it right?", SCHEMA),
    "ask in time": Ask("Is it right?", SCHEMA, timeout=IN_TIME),
}


@dataclass(frozen=True)
class Program:
    """What one run does. With `most_steps` it has a budget; "fail" is once, then it finishes.

    One that `asks` has an llm decide the same; it starts no other runs.
    """

    steps: "tuple[Step, ...]"
    end: Literal["finish", "fail", "compensate"] = "finish"
    compensates: bool = False
    most_steps: int | None = None
    repeats_allowed: int = 5
    asks: bool = False


Step = str | tuple[Program, ...]


@dataclass(frozen=True)
class Kind:
    """A tool of the random runs. `undo` corrects it; without one only a person can."""

    effect: EffectType
    undo: bool = True
    signed: bool = False
    parallel: bool = True
    repeatable: bool = False


KINDS: Final[Mapping[str, Kind]] = {
    "keyed": Kind(EffectType.IDEMPOTENT_WRITE),
    "unkeyed": Kind(EffectType.NON_IDEMPOTENT_WRITE),
    "signed": Kind(EffectType.IDEMPOTENT_WRITE, signed=True),
    "alone": Kind(EffectType.NON_IDEMPOTENT_WRITE, parallel=False),
    "again": Kind(EffectType.IDEMPOTENT_WRITE, repeatable=True),
    "final": Kind(EffectType.IRREVERSIBLE, undo=False, parallel=False),
    "read": Kind(EffectType.READ, undo=False),
}
TOOLS: Final = tuple(sorted(KINDS))

_CALL = st.builds("{} {}".format, st.sampled_from([*KINDS, "keyed"]), st.integers(1, 2))
_CALLS = st.lists(_CALL, min_size=1, max_size=4).map(" + ".join)
_WORD = st.sampled_from(sorted(WORDS))


def programs(*, levels: int = 2, asks: bool = False) -> st.SearchStrategy[Program]:
    """Any program whose runs start others so many levels deep; with `asks`, one of an llm."""
    step: st.SearchStrategy[Any] = _CALLS | _CALLS | _WORD
    if levels and not asks:
        step |= st.lists(programs(levels=levels - 1), min_size=1, max_size=2).map(tuple)
    # An llm's window must have a chance to fill.
    most = 6 if asks else 3 if levels == 2 else 2
    return st.builds(
        Program,
        steps=st.lists(step, min_size=1, max_size=most).map(tuple),
        end=st.sampled_from(["finish", "fail", "compensate"]),
        compensates=st.booleans(),
        most_steps=st.sampled_from([None, None, 2]),
        repeats_allowed=st.sampled_from([5, 2]),
        asks=st.just(asks),
    )


_numbers = count(1)


def enlist(program: Program, *, llm: SimulatedLlm) -> Agent:
    """A new agent that carries the program out, and those of the runs that it starts."""
    decide = _decide_by([_decision(step, llm) for step in program.steps], program.end)
    return Agent(
        name=f"program{next(_numbers)}",
        decider=llm.as_decider(decide)
        if program.asks
        else lambda context: decide(context.position, context.step_number),
        output=Done if program.asks else None,
        tools=TOOLS,
        budget=Budget(steps=program.most_steps),
        on_failure="compensate" if program.compensates else "stop",
        repeats_allowed=program.repeats_allowed,
    )


def _decide_by(decisions: list[Decision], end: str) -> Plan:
    def decide(position: int, step: int) -> Decision:
        if position <= len(decisions):
            return decisions[position - 1]
        # Taken back by a retry, or inherited: it does better now.
        is_another_try = step != position
        if end == "finish" or is_another_try:
            return Finish(position)
        return Fail("out of reach") if end == "fail" else Compensate("not wanted any more")

    return decide


def _decision(step: Step, llm: SimulatedLlm) -> Decision:
    if isinstance(step, tuple):
        children = [
            Delegate(enlist(program, llm=llm).name, hand_over=n == 0)
            for n, program in enumerate(step)
        ]
        return children[0] if len(children) == 1 else DelegateAll(*children)
    if step in WORDS:
        return WORDS[step]
    calls = [call.split() for call in step.split(" + ")]
    return CallTools(*(ToolCall(kind, amount=int(amount)) for kind, amount in calls))


def open_books(now: Callable[[], float]) -> dict[str, SimulatedProvider]:
    """Register every tool, and what corrects it, each over a provider of its own."""
    books = {}
    for name, kind in KINDS.items():
        books[name] = _register(name, kind, now, f"undo_{name}" if kind.undo else None)
        if kind.undo:
            undo = Kind(kind.effect, signed=kind.signed, repeatable=True)
            books[f"undo_{name}"] = _register(f"undo_{name}", undo, now, None)
    return books


def _register(
    name: str, kind: Kind, now: Callable[[], float], undo: str | None
) -> SimulatedProvider:
    keyed = kind.effect is EffectType.IDEMPOTENT_WRITE
    book = SimulatedProvider(honours_keys=keyed, now=now, latest=LATEST)
    is_read = kind.effect is EffectType.READ

    def act(call: Call, amount: int) -> Any:
        """Act at the provider."""
        return amount if is_read else book.act(call)

    tool(
        name=name,
        effect_type=kind.effect,
        provider=Provider(
            name=name,
            idempotency_support="key" if keyed else "none",
            idempotency_retention=timedelta(hours=24) if keyed else None,
            lookup="by_key",
            settle_window=WINDOW,
        ),
        parallel=kind.parallel,
        repeatable=kind.repeatable,
        reconcile_handler=None if is_read else book.look_up,
        reconcile_within=OBJECTIVE,
        compensation_handler=undo,
        timeout_policy=Timeout(seconds=2),
        retry_policy=Retry(max_attempts=4, first_delay=1, max_delay=30),
        approval_policy=Approve() if kind.signed else Approve(when="false"),
    )(act)
    return book

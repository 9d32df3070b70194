"""Asking a decider for the next decision.

Guarantees: whatever a decider does, the caller gets a `Decision` or an exception;
a coroutine function is awaited; a script answers from the step number alone, so
asking it again gives the same answer.

Does not record anything: an answer counts once `commit.py` has stored it.
"""

import asyncio
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, assert_never, get_args

from django.conf import settings

from runs.context import Context
from runs.decisions import (
    Ask,
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
from runs.errors import DeciderUnavailable
from tools.declarations import in_order

if TYPE_CHECKING:
    from pydantic_ai.models import Model

# An llm by its provider-qualified name, or as Pydantic AI's own model with a client of its own.
Named: TypeAlias = "str | Model[Any]"
May: TypeAlias = Literal["ask", "sleep", "wait_for", "compensate"]
MOST_OF_AN_OPTION: Final = 10_000_000

_WHOLE = re.compile(r"\{([a-z_]+(?:\.[\w-]+)*)\}")


@dataclass(frozen=True, init=False)
class Script:
    """A fixed list of decisions: entry n is the decision at position n.

    Text may hold `{input.…}`, `{last.…}` (the newest result), `{labels.…}`, `{objective}`
    and `{run_id}`; a text that is one placeholder keeps the value's type. A call that
    did not commit fails the run, for a script has no other plan.
    """

    entries: tuple[ToolCall | Decision, ...]

    def __init__(self, *entries: ToolCall | Decision) -> None:
        object.__setattr__(self, "entries", tuple(entries))


@dataclass(frozen=True)
class External:
    """The agent runs elsewhere: what it calls through the gateway is what is decided.

    With `any_tool` it may call every tool that is registered, whatever its agent names. A run
    whose agent has not been heard of for `idle` ends as failed.
    """

    any_tool: bool = False
    idle: timedelta = timedelta(days=30)


@dataclass(frozen=True, kw_only=True)
class LlmOptions:
    """How an llm is asked. Seconds are per request; tokens are the llm's own.

    `fallback` are llms that are asked, in this order, when the first one does not answer.
    `reasons` asks for a rationale and a confidence with each call. `may` are the decisions it
    may take beside calling tools and finishing: "ask" (a person, of `ask_groups`), "sleep",
    "wait_for" (a signal), "compensate"; and it may delegate to the agents that `delegates`
    names. `window_tokens` bounds the recent events that it is
    shown; when they are full, a handoff replaces them. `result_bytes` is how much of one
    result it is shown; it reads the rest in parts.
    """

    fallback: tuple[Named, ...] = ()
    reasons: bool = False
    may: tuple[May, ...] = ()
    ask_groups: tuple[str, ...] = ()
    delegates: tuple[str, ...] = ()
    max_tokens: int = 4_096
    temperature: float | None = None
    seconds: float = 90.0
    window_tokens: int = 24_000
    result_bytes: int = 8_000

    def __post_init__(self) -> None:
        # A text is one llm, one group or one agent, and not its letters.
        for name in ("fallback", "may", "ask_groups", "delegates"):
            given = getattr(self, name)
            alone = isinstance(given, str) or not isinstance(given, Iterable)
            object.__setattr__(self, name, (given,) if alone else in_order(given))
        if unknown := set(self.may) - set(get_args(May)):
            raise ValueError(f"may: {min(unknown)!r} is none of {', '.join(get_args(May))}")
        for name in ("max_tokens", "seconds", "window_tokens", "result_bytes"):
            given, kind = getattr(self, name), int | float if name == "seconds" else int
            if not isinstance(given, kind) or not 0 < given <= MOST_OF_AN_OPTION:
                number = "a number" if name == "seconds" else "a whole number"
                raise ValueError(
                    f"{name} is {given!r}; give {number}, more than 0 and at most "
                    f"{MOST_OF_AN_OPTION:,}"
                )
        if not isinstance(self.temperature, int | float | None):
            raise ValueError(f"temperature is {self.temperature!r}; give a number, or None")

    @property
    def content(self) -> dict[str, Any]:
        """What differs from the defaults: an option that is added changes no agent's version."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        plain["fallback"] = tuple(name_of(named) for named in self.fallback)
        defaults = {one.name: one.default for one in fields(self)}
        return {name: value for name, value in plain.items() if value != defaults[name]}


@dataclass(frozen=True, init=False, repr=False)
class Llm:
    """A language model as the decider: by its provider-qualified name, such as
    "openai:gpt-5-mini", or as a model of Pydantic AI, with a client of your own.

    Without one it is the llm of `AGENTOPS_LLM`.
    """

    model: Named = ""
    instructions: str = ""
    options: LlmOptions = field(default_factory=LlmOptions)

    def __init__(self, model: Named = "", instructions: str = "", **options: Any) -> None:
        """`options` are the fields of `LlmOptions`. Raises TypeError for another name."""
        if not isinstance(model, str) and not hasattr(model, "model_id"):
            raise TypeError(
                "an llm is a name, as in openai:gpt-5-mini, or a model of Pydantic AI, "
                f"not {model!r:.80}"
            )
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "instructions", instructions)
        object.__setattr__(self, "options", LlmOptions(**options))

    @property
    def named(self) -> Named:
        """The llm that is asked first; empty where none is named anywhere."""
        return self.model or str(getattr(settings, "AGENTOPS_LLM", ""))

    @property
    def name(self) -> str:
        return name_of(self.named)

    @property
    def in_turn(self) -> tuple[Named, ...]:
        """Whom to ask: the next one where one does not answer."""
        return (self.named, *self.options.fallback)

    def __repr__(self) -> str:
        # What an agent's version is made of: the same in every process.
        return f"Llm({self.name!r}, {self.instructions!r}, **{self.options.content!r})"


def name_of(named: Named) -> str:
    """A model of Pydantic AI is named as its provider and it are called there."""
    return named if isinstance(named, str) else str(named.model_id)


def ask(decider: Any, context: Context) -> Decision:
    """The decider's answer for `context`; any exception of the decider passes through."""
    match decider:
        case Script():
            return _read_script(decider, context)
        case Llm():
            raise DeciderUnavailable(decider=f"llm {decider.name}", why="asked by runs.llm alone")
        case External():
            raise DeciderUnavailable(decider="external", why="its calls come through the gateway")
        case _:
            answer = decider(context)
            if inspect.isawaitable(answer):
                answer = asyncio.run(_await(answer))
            return _as_decision(answer)


async def _await(answer: Any) -> Any:
    return await answer


def _as_decision(answer: Any) -> Decision:
    match answer:
        case (
            CallTools()
            | Finish()
            | Fail()
            | Sleep()
            | WaitFor()
            | Ask()
            | Delegate()
            | DelegateAll()
            | Compensate()
        ):
            return answer
        case ToolCall():
            return CallTools(answer)
    raise DeciderUnavailable(
        decider="function",
        why=f"it returned {type(answer).__name__}, not a decision such as CallTools or Finish",
    )


def _read_script(script: Script, context: Context) -> Decision:
    last = context.last
    if last is not None and not last.committed:
        return Fail(f"{last.tool} ended as {last.status}: {last.error}")
    if context.position > len(script.entries):
        return Finish(last.result if last else None)
    names = {
        "input": context.input,
        "last": last.result if last else None,
        "labels": context.labels,
        "objective": context.objective,
        "run_id": context.run_id,
    }
    match script.entries[context.position - 1]:
        case ToolCall() as call:
            return CallTools(_fill_call(call, names))
        case CallTools(calls, rationale, confidence):
            filled = (_fill_call(call, names) for call in calls)
            return CallTools(*filled, rationale=rationale, confidence=confidence)
        case Finish(result):
            return Finish(_fill(result, names))
        case Fail(reason):
            return Fail(str(_fill(reason, names)))
        case Compensate(reason):
            return Compensate(str(_fill(reason, names)))
        case Delegate() as child:
            return _fill_child(child, names)
        case DelegateAll(children):
            return DelegateAll(*(_fill_child(child, names) for child in children))
        case (Sleep() | WaitFor() | Ask()) as wait:
            return wait
        case _ as never:
            assert_never(never)


def _fill_child(child: Delegate, names: Mapping[str, Any]) -> Delegate:
    objective = str(_fill(child.objective, names))
    return replace(child, objective=objective, input=_fill(child.input, names))


def _fill_call(call: ToolCall, names: Mapping[str, Any]) -> ToolCall:
    filled = ToolCall(call.tool, **_fill(dict(call.arguments), names))
    return filled.because(call.rationale, confidence=call.confidence)


def _fill(value: Any, names: Mapping[str, Any]) -> Any:
    match value:
        case str():
            if whole := _WHOLE.fullmatch(value):
                return _find(whole[1], names)
            return _WHOLE.sub(lambda found: str(_find(found[1], names)), value)
        case dict():
            return {key: _fill(item, names) for key, item in value.items()}
        case list() | tuple():
            return [_fill(item, names) for item in value]
        case _:
            return value


def _find(path: str, names: Mapping[str, Any]) -> Any:
    found: Any = names
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            raise DeciderUnavailable(decider="script", why=f"{{{path}}} has no value here")
        found = found[part]
    return found

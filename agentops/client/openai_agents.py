"""Tools of the OpenAI Agents SDK that are carried out by the gateway.

Guarantees: a call is named by a thread, by which of the llm's answers in it asked for it, and by
its place in that answer. All of that is the same when a run goes on from its session or from its
state, also where the newest answer was not kept and the llm is asked again; the next answer, and
with it every further call, has another name.

Where that does not hold nothing is called (NoPlace): in an agent that is a tool (`Agent.as_tool`),
whose runs have no names; where one `Turns` serves two runs that do not follow each other; and where
a thread of this process begins again with another input. An agent within a tool is run by a
function tool that calls `Runner.run` with a `Turns` of its own.

Does not know what a thread began with in another process: give each job a name of its own. Does not
see history that the provider keeps (`conversation_id`, `previous_response_id`): answers
are counted in what the llm is sent. Where that is cut (a session's limit), name the turn.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from agents import FunctionTool, RunHooks, RunState, function_tool
from agents.tool_context import ToolContext

from agentops.client.asking import Held, ask_async
from agentops.client.clients import AsyncClient, Client
from agentops.client.places import Asked, Beginnings, NoPlace, Numbers, Place, ordinal
from agentops.client.telling import as_text

_numbers = Numbers()
_beginnings = Beginnings()
_decisions: WeakKeyDictionary[ToolContext[Any], "_Decision"] = WeakKeyDictionary()


@dataclasses.dataclass(eq=False)
class _Decision:
    """An answer of the llm: how many came before it, what began the thread, and the calls."""

    turns: "Turns"
    number: int
    calls: list[Asked]


class Turns(RunHooks[Any]):
    """Says where in `thread` each answer of the llm stands; give it to `Runner.run` as `hooks`.

    `thread` is the name of the conversation or job, such as the session's id. `turn` names what
    the user asked last, as your application does; the answers are then counted from there.
    `state` is the state that the run goes on from, if it does. Hooks of your own are methods of a
    subclass, which call those of this class. Another run, if it does not follow, has another one.
    """

    def __init__(
        self, thread: str, *, turn: str = "", state: RunState[Any, Any] | None = None
    ) -> None:
        if not thread:
            raise ValueError("thread: it has no name; give the session's id, or the job's")
        self.thread, self.turn = thread, turn
        self.problem = ""
        self.beginning: Any = None
        self._context: object = None
        self._decision: _Decision | None = None
        self._next = 0
        if state is not None:
            self._resume(state)

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: str | None, input_items: list[Any]
    ) -> None:
        if isinstance(context, ToolContext):
            self.problem = "an agent that is a tool has no name of its own"
        elif context is not self._context:
            # Another run: what came before it is in what it begins with.
            before, self._context = self._next, context
            self._next = self._count(input_items)
            if self._next < before:
                self.problem = "its `Turns` was given to a second run, which begins anew"
            if self.beginning is None:
                self.beginning = _first_prompt(input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self._decide([_plain(item) for item in response.output])

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        if isinstance(context, ToolContext) and self._decision is not None:
            _decisions[context] = self._decision

    def _decide(self, output: Iterable[Mapping[str, Any]]) -> None:
        calls = [
            Asked(str(one["name"]), one.get("call_id"), _arguments(one.get("arguments")))
            for one in output
            if one.get("type") == "function_call"
        ]
        self._decision = _Decision(self, self._next, calls)
        self._next += 1

    def _resume(self, state: RunState[Any, Any]) -> None:
        """The newest answer is in the state: its tools are called before the llm is asked."""
        kept = state.to_json()
        begun = kept.get("original_input")
        answers = kept.get("model_responses") or []
        if answers:
            items = begun if isinstance(begun, list) else [{"role": "user", "content": begun}]
            self.beginning = _first_prompt(items)
            self._next = self._count(items) + len(answers) - 1
            self._decide(answers[-1].get("output") or [])

    def _count(self, items: Iterable[Any]) -> int:
        """How many answers of an llm are in these items, with a turn since its beginning."""
        count, by_llm = 0, False
        for item in map(_plain, items):
            was_by_llm, by_llm = by_llm, _is_by_llm(item)
            if self.turn and item.get("role") == "user":
                count = 0
            elif by_llm and not was_by_llm:
                count += 1
        return count


def guarded(
    client: AsyncClient | Client,
    *,
    tool: str | None = None,
    namespace: str = "",
    wait: float | None = None,
    held: Held = "tell",
) -> Callable[[Callable[..., Any] | FunctionTool], FunctionTool]:
    """Make a tool of a function, or of a tool, that the gateway carries out.

    It has the name, description and arguments of what it is made of, whose body is never run.
    `tool` is its name at the gateway. `namespace` tells two agents apart that use one token and
    the same threads. Of a call that is pending or uncertain the llm is told, or with
    `held="raise"` the run ends with it. A run without `Turns` cannot call it: NoPlace.
    """

    def guard(function: Callable[..., Any] | FunctionTool) -> FunctionTool:
        model = function if isinstance(function, FunctionTool) else function_tool(function)
        called = tool or model.name

        async def call(context: ToolContext[Any], given: str) -> str:
            place = _place(context, called, namespace=namespace)
            arguments = _arguments(given)
            if not isinstance(arguments, dict):
                return "Nothing was done: the arguments are no JSON object."
            return as_text(
                await ask_async(client, called, arguments, place=place, wait=wait, held=held)
            )

        return dataclasses.replace(model, on_invoke_tool=call)

    return guard


def _place(context: ToolContext[Any], tool: str, *, namespace: str) -> Place:
    decision = _decisions.get(context)
    if decision is None:
        raise NoPlace(
            f"{tool}: nothing names the call after a crash; give Runner.run hooks=Turns(…) with "
            "the name of the thread"
        )
    turns = decision.turns
    if turns.problem:
        raise NoPlace(
            f"{tool}: {turns.problem}, so its calls would be taken for another run's; run it by "
            "Runner.run with hooks=Turns(…) made for that run alone, with a thread that names what "
            "it is for"
        )
    if not turns.turn:
        _beginnings.check(f"{namespace}:{turns.thread}", turns.beginning)
    number = ordinal(
        decision.calls,
        call=Asked(context.tool_name, context.tool_call_id, _arguments(context.tool_arguments)),
        started=lambda what: _numbers.next(decision, what),
    )
    thread = f"{namespace}:{turns.thread}" if namespace else turns.thread
    parts = [one for one in (turns.turn, tool) if one]
    return Place(thread, decision.number, f"{'/'.join(parts)}#{number}")


def _arguments(given: Any) -> Any:
    """What an llm gave as a JSON object; the text itself where it is none."""
    try:
        return json.loads(given or "{}")
    except ValueError:
        return given


def _first_prompt(items: Iterable[Any]) -> Any:
    for item in map(_plain, items):
        if item.get("role") == "user":
            return item.get("content")
    return None


def _plain(item: Any) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return item
    return item.model_dump() if hasattr(item, "model_dump") else {}


def _is_by_llm(item: Mapping[str, Any]) -> bool:
    if (role := item.get("role")) is not None:
        return bool(role == "assistant")
    kind = str(item.get("type", ""))
    return not kind.endswith(("_output", "_response"))

"""Tools of Pydantic AI that are carried out by the gateway.

Guarantees: a call is named by the conversation, by which of the llm's answers in it asked for it,
and by its place in that answer. All of that is the same when the conversation goes on from the
messages that were kept, also where the newest answer was not kept and the llm is asked again; the
next answer, and with it every further call, has another name.

Where that does not hold nothing is called (NoPlace): in a conversation that was given no name, for
which pydantic-ai makes a random one; and where a conversation of this process begins again with
another prompt, as that of an agent within an agent does which was given its caller's
`conversation_id`. `delegated` names the runs of such an agent.

Does not know what a conversation began with in another process: give each job a `conversation_id`
of its own, and a conversation that goes on the messages it had. Where the history is cut (a history
processor, compaction), answers cannot be counted from its beginning: name the turn with `turn`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any
from uuid import UUID

from pydantic_ai import RunContext, Tool
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart

from agentops.client.asking import Held, ask_async
from agentops.client.clients import AsyncClient, Client
from agentops.client.places import Asked, Beginnings, NoPlace, Numbers, Place, ordinal

_numbers = Numbers()
_beginnings = Beginnings()
# How pydantic-ai makes the id of a conversation that was given none.
_GENERATED = 7


class _Delegation:
    """The call that runs of other agents are a part of, and which run it was."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._run_id: str | None = None

    def of(self, ctx: RunContext[Any], tool: str) -> Place:
        """The place of the call, for one run alone."""
        if self._run_id is None:
            self._run_id = ctx.run_id
        if self._run_id != ctx.run_id:
            raise NoPlace(
                f"{tool}: a second run within one `delegated`, whose calls would be taken for the "
                "first one's; enter it for each run, with a `turn` that tells them apart"
            )
        return self.place


_delegation: ContextVar[_Delegation | None] = ContextVar("agentops_delegation", default=None)


@contextmanager
def delegated(ctx: RunContext[Any], *, namespace: str = "", turn: str = "") -> Iterator[None]:
    """The run of another agent in here is a part of the tool call whose context this is.

    Its calls are named by the place of that call, and by their place in the run. It is one run;
    for a second one in the same tool enter it again, with a `turn` that tells them apart. Of the
    outer agent's guarded tools `namespace` is what they have.
    """
    place = _place(ctx, ctx.tool_name or "", namespace=namespace, turn=None)
    if turn:
        place = replace(place, action=f"{place.action}/{turn}")
    token = _delegation.set(_Delegation(place))
    try:
        yield
    finally:
        _delegation.reset(token)


def guarded(
    client: AsyncClient | Client,
    *,
    tool: str | None = None,
    namespace: str = "",
    turn: Callable[[RunContext[Any]], str] | None = None,
    wait: float | None = None,
    held: Held = "tell",
) -> Callable[[Callable[..., Any] | Tool[Any]], Tool[Any]]:
    """Make a tool of a function, or of a tool, that the gateway carries out.

    It has the name, description and arguments of what it is made of, whose body is never run.
    `tool` is its name at the gateway. `namespace` tells two agents apart that use one token and
    the same conversation ids. `turn` names what the user asked last, as your application does; the
    answers are then counted from there. Of a call that is pending or uncertain the llm is told, or
    with `held="raise"` the run ends with it, and can go on from its messages.
    """

    def guard(function: Callable[..., Any] | Tool[Any]) -> Tool[Any]:
        model: Tool[Any] = function if isinstance(function, Tool) else Tool(function)
        called = tool or model.name

        async def call(ctx: RunContext[Any], **arguments: Any) -> Any:
            place = _place(ctx, called, namespace=namespace, turn=turn, arguments=arguments)
            return await ask_async(client, called, arguments, place=place, wait=wait, held=held)

        return Tool.from_schema(
            call,
            name=model.name,
            description=model.description,
            json_schema=model.function_schema.json_schema,
            takes_ctx=True,
        )

    return guard


def _place(
    ctx: RunContext[Any],
    tool: str,
    *,
    namespace: str,
    turn: Callable[[RunContext[Any]], str] | None,
    arguments: Any = None,
) -> Place:
    delegation = _delegation.get()
    if delegation is not None:
        thread = delegation.of(ctx, tool).thread
    else:
        thread = _conversation(ctx, tool)
        if turn is None:
            _beginnings.check(f"{namespace}:{thread}", _first_prompt(ctx.messages))
    named = turn(ctx) if turn is not None else ""
    messages = _since_prompt(ctx.messages) if turn is not None else ctx.messages
    answers = [one for one in messages if isinstance(one, ModelResponse)]
    if not answers:
        raise NoPlace(f"{tool}: no answer of an llm asked for it; see `agentops.client.Client`")
    number = ordinal(
        [
            Asked(one.tool_name, one.tool_call_id, _plain(one.args))
            for one in answers[-1].tool_calls
        ],
        call=Asked(ctx.tool_name or tool, ctx.tool_call_id, arguments),
        started=lambda what: _numbers.next(ctx.usage, (ctx.run_id, len(answers), what)),
    )
    within = f"{delegation.place.step}>{delegation.place.action}>" if delegation else ""
    parts = [one for one in (named, tool) if one]
    return Place(
        f"{namespace}:{thread}" if namespace else thread,
        len(answers),
        f"{within}{'/'.join(parts)}#{number}",
    )


def _conversation(ctx: RunContext[Any], tool: str) -> str:
    """Its name, if it is one that the run can be given again."""
    name = ctx.conversation_id or ""
    is_kept = any(
        one.conversation_id == name and one.run_id not in (None, ctx.run_id) for one in ctx.messages
    )
    if not name or (_is_generated(name) and not is_kept):
        raise NoPlace(
            f"{tool}: the conversation has no name that it can be given again, so nothing names "
            "the call after a crash; give Agent.run a conversation_id that the job keeps and that "
            "is no UUIDv7, as in 'job-7'; have an agent within a tool run `with delegated(ctx)`"
        )
    return name


def _is_generated(name: str) -> bool:
    try:
        return UUID(name).version == _GENERATED
    except ValueError:
        return False


def _first_prompt(messages: Sequence[ModelMessage]) -> Any:
    for message in messages:
        for part in message.parts if isinstance(message, ModelRequest) else ():
            if isinstance(part, UserPromptPart):
                return part.content
    return None


def _plain(arguments: Any) -> Any:
    """What an llm gave, in text or not, as it is compared with what the tool is called with."""
    if not isinstance(arguments, str):
        return arguments or {}
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def _since_prompt(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
    """From the newest prompt of a user on."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, ModelRequest) and any(
            isinstance(part, UserPromptPart) for part in message.parts
        ):
            return messages[index:]
    return messages

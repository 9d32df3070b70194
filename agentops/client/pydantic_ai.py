"""Tools of Pydantic AI that are carried out by the gateway.

Guarantees: a call is named by the conversation, by which of the llm's answers in it asked for it,
and by its place in that answer. All of that is the same when the conversation goes on from the
messages that were kept, also where the newest answer was not kept and the llm is asked again; the
next answer, and with it every further call, has another name.

Does not know a conversation that was given no name: give `Agent.run` a `conversation_id` that you
can give it again (or messages that hold one). Where the history is cut (a history processor,
compaction), answers cannot be counted from its beginning: name the turn with `turn`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai import RunContext, Tool
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart

from agentops.client.asking import Held, ask_async
from agentops.client.clients import AsyncClient, Client
from agentops.client.places import NoPlace, Numbers, Place, ordinal

_numbers = Numbers()


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
            place = _place(ctx, called, namespace=namespace, turn=turn)
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
) -> Place:
    if not ctx.conversation_id:
        raise NoPlace(f"{tool}: no conversation_id, so nothing names the call after a crash")
    named = turn(ctx) if turn is not None else ""
    messages = _since_prompt(ctx.messages) if turn is not None else ctx.messages
    answers = [one for one in messages if isinstance(one, ModelResponse)]
    if not answers:
        raise NoPlace(f"{tool}: no answer of an llm asked for it; see `agentops.client.Client`")
    number = ordinal(
        [(one.tool_name, one.tool_call_id) for one in answers[-1].tool_calls],
        tool=ctx.tool_name or tool,
        call_id=ctx.tool_call_id,
        started=lambda what: _numbers.next(ctx.usage, (ctx.run_id, len(answers), what)),
    )
    parts = [one for one in (named, tool) if one]
    return Place(
        f"{namespace}:{ctx.conversation_id}" if namespace else ctx.conversation_id,
        len(answers),
        f"{'/'.join(parts)}#{number}",
    )


def _since_prompt(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
    """From the newest prompt of a user on."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, ModelRequest) and any(
            isinstance(part, UserPromptPart) for part in message.parts
        ):
            return messages[index:]
    return messages

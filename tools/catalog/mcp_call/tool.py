"""A tool of an MCP server as one of ours.

Guarantees: the operator's declaration decides how it is recovered; the call leaves at most once;
a write is committed only by a complete answer that is no error, and refused only where errors
were declared final; every other end is unknown. A write without a key and without a look-up is
then never sent again: it ends in front of a person.
Does not read the server's argument schema: `arguments` is yours, and what the server refuses
comes back as its error.
"""

from collections.abc import Callable, Mapping
from typing import Any, Unpack

from pydantic import BaseModel

from tools.call import Call
from tools.canonical import JsonValue
from tools.catalog.arguments import sign
from tools.catalog.declared import Declared
from tools.catalog.mcp_call.answers import read_answer, read_reference
from tools.catalog.mcp_call.hints import warn_of_contradictions
from tools.catalog.mcp_call.provider import MCP
from tools.catalog.mcp_call.server import McpServer
from tools.catalog.mcp_call.session import MOST_WORDS, Lost, call_once
from tools.declarations import EffectType, Provider
from tools.errors import InvalidTool, Rejected, ToolError
from tools.redaction import bound_text
from tools.results import external_ref as note_reference
from tools.spec import ToolSpec
from tools.spec import tool as register

# JSON-RPC's "invalid params", which the client library never makes up itself.
INVALID_PARAMS = -32602


class ToolFailed(ToolError):
    """The server reported an error of the tool; what it did before is not known."""

    def __init__(self, answer: Mapping[str, JsonValue]) -> None:
        super().__init__(
            f"the tool reported an error: {bound_text(str(answer['text']), MOST_WORDS)}"
        )


class NotComplete(ToolError):
    """The server answered with something other than the tool's result."""

    def __init__(self, kind: object) -> None:
        super().__init__(f"the server's answer is {bound_text(str(kind), 80)}, not a result")


def mcp_tool(
    *,
    name: str,
    server: McpServer,
    tool: str,
    effect_type: EffectType,
    arguments: type[BaseModel],
    description: str = "",
    provider: Provider = MCP,
    key_meta: str = "idempotencyKey",
    key_argument: str = "",
    fence_meta: str = "",
    errors_are_final: bool = False,
    external_ref: str = "",
    reconcile_handler: Callable[..., Any] | None = None,
    **declared: Unpack[Declared],
) -> Callable[..., Any]:
    """Register the server's `tool` under `name`; returns its function, with a `.spec`.

    `arguments` is a Pydantic model whose fields are the tool's arguments, under the server's
    names; its docstring is the description unless one is given. A write's idempotency key is
    sent in `_meta` under `key_meta`, and in the argument `key_argument` if that is given;
    `fence_meta` names a `_meta` entry for the fencing token. Whether the server honours them is
    for `provider` to say.

    `errors_are_final` declares that an error result of this tool means "refused, no effect".
    `external_ref` is the place of the provider's reference in the structured content. The result
    is `{"text", "structured", "left_out"}`. `declared` is what `@tool` takes.

    Raises InvalidTool.
    """
    if key_argument in arguments.model_fields:
        fix = "leave it out of the model: it is filled in here"
        raise InvalidTool(name, problem=f"{key_argument} is an argument and the key", fix=fix)

    async def act(call: Call, /, **_: Any) -> Any:
        spec: ToolSpec = act.spec  # type: ignore[attr-defined]
        sent, meta = dict(call.arguments), {}
        if effect_type.is_write:
            meta = {key_meta: call.idempotency_key, fence_meta: call.fence_token}
            sent |= {key_argument: call.idempotency_key} if key_argument else {}
        meta.pop("", None)
        try:
            listing, result = await call_once(
                call, server=server, tool=tool, arguments=sent, meta=meta
            )
        except Lost as error:
            if effect_type is EffectType.READ and error.code == INVALID_PARAMS:
                raise Rejected(str(error)) from error
            raise
        warn_of_contradictions(spec, listing)
        answer = _read(result, errors_are_final=errors_are_final or not effect_type.is_write)
        if reference := read_reference(answer, external_ref):
            note_reference(reference)
        return answer

    sign(act, name=name, description=description, arguments=arguments, checks=())
    return register(
        name=name,
        provider=provider,
        effect_type=effect_type,
        reconcile_handler=reconcile_handler,
        **declared,
    )(act)


async def ask_server(
    call: Call, *, server: McpServer, tool: str, arguments: Mapping[str, Any]
) -> dict[str, JsonValue]:
    """What a reading tool answers, for an `async` reconcile_handler: `{"text", "structured", …}`.

    Raises NotSent, Lost, ToolFailed or NotComplete, each of which is "the look-up failed".
    """
    _, result = await call_once(call, server=server, tool=tool, arguments=arguments, meta={})
    _check_complete(result)
    answer = read_answer(result)
    if result.is_error:
        raise ToolFailed(answer)
    return answer


def _read(result: Any, *, errors_are_final: bool) -> dict[str, JsonValue]:
    _check_complete(result)
    answer = read_answer(result)
    if not result.is_error:
        return answer
    if errors_are_final:
        raise Rejected(answer["text"] or "the tool reported an error without words")
    raise ToolFailed(answer)


def _check_complete(result: Any) -> None:
    if result.result_type != "complete":
        raise NotComplete(result.result_type)

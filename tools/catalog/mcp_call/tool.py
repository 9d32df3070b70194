"""A tool of an MCP server as one of ours.

Guarantees: the operator's declaration decides how it is recovered; the call leaves at most once;
a write is committed only by a complete answer that is no error, and refused only where errors
were declared final; every other end is unknown. A write without a key and without a look-up is
then never sent again: it ends in front of a person.
With `arguments` of your own the server's schema is not read, and what it refuses comes back as its
error. With an `input_schema` that was pinned, nothing is sent to a server that now lists another.
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
from tools.errors import InvalidTool, NotSent, Rejected, ToolError
from tools.redaction import bound_text
from tools.results import external_ref as note_reference
from tools.schema_arguments import SchemaArguments
from tools.spec import ToolSpec, without_prose
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


class SchemaChanged(NotSent):
    """The server lists the tool with other arguments than those that were agreed to."""

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"the server now lists other arguments of {tool} than those that are pinned; read "
            "them with describe_mcp, and pin them anew"
        )


def mcp_tool(
    *,
    name: str,
    server: McpServer,
    tool: str,
    effect_type: EffectType,
    arguments: type[BaseModel] | None = None,
    input_schema: Mapping[str, Any] | None = None,
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
    names; its docstring is the description unless one is given. In its place, `input_schema` is
    the schema that the server lists: nothing is sent once that differs in more than its words.
    A write's idempotency key is sent in `_meta` under `key_meta`, and in the argument
    `key_argument` if that is given; `fence_meta` names a `_meta` entry for the fencing token.
    Whether the server honours them is for `provider` to say.

    `errors_are_final` declares that an error result of this tool means "refused, no effect".
    `external_ref` is the place of the provider's reference in the structured content. The result
    is `{"text", "structured", "left_out"}`. `declared` is what `@tool` takes.

    Raises InvalidTool.
    """
    model = _argument_model(name, arguments, input_schema, key_argument)

    async def act(call: Call, /, **_: Any) -> Any:
        spec: ToolSpec = act.spec  # type: ignore[attr-defined]
        sent, meta = dict(call.arguments), {}
        if model is not None:
            sent = model.given(sent)
        if effect_type.is_write:
            meta = {key_meta: call.idempotency_key, fence_meta: call.fence_token}
            sent |= {key_argument: call.idempotency_key} if key_argument else {}
        meta.pop("", None)
        try:
            listing, result = await call_once(
                call, server=server, tool=tool, arguments=sent, meta=meta, check=check
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

    def check(listing: Any) -> None:
        if input_schema is not None and not is_same_schema(input_schema, listing.input_schema):
            raise SchemaChanged(tool)

    if arguments is not None:
        sign(act, name=name, description=description, arguments=arguments, checks=())
    else:
        act.__name__ = act.__qualname__ = name
        act.__doc__ = description
    return register(
        name=name,
        argument_model=model,
        provider=provider,
        effect_type=effect_type,
        reconcile_handler=reconcile_handler,
        **declared,
    )(act)


def is_same_schema(pinned: Any, listed: Any) -> bool:
    """Whether two schemas of arguments differ in nothing but words for readers."""
    return bool(without_prose(pinned) == without_prose(listed))


async def ask_server(
    call: Call, *, server: McpServer, tool: str, arguments: Mapping[str, Any]
) -> dict[str, JsonValue]:
    """What a reading tool answers, for an `async` reconcile_handler: `{"text", "structured", …}`.

    Raises NotSent, Lost, ToolFailed or NotComplete, each of which is "the look-up failed". An
    argument that the server does not list is NotSent: some servers drop those, and find nothing.
    """

    def check(listing: Any) -> None:
        schema = listing.input_schema
        unknown = set(arguments).difference(schema.get("properties") or ())
        if unknown and not schema.get("additionalProperties"):
            named = bound_text(min(unknown), 80)
            raise NotSent(f"the server lists no argument {named} of {tool}; correct the look-up")

    _, result = await call_once(
        call, server=server, tool=tool, arguments=arguments, meta={}, check=check
    )
    _check_complete(result)
    answer = read_answer(result)
    if result.is_error:
        raise ToolFailed(answer)
    return answer


def _argument_model(
    name: str,
    arguments: type[BaseModel] | None,
    input_schema: Mapping[str, Any] | None,
    key_argument: str,
) -> SchemaArguments | None:
    """None where the annotations of `arguments` say all."""
    if (arguments is None) == (input_schema is None):
        fix = "give a model, or the schema that the server lists"
        raise InvalidTool(name, problem="it needs either arguments or input_schema", fix=fix)
    if arguments is not None:
        if key_argument in arguments.model_fields:
            fix = "leave it out of the model: it is filled in here"
            raise InvalidTool(name, problem=f"{key_argument} is an argument and the key", fix=fix)
        return None
    assert input_schema is not None
    model = SchemaArguments(tool=name, schema=_without(input_schema, key_argument))
    if key_argument and key_argument not in input_schema.get("properties", {}):
        fix = "name an argument of the server's, or leave key_argument out"
        raise InvalidTool(name, problem=f"the server knows no argument {key_argument}", fix=fix)
    return model


def _without(schema: Mapping[str, Any], argument: str) -> dict[str, Any]:
    """What the caller is asked for: all but what is filled in here."""
    own = dict(schema)
    if isinstance(properties := own.get("properties"), Mapping):
        own["properties"] = {name: one for name, one in properties.items() if name != argument}
    if isinstance(required := own.get("required"), list):
        own["required"] = [name for name in required if name != argument]
    return own


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

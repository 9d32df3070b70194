"""The look-up that a file can declare: what is asked, and what the answer says.

Guarantees: "committed" needs something at the declared place that can be nothing but the effect
itself, and "not found" a place that is there and empty; numbers, messages of emptiness and more
than one hit say neither. A text between braces is a name that is known when the file is read, and
has a value when it is sent, or nothing is asked: a look-up for something else would find nothing,
and "not found" has a call sent again.
Does not know whether the server answers truly, nor whether it answers completely.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tools.call import Call
from tools.catalog.mcp_call import ask_server
from tools.catalog.mcp_call.server import McpServer
from tools.errors import InvalidTool, ToolError
from tools.mcp_servers.shape import LookUp, ToolEntry
from tools.reconciled import Reconciled
from tools.redaction import bound_text

OURS: Final = frozenset({"idempotency_key", "operation_id"})
# As in Python's `format`: a doubled brace is a brace.
_BRACES: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
# What servers write where they have nothing.
_EMPTY_WORDS: Final = frozenset({"0", "false", "no", "none", "not found", "null", "[]", "{}"})


class NotGiven(ToolError):
    """The look-up names an argument that the call was not given."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the look-up asks by {name}, which the call was not given; name arguments that every "
            "call has"
        )


def check_look_up(name: str, look_up: LookUp, *, tool: str, tools: Mapping[str, ToolEntry]) -> None:
    """What of the declaration can be judged before anything is asked. Raises InvalidTool."""
    entry, other = tools[tool], tools.get(look_up.tool)
    if look_up.tool == tool or (other is not None and other.effect_type.is_write):
        fix = "name a tool of the server that only reads, declared as READ if it stands here"
        raise InvalidTool(name, problem=f"look_up.tool: {look_up.tool} is a write", fix=fix)
    if other is not None:
        _check_argument_names(name, look_up, other)
    properties = entry.input_schema.get("properties")
    own = set(properties if isinstance(properties, dict) else ()) - {entry.key_argument}
    for place in _places(look_up.arguments):
        shown = bound_text(place, 80)
        if place in OURS & own:
            fix = "ask by something else, or write a reconcile_handler"
            problem = f"look_up.arguments: {{{shown}}} is an argument of the call and a name here"
            raise InvalidTool(name, problem=problem, fix=fix)
        if place not in OURS | own:
            known = ", ".join(sorted(OURS | own))
            fix = f"there are: {bound_text(known, 200)}; a brace that is meant is written twice"
            problem = f"look_up.arguments: {{{shown}}} is the name of nothing"
            raise InvalidTool(name, problem=problem, fix=fix)


def reconcile_handler(server: McpServer, look_up: LookUp) -> Callable[[Call], Any]:
    """The tool's reconcile_handler."""

    async def look(call: Call) -> Reconciled[Any]:
        arguments = {name: fill(value, call) for name, value in look_up.arguments.items()}
        answer = await ask_server(call, server=server, tool=look_up.tool, arguments=arguments)
        return read_look_up(look_up, answer["structured"])

    # Part of the tool's version: another look-up is another tool.
    look.__qualname__ = f"look_up {look_up.model_dump_json()}"
    return look


def fill(value: Any, call: Call) -> Any:
    """The value with its names filled in; one that is nothing but a name keeps its type.

    Raises NotGiven.
    """
    match value:
        case str():
            if (whole := _BRACES.fullmatch(value)) and whole[1] is not None:
                return _value(whole[1], call)
            return _BRACES.sub(lambda hit: _text(hit, call), value)
        case dict():
            return {name: fill(item, call) for name, item in value.items()}
        case list():
            return [fill(item, call) for item in value]
        case _:
            return value


def read_look_up(look_up: LookUp, structured: Any) -> Reconciled[Any]:
    """The verdict of a look-up's structured content."""
    missing = object()
    found = _at(structured, look_up.found, missing)
    if found is missing:
        return Reconciled.indeterminate(f"the look-up's answer has no {look_up.found}")
    if found is None or found is False or found in ([], {}, ""):
        # 0 equals False and is none of these: it is a number, which is judged below.
        return Reconciled.not_found()
    if isinstance(found, list) and len(found) > 1:
        return Reconciled.indeterminate(f"the look-up found {len(found)} in {look_up.found}")
    one = found[0] if isinstance(found, list) else found
    if not _is_hit(one):
        kind = "a number" if _is_number(one) else "nothing that can be the effect"
        return Reconciled.indeterminate(f"the look-up has {kind} in {look_up.found}")
    reference = _at(one, look_up.external_ref, None) if look_up.external_ref else None
    usable = isinstance(reference, str | int) and not isinstance(reference, bool)
    if look_up.external_ref and isinstance(one, dict) and not (usable and _is_something(reference)):
        why = f"what the look-up found in {look_up.found} has no {look_up.external_ref}"
        return Reconciled.indeterminate(why)
    return Reconciled.committed(
        {"text": "", "structured": one, "left_out": []},
        external_ref=bound_text(str(reference), 200) if usable else None,
    )


def _check_argument_names(name: str, look_up: LookUp, reading: ToolEntry) -> None:
    properties = reading.input_schema.get("properties")
    known = sorted(properties if isinstance(properties, dict) else ())
    if unknown := [one for one in look_up.arguments if one not in known]:
        said = bound_text(unknown[0], 80)
        fix = f"its arguments are: {bound_text(', '.join(known), 200) or 'none'}"
        problem = f"look_up.arguments: {look_up.tool} takes no {said}"
        raise InvalidTool(name, problem=problem, fix=fix)


def _places(value: Any) -> Iterator[str]:
    """What stands between braces; a lone brace is one of these too."""
    match value:
        case str():
            for hit in _BRACES.finditer(value):
                if hit[0] not in ("{{", "}}"):
                    yield hit[1] if hit[1] is not None else hit[0]
        case dict():
            for item in value.values():
                yield from _places(item)
        case list():
            for item in value:
                yield from _places(item)


def _value(name: str, call: Call) -> Any:
    # The kernel's two come last: no argument may stand in their place.
    own = {"idempotency_key": call.idempotency_key, "operation_id": call.operation_id}
    value = {**call.arguments, **own}.get(name)
    if value is None:
        raise NotGiven(name)
    return value


def _text(hit: re.Match[str], call: Call) -> str:
    if hit[1] is None:
        return hit[0][0]
    value = _value(hit[1], call)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _at(value: Any, place: str, missing: Any) -> Any:
    for name in place.split("."):
        if not isinstance(value, dict) or name not in value:
            return missing
        value = value[name]
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_hit(one: Any) -> bool:
    """Whether it can be the effect: a number may be a count, and says nothing of which."""
    return not _is_number(one) and _is_something(one)


def _is_something(value: Any) -> bool:
    match value:
        case str():
            return value.strip().casefold() not in _EMPTY_WORDS | {""}
        case dict():
            return any(map(_is_something, value.values()))
        case list():
            return any(map(_is_something, value))
        case _:
            return bool(value)

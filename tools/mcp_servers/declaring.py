"""The tools of the file, registered like those that are written in Python.

Guarantees: what cannot be a tool is kept as a problem for the system check, with its place, and
the others are registered; so a faulty file stops a start with all its faults, and `check` and
`doctor` can still say them.
Does not connect to a server.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tools.call import Call
from tools.catalog.mcp_call import ask_server, mcp_tool
from tools.catalog.mcp_call.server import McpServer
from tools.errors import DuplicateTool, InvalidTool
from tools.mcp_servers.reading import UnreadableFile, read_file
from tools.mcp_servers.shape import LookUp, ServerEntry, ToolEntry
from tools.reconciled import Reconciled
from tools.redaction import bound_text

LONGEST_NAME: Final = 64
# What is `mcp_tool`'s, under the same words; a word that is not said has its default.
_HANDED_ON: Final = frozenset(ToolEntry.model_fields) - {
    "name",
    "look_up",
    "reconcile_handler",
    "compensation_handler",
    "resource_version",
    "migrate_arguments",
}
_PLACE: Final = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True)
class Declared:
    """What one file came to: its servers by name, and what is wrong with it."""

    path: Path | None = None
    servers: Mapping[str, ServerEntry] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


NOTHING: Final = Declared()
_declared: Declared = NOTHING


def declared_servers() -> Declared:
    """What this process has read at its start."""
    return _declared


def declare_servers(path: Path | None) -> Declared:
    """Read the file and register its tools. Without a path there are none."""
    global _declared
    _declared = _declare(path) if path is not None else NOTHING
    return _declared


def our_name(server: str, tool: str, entry: ToolEntry | None = None) -> str:
    """The name under which a server's tool is registered: `<server>_<tool>` unless it is said."""
    if entry is not None and entry.name is not None:
        return entry.name
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}_{tool}")[:LONGEST_NAME]


def _declare(path: Path) -> Declared:
    try:
        servers = read_file(path).servers
    except UnreadableFile as error:
        return Declared(path, problems=tuple(error.problems))
    problems = []
    for server, entry in servers.items():
        for tool, declared in entry.tools.items():
            try:
                _register(server, entry, tool, declared)
            except (InvalidTool, DuplicateTool, _NoFunction) as error:
                problems.append(bound_text(f"servers.{server}.tools.{tool}: {error}", 500))
    return Declared(path, servers, tuple(problems))


def _register(name: str, server: ServerEntry, tool: str, entry: ToolEntry) -> None:
    said = entry.model_fields_set
    given: dict[str, Any] = {word: getattr(entry, word) for word in _HANDED_ON & said}
    for word in ("reconcile_handler", "resource_version", "migrate_arguments"):
        if (path := getattr(entry, word)) is not None:
            given[word] = _function(path)
    if entry.compensation_handler is not None:
        handler = entry.compensation_handler
        given["compensation_handler"] = _function(handler) if ":" in handler else handler
    where = server.server()
    if entry.look_up is not None:
        given["reconcile_handler"] = _reconcile_handler(where, entry.look_up)
    mcp_tool(
        name=our_name(name, tool, entry),
        server=where,
        tool=tool,
        provider=server.provider_of(name),
        **given,
    )


class _NoFunction(Exception):
    """A path leads to nothing that can be called."""

    def __init__(self, path: str, *, why: str) -> None:
        super().__init__(f"{path} cannot be used: {why}; write package.module:function")


def _function(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise _NoFunction(path, why=str(error)) from error
    if not callable(found):
        raise _NoFunction(path, why="it is no function")
    function: Callable[..., Any] = found
    return function


# -- The look-up that a file can declare ---------------------------------------------------


def _reconcile_handler(server: McpServer, look_up: LookUp) -> Callable[[Call], Any]:
    async def look(call: Call) -> Reconciled[Any]:
        arguments = {name: _filled(value, call) for name, value in look_up.arguments.items()}
        answer = await ask_server(call, server=server, tool=look_up.tool, arguments=arguments)
        return read_look_up(look_up, answer["structured"])

    # Part of the tool's version: another look-up is another tool.
    look.__qualname__ = f"look_up {look_up.model_dump_json()}"
    return look


def read_look_up(look_up: LookUp, structured: Any) -> Reconciled[Any]:
    """The verdict of a look-up's structured content."""
    missing = object()
    found = _at(structured, look_up.found, missing)
    if found is missing:
        return Reconciled.indeterminate(f"the look-up's answer has no {look_up.found}")
    if found is None or found is False or found in ([], {}, ""):
        return Reconciled.not_found()
    if isinstance(found, list) and len(found) > 1:
        return Reconciled.indeterminate(f"the look-up found {len(found)} in {look_up.found}")
    one = found[0] if isinstance(found, list) else found
    reference = _at(one, look_up.external_ref, None) if look_up.external_ref else None
    usable = isinstance(reference, str | int) and not isinstance(reference, bool)
    return Reconciled.committed(
        {"text": "", "structured": one, "left_out": []},
        external_ref=bound_text(str(reference), 200) if usable else None,
    )


def _at(value: Any, place: str, missing: Any) -> Any:
    for name in place.split("."):
        if not isinstance(value, dict) or name not in value:
            return missing
        value = value[name]
    return value


def _filled(value: Any, call: Call) -> Any:
    """The value with its names filled in; one that is nothing but a name keeps its type."""
    match value:
        case str():
            named = _names(call)
            if (whole := _PLACE.fullmatch(value)) and whole[1] in named:
                return named[whole[1]]
            return _PLACE.sub(lambda hit: str(named.get(hit[1], hit[0])), value)
        case dict():
            return {name: _filled(item, call) for name, item in value.items()}
        case list():
            return [_filled(item, call) for item in value]
        case _:
            return value


def _names(call: Call) -> dict[str, Any]:
    # The kernel's two come last: no argument may stand in their place.
    own = {"idempotency_key": call.idempotency_key, "operation_id": call.operation_id}
    return {**call.arguments, **own}

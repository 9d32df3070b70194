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

from tools.catalog.mcp_call import mcp_tool
from tools.errors import DuplicateTool, InvalidTool
from tools.mcp_servers.looking_up import check_look_up, reconcile_handler
from tools.mcp_servers.reading import UnreadableFile, read_file
from tools.mcp_servers.shape import ServerEntry, ToolEntry
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
    ours = our_name(name, tool, entry)
    if entry.look_up is not None:
        check_look_up(ours, entry.look_up, tool=tool, tools=server.tools)
        given["reconcile_handler"] = reconcile_handler(where, entry.look_up)
    mcp_tool(
        name=ours,
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

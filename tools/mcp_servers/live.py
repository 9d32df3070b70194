"""What a server lists now, beside what is pinned in the file.

Guarantees: every tool is on one side of the comparison, or on both; a server that does not answer
is said to have said nothing, and never to have changed.
Does not call any tool, and does not compare descriptions: an llm reads the file's alone.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from tools.catalog.mcp_call.session import list_tools
from tools.catalog.mcp_call.tool import is_same_schema
from tools.errors import NotSent
from tools.mcp_servers.shape import ServerEntry
from tools.redaction import bound_text
from tools.schema_arguments import find_schema_problem

MOST_TOOLS: Final = 500
MOST_AT_ONCE: Final = 8
LONGEST_DESCRIPTION: Final = 4000
_HINTS: Final = {
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
}


@dataclass(frozen=True)
class Listed:
    """One tool as the server lists it; `hints` are what it says of itself, under MCP's names."""

    name: str
    description: str
    input_schema: dict[str, Any]
    hints: Mapping[str, bool] = field(default_factory=dict)
    # Why it cannot be called from here; empty if it can.
    problem: str = ""


@dataclass(frozen=True)
class Comparison:
    """The tools of one server by what became of them; the names of each are in order.

    `changed` are those whose arguments differ, which are not sent any more; `reworded` those of
    which only the words for readers do; `gone` those that are in the file and not at the server.
    """

    new: tuple[Listed, ...]
    changed: tuple[Listed, ...]
    reworded: tuple[Listed, ...]
    same: tuple[Listed, ...]
    unusable: tuple[Listed, ...]
    gone: tuple[str, ...]

    @property
    def stops(self) -> bool:
        """Whether a tool of the file cannot be called as it stands there."""
        return bool(self.changed or self.gone)


def ask_for_tools(entry: ServerEntry, *, seconds: float) -> list[Listed]:
    """Every tool that the server lists, by name. Raises NotSent."""
    listings = asyncio.run(list_tools(entry.server(), seconds=seconds))
    if len(listings) > MOST_TOOLS:
        raise NotSent(f"the server lists {len(listings)} tools, more than {MOST_TOOLS}")
    listed = {one.name: one for one in map(_read, listings)}
    return [listed[name] for name in sorted(listed)]


def ask_all(
    servers: Mapping[str, ServerEntry], *, seconds: float
) -> tuple[dict[str, str], dict[str, str]]:
    """(why each did not answer, how each stops calls), as sentences by server; asked together."""
    with ThreadPoolExecutor(max_workers=MOST_AT_ONCE) as threads:
        asked = {
            name: threads.submit(ask_for_tools, entry, seconds=seconds)
            for name, entry in servers.items()
        }
    silent: dict[str, str] = {}
    differing: dict[str, str] = {}
    for name, answer in asked.items():
        try:
            found = compare(servers[name], answer.result())
        except NotSent as error:
            silent[name] = bound_text(printable(str(error)), 300)
            continue
        if found.stops:
            told = [f"other arguments of {tool.name}" for tool in found.changed]
            told += [f"no {tool}" for tool in found.gone]
            differing[name] = bound_text(f"{name} now lists {', '.join(told)}", 300)
    return silent, differing


def printable(text: str) -> str:
    """On one line, and without what would command a terminal: a server's words go to one."""
    line = " ".join(text.split())
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in line)


def compare(entry: ServerEntry, listed: list[Listed]) -> Comparison:
    """What the server lists, beside the file's entry for it."""
    sides: dict[str, list[Listed]] = {
        side: [] for side in ("new", "changed", "reworded", "same", "unusable")
    }
    for tool in listed:
        sides[_side(entry, tool)].append(tool)
    names = {tool.name for tool in listed}
    gone = tuple(name for name in sorted(entry.tools) if name not in names)
    return Comparison(**{side: tuple(tools) for side, tools in sides.items()}, gone=gone)


def _side(entry: ServerEntry, tool: Listed) -> str:
    pinned = entry.tools.get(tool.name)
    if pinned is None:
        return "unusable" if tool.problem else "new"
    if not is_same_schema(pinned.input_schema, tool.input_schema):
        return "changed"
    return "same" if pinned.input_schema == tool.input_schema else "reworded"


def _read(listing: Any) -> Listed:
    annotations = listing.annotations
    hints = {name: getattr(annotations, field, None) for field, name in _HINTS.items()}
    name = bound_text(listing.name, 200)
    problem = find_schema_problem(listing.input_schema)
    if not 1 <= len(listing.name) <= 128 or not listing.name.isprintable():
        problem = "its name is not 1 to 128 printable characters"
    return Listed(
        name=name,
        description=bound_text(listing.description or "", LONGEST_DESCRIPTION),
        input_schema=listing.input_schema,
        hints={name: value for name, value in hints.items() if isinstance(value, bool)},
        problem=problem,
    )

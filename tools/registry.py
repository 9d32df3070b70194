"""Which tools this process knows, by name.

Guarantees: one function per name; an unknown name is answered with the nearest known ones.
Does not load anything: `apps.py` imports the `tools` module of every installed app.
"""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tools.errors import DuplicateTool, UnknownTool

if TYPE_CHECKING:
    from tools.spec import ToolSpec

_tools: "dict[str, ToolSpec]" = {}


def register(spec: "ToolSpec") -> None:
    """Make a tool known. Raises DuplicateTool if its name is taken."""
    taken = _tools.setdefault(spec.name, spec)
    if taken is not spec:
        raise DuplicateTool(spec.name, first=_origin(taken), second=_origin(spec))


def get_tool(name: str) -> "ToolSpec":
    """The tool of this name. Raises UnknownTool."""
    try:
        return _tools[name]
    except KeyError as error:
        near = difflib.get_close_matches(name[:100], list(_tools), n=3)
        raise UnknownTool(name, near=near) from error


def all_tools() -> "tuple[ToolSpec, ...]":
    """Every known tool, by name."""
    return tuple(_tools[name] for name in sorted(_tools))


@contextmanager
def isolated_registry() -> Iterator[None]:
    """An empty registry for the time of a `with` block; for tests, not for threads."""
    global _tools
    outside, _tools = _tools, {}
    try:
        yield
    finally:
        _tools = outside


def _origin(spec: "ToolSpec") -> str:
    return f"{spec.function.__module__}.{spec.function.__qualname__}"

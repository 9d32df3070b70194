"""New tools, and schemas that were read and agreed to, put into the file's own text.

Guarantees: not one character of what people wrote there changes, comments and ends of lines
included; before anything is replaced the new text is read again and has to say exactly the old
and the new; the file is replaced whole or not at all, where a link to it leads. A new tool is
declared as the worst case: what it does cannot be taken back, a person has to sign each call,
and a lost answer ends in front of a person.
Does not write into JSON or into a YAML mapping between braces: that is printed instead.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from tools.errors import ToolError
from tools.mcp_servers.live import Listed
from tools.mcp_servers.reading import parse, read_text

_WORST: Final = "IRREVERSIBLE"
_INDENT: Final = "  "
# Characters that JSON allows in a text and YAML does not, or reads as the end of a line.
_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


class CannotWrite(ToolError):
    """The file has a form into which nothing can be put without touching what stands there."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}; put what is printed there by hand")


def worst_case(tool: Listed) -> dict[str, Any]:
    """The entry of a tool of which nothing is known but what its server says."""
    return {
        "effect_type": _WORST,
        "description": tool.description,
        "input_schema": tool.input_schema,
    }


def as_yaml(tools: Iterable[Listed], *, indent: str = "") -> str:
    """The entries of new tools, as they stand under `tools:`."""
    return "".join(_entry(tool, indent) for tool in tools)


def add_tools(path: Path, server: str, tools: Iterable[Listed]) -> None:
    """Put worst-case entries before the server's other tools. Raises CannotWrite."""
    added = list(tools)
    text = _text_of(path)
    wanted = _plain(text, path)
    own = wanted["servers"][server]
    own["tools"] = {**{tool.name: worst_case(tool) for tool in added}, **(own.get("tools") or {})}
    root = _root(text, path)
    node = _child(_child(root, "servers", path), server, path)
    inside = next((value for key, value in node.value if key.value == "tools"), None)
    if isinstance(inside, yaml.MappingNode) and inside.value:
        place, indent = _start_of(inside, path)
        entries = as_yaml(added, indent=indent)
    elif inside is None:
        _, indent = _start_of(node, path)
        place = _end_of(node, text)
        entries = f"{indent}tools:\n{as_yaml(added, indent=indent + _INDENT)}"
        entries = entries if text[:place].endswith("\n") else f"\n{entries}"
    else:
        raise CannotWrite(path, f"servers.{server}.tools is empty: remove that word")
    if "\r\n" in text:
        entries = entries.replace("\n", "\r\n")
    _replace(path, text, text[:place] + entries + text[place:], wanted)


def pin_schemas(path: Path, server: str, tools: Iterable[Listed]) -> None:
    """Replace the pinned schema of these. Raises CannotWrite."""
    text = _text_of(path)
    wanted = _plain(text, path)
    changes: list[tuple[int, int, str]] = []
    root = _root(text, path)
    entries = _child(_child(_child(root, "servers", path), server, path), "tools", path)
    for tool in tools:
        value = _child(_child(entries, tool.name, path), "input_schema", path)
        if not isinstance(value, yaml.MappingNode) or not value.flow_style:
            raise CannotWrite(path, f"{tool.name}: its input_schema is not between braces")
        place = value.start_mark.index, value.end_mark.index
        changes.append((*place, _flow(tool.input_schema)))
        wanted["servers"][server]["tools"][tool.name]["input_schema"] = tool.input_schema
    new = text
    # From the end on, so that the places before stay where they are.
    for start, end, value_text in sorted(changes, reverse=True):
        new = new[:start] + value_text + new[end:]
    _replace(path, text, new, wanted)


def _text_of(path: Path) -> str:
    # `read_text` would make one kind of all ends of lines.
    return path.read_bytes().decode()


def _entry(tool: Listed, indent: str) -> str:
    inner = indent + _INDENT
    lines = [f"{indent}{_flow(tool.name)}:"]
    if tool.hints:
        said = ", ".join(f"{name}: {str(on).lower()}" for name, on in tool.hints.items())
        lines.append(f"{inner}# what the server says of it, and need not be so: {said}")
    lines += [f"{inner}{word}: {_flow(value)}" for word, value in worst_case(tool).items()]
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    """One line of JSON, which YAML reads as the same value."""
    if value == _WORST:
        return _WORST
    written = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda hit: f"\\u{ord(hit[0]):04x}", written)


def _plain(text: str, path: Path) -> Any:
    """What the text says, with nothing in it shared: an alias is a copy that must not change."""
    return json.loads(json.dumps(parse(text, path)))


def _root(text: str, path: Path) -> yaml.Node:
    if path.suffix.lower() == ".json":
        raise CannotWrite(path, "it is JSON")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert root is not None
    return root


def _child(node: yaml.Node, name: str, path: Path) -> yaml.Node:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name:
                child: yaml.Node = value
                return child
    raise CannotWrite(path, f"{name} is not where it is looked for")


def _start_of(node: yaml.Node, path: Path) -> tuple[int, str]:
    """Where the line of a mapping's first key begins, and its indentation."""
    if not isinstance(node, yaml.MappingNode) or node.flow_style or not node.value:
        raise CannotWrite(path, "it is written between braces")
    mark = node.value[0][0].start_mark
    return mark.index - mark.column, " " * mark.column


def _end_of(node: yaml.Node, text: str) -> int:
    """The end of the line on which a mapping's last value ends."""
    last = node
    while isinstance(last, yaml.CollectionNode) and not last.flow_style and last.value:
        last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
    end: int = last.end_mark.index
    if last.end_mark.column == 0:
        # A block of lines ends where the next line begins.
        return end
    return text.find("\n", end) + 1 or len(text)


def _replace(path: Path, old: str, new: str, wanted: Any) -> None:
    try:
        says_so = parse(new, path) == wanted
        read_text(new, path)
    except (yaml.YAMLError, ValueError, ToolError) as error:
        raise CannotWrite(path, f"the new text cannot be read: {error}") from error
    if not says_so:
        raise CannotWrite(path, "the new text would not say the same")
    if _text_of(path) != old:
        raise CannotWrite(path, "somebody else has just written it")
    # A link to it stays one.
    real = path.resolve()
    with tempfile.NamedTemporaryFile(dir=real.parent, delete=False) as temporary:
        temporary.write(new.encode())
        temporary.flush()
        os.fsync(temporary.fileno())
    Path(temporary.name).chmod(real.stat().st_mode & 0o777)
    Path(temporary.name).replace(real)
    _sync_folder(real.parent)


def _sync_folder(folder: Path) -> None:
    """The new name outlives a crash of the machine too."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

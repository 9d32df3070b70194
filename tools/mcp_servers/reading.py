"""The file of MCP servers, read as what it declares.

Guarantees: whatever is wrong is said with the file, the place in it, the value and the fix, all
of it at once; a name that stands twice is refused, where YAML would take the last one; numbers
are read as JSON reads them.
Does not show values where a secret may stand in the place of its name.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pydantic
import yaml

from tools.errors import ToolError
from tools.mcp_servers.shape import HIDDEN, ServersFile
from tools.redaction import REDACTED, bound_text

LARGEST_FILE: Final = 4 * 1024 * 1024
_SHOWN: Final = 80


class UnreadableFile(ToolError):
    """The file of MCP servers cannot be used; `problems` are sentences."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        self.path, self.problems = path, problems
        super().__init__(f"{path}: {'; '.join(problems)}")


def read_file(path: Path) -> ServersFile:
    """Raises UnreadableFile."""
    try:
        with path.open("rb") as opened:
            raw = opened.read(LARGEST_FILE + 1)
        if len(raw) > LARGEST_FILE:
            raise UnreadableFile(path, [f"it is larger than {LARGEST_FILE} bytes"])
        text = raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UnreadableFile(path, [f"it cannot be read: {problem}"]) from error
    return read_text(text, path)


def read_text(text: str, path: Path) -> ServersFile:
    """Raises UnreadableFile. A path that ends in .json is read as JSON, any other as YAML."""
    try:
        return ServersFile.model_validate(parse(text, path))
    except pydantic.ValidationError as error:
        raise UnreadableFile(path, [*_problems(error)]) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = f"it is no {_language(path)}: {bound_text(' '.join(str(error).split()), 300)}"
        raise UnreadableFile(path, [problem]) from None


def parse(text: str, path: Path) -> Any:
    """The plain value of the text. Raises YAMLError, ValueError, RecursionError."""
    if _language(path) == "JSON":
        return json.loads(text, object_pairs_hook=_unique)
    return yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader)


def _language(path: Path) -> str:
    return "JSON" if path.suffix.lower() == ".json" else "YAML"


class _Loader(yaml.SafeLoader):
    """Plain values; a name once; 1e5 a number, as in YAML 1.2 and JSON, and no dates."""

    yaml_implicit_resolvers = {
        first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        for name in names:
            if not isinstance(name, str):
                said = f'{name!r:.80} is no text; write it in quotes: "{name!s:.80}"'
                raise yaml.constructor.ConstructorError(None, None, said, node.start_mark)
            if names.count(name) > 1:
                said = f"{name!r:.80} stands here twice"
                raise yaml.constructor.ConstructorError(None, None, said, node.start_mark)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?[eE][-+]?[0-9]+$"),
    list("-0123456789"),
)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r:.80} stands twice in one object")
    return made


def _problems(error: pydantic.ValidationError) -> Iterator[str]:
    for entry in error.errors(include_url=False):
        place = [str(part) for part in entry["loc"] if part != "[key]"]
        given = entry["input"]
        shown = bound_text(repr(given), _SHOWN) if not isinstance(given, dict) else ""
        if HIDDEN.intersection(place):
            shown = REDACTED
        words = entry["msg"].removeprefix("Value error, ")
        if entry["type"] == "extra_forbidden":
            words, shown = "there is no such word here; correct or remove it", ""
        told = f" (given: {shown})" if shown and entry["type"] != "missing" else ""
        yield bound_text(f"{'.'.join(place) or 'the file'}{told}: {words}", 500)

"""What an MCP tool answered, as JSON of a bounded size.

Guarantees: text is cut, pictures and files are named instead of kept, and what cannot be stored
is left out and said to be: an answer's size never makes an effect unknown.
Does not believe anything that it says.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from tools.canonical import JsonValue, check_json
from tools.errors import InvalidPayload
from tools.redaction import bound_text

MOST_TEXT: Final = 20_000
MOST_STRUCTURED: Final = 100_000
MOST_NAMES: Final = 20
LONGEST_NAME: Final = 200


def read_answer(result: Any) -> dict[str, JsonValue]:
    """`{"text": …, "structured": …, "left_out": […]}` of a `CallToolResult`."""
    text = "\n".join(_texts(result))
    left_out = [*_others(result)][:MOST_NAMES]
    if len(text) > MOST_TEXT:
        left_out.append(f"text beyond {MOST_TEXT} characters")
    structured: JsonValue = result.structured_content
    try:
        check_json(structured, field="structured", limit_bytes=MOST_STRUCTURED)
    except InvalidPayload:
        structured = None
        left_out.append("structured content that cannot be stored")
    if structured is not None and _repeats(text, structured):
        text = ""
    return {"text": bound_text(text, MOST_TEXT), "structured": structured, "left_out": [*left_out]}


def read_reference(answer: dict[str, JsonValue], place: str) -> str | None:
    """The text at `place` ("id", "order.id") of the structured content, None without one."""
    value: Any = answer["structured"]
    for name in place.split(".") if place else ():
        value = value.get(name) if isinstance(value, dict) else None
    usable = isinstance(value, str | int) and not isinstance(value, bool)
    return bound_text(str(value), LONGEST_NAME) if place and usable else None


def _repeats(text: str, structured: JsonValue) -> bool:
    """Servers are asked to send structured content once more as text, for older clients."""
    try:
        return bool(json.loads(text) == structured)
    except ValueError:
        return False


def _texts(result: Any) -> Iterator[str]:
    for block in result.content:
        if block.type == "text":
            yield block.text
        elif block.type == "resource" and hasattr(block.resource, "text"):
            yield block.resource.text


def _others(result: Any) -> Iterator[str]:
    for block in result.content:
        match block.type:
            case "text":
                continue
            case "resource_link":
                yield f"link {bound_text(str(block.uri), LONGEST_NAME)}"
            case "resource" if not hasattr(block.resource, "text"):
                yield f"file {bound_text(str(block.resource.uri), LONGEST_NAME)}"
            case "image" | "audio":
                yield f"{block.type} {bound_text(block.mime_type, LONGEST_NAME)}"

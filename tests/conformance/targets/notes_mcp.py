"""An MCP server of our own, on the official SDK, that writes down what its tools did.

    python -m tests.conformance.targets.notes_mcp FILE stdio|PORT [--honour] [--legacy]

Guarantees: each effect is a line of FILE before the call is answered, so that it survives the
server; with `--honour` repeated calls under one key are one effect.
Does not speak for other servers: none has to know keys.
"""

import json
import sys
from pathlib import Path
from typing import Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

from tests.conformance.targets.notes_file import notes

server = MCPServer("notes", log_level="ERROR")
file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("/dev/null")
honours = "--honour" in sys.argv
READS = ToolAnnotations(readOnlyHint=True)
NOT_IDEMPOTENT = ToolAnnotations(readOnlyHint=False, idempotentHint=False)


@server.tool(annotations=NOT_IDEMPOTENT)
def add_note(text: str, ctx: Context[Any, Any]) -> dict[str, Any]:
    """Write a note down."""
    meta = dict(ctx.request_context.meta or {})
    return _add(text, key=meta.get("idempotencyKey"), meta=meta)


@server.tool()
def add_keyed_note(text: str, idempotency_key: str) -> dict[str, Any]:
    """Write a note down, with the key among the arguments."""
    return _add(text, key=idempotency_key, meta={})


@server.tool()
def add_titled_note(text: str, title: str | None = None, weight: int = 1) -> dict[str, Any]:
    """Write a note down, perhaps under a title."""
    return _add(f"{title}: {text} ({weight})", key=None, meta={})


@server.tool()
def add_and_fail(text: str) -> str:
    """Write a note down and report an error."""
    _add(text, key=None, meta={})
    raise ValueError("the disk is full")


@server.tool(annotations=READS)
def find_note(key: str) -> dict[str, Any]:
    """The note that was written under a key."""
    found = [note for note in notes(file) if note["key"] == key]
    return {"found": found[0] if found else None}


@server.tool(annotations=READS)
def show(what: Literal["long", "deep", "odd", "plain"]) -> dict[str, Any]:
    """An answer that is hard to keep."""
    match what:
        case "long":
            return {"text": "x" * 300_000}
        case "deep":
            deep: dict[str, Any] = {}
            for _ in range(60):
                deep = {"in": deep}
            return deep
        case "odd":
            return {"text": "a\0b"}
        case "plain":
            return {}


def _add(text: str, *, key: object, meta: dict[str, Any]) -> dict[str, Any]:
    done = notes(file)
    if honours and key is not None:
        for note in done:
            if note["key"] == key:
                return {"id": note["id"]}
    note = {"id": f"note-{len(done) + 1}", "text": text, "key": key, "meta": sorted(meta)}
    with file.open("a") as written:
        written.write(json.dumps(note) + "\n")
    return {"id": note["id"]}


if __name__ == "__main__":
    if sys.argv[2] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))

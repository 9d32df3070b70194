"""How rows look to an llm: JSON text of bounded size, without what is secret.

Guarantees: whatever a tool, a provider or a person wrote stands inside a JSON string, so it ends
where the runtime says; a value that was cut says how much is missing and how it is read.

Does not count tokens exactly: no tokenizer of any provider is asked.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from runs.agents import get_agent
from runs.context import Context, Observed
from runs.errors import UnknownAgent
from tools.errors import UnknownTool
from tools.redaction import redact, scrub
from tools.registry import get_tool

# Low on purpose: JSON with ids in it has more tokens than prose has. A window that is counted too
# full is handed off early; one that is counted too empty is refused by the provider.
BYTES_PER_TOKEN: Final = 3
LONGEST_TEXT: Final = 2_000


def to_json(value: Any) -> str:
    """Compact JSON in which no foreign text can end the string that it stands in.

    Sorted, because a result as a tool returned it has its keys in another order than its row.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=str)


def estimate_tokens(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN + 1


def cut(value: Any, *, most_bytes: int, reference: str) -> Any:
    """The value, or what fits of its JSON text and how the rest is read."""
    text = to_json(value)
    kept = take(text, most_bytes=most_bytes)
    if len(kept) == len(text):
        return value
    missing = len(text) - len(kept)
    return {
        "cut": kept,
        "missing_characters": missing,
        "read_on": {"tool": "read_result", "reference": reference, "offset": len(kept)},
    }


def take(text: str, *, most_bytes: int) -> str:
    """The beginning of a text, in whole characters."""
    return text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")


def find_hidden_names(context: Context) -> frozenset[str]:
    """What is sensitive anywhere in a context: declared today, or when it was recorded."""
    names = _declared_by(context.agent)
    for seen in context.observations:
        names |= seen.sensitive
        names |= _declared_by(seen.tool) if seen.kind == "child" else _declared([seen.tool])
    return names


def hide(value: Any, names: Collection[str]) -> Any:
    return redact(value, names)


def hide_in_text(text: str, seen: Observed, names: Collection[str]) -> str:
    """A free text about a call, without the values of its sensitive arguments."""
    plain = scrub(text, seen.arguments, names)
    return plain if len(plain) <= LONGEST_TEXT else plain[:LONGEST_TEXT] + "…"


def _declared_by(agent: str) -> frozenset[str]:
    try:
        return _declared(get_agent(agent).allowed_tools)
    except UnknownAgent:
        return frozenset()


def _declared(tools: Collection[str]) -> frozenset[str]:
    names: set[str] = set()
    for tool in tools:
        try:
            names.update(get_tool(tool).sensitive)
        except UnknownTool:
            continue
    return frozenset(names)


def show_call(seen: Observed, names: Collection[str], *, most_bytes: int) -> dict[str, Any]:
    """What came of a call, for the result that answers it."""
    said: dict[str, Any] = {"operation": seen.operation_id, "status": str(seen.status)}
    if seen.never_sent:
        said["never_sent"] = seen.never_sent
    if seen.error:
        said["error"] = hide_in_text(seen.error, seen, names)
    if seen.external_ref:
        said["external_ref"] = seen.external_ref
    if seen.repeats:
        said["answered_from"] = seen.repeats
    if seen.committed:
        said["result"] = show_result(seen, names, most_bytes=most_bytes)
    return said


def show_told(seen: Observed, names: Collection[str], *, most_bytes: int) -> dict[str, Any]:
    """A signal, an answer or another run's result, as data."""
    said: dict[str, Any] = {"kind": seen.kind, "name": seen.tool[:LONGEST_TEXT]}
    said["step"] = seen.step_number
    if seen.author:
        said["from"] = seen.author
    if seen.operation_id:
        said |= {"operation": seen.operation_id, "status": str(seen.status)}
    if seen.timed_out:
        said["timed_out"] = True
    if seen.error:
        said["error"] = hide_in_text(seen.error, seen, names)
    if seen.committed:
        said["data"] = show_result(seen, names, most_bytes=most_bytes)
    return said


def show_result(seen: Observed, names: Collection[str], *, most_bytes: int) -> Any:
    reference = seen.operation_id or f"step {seen.step_number}"
    return cut(hide(seen.result, names), most_bytes=most_bytes, reference=reference)


def show_arguments(
    arguments: Mapping[str, Any], names: Collection[str], *, most_bytes: int
) -> dict[str, Any]:
    """Arguments as an object; too large ones are named by their beginning."""
    text = to_json(hide(dict(arguments), names))
    kept = take(text, most_bytes=most_bytes)
    if len(kept) < len(text):
        return {"cut": kept, "missing_characters": len(text) - len(kept)}
    return cast("dict[str, Any]", json.loads(text))

"""How rows look to an llm: JSON text of bounded size, without what is secret.

Guarantees: whatever a tool, a provider or a person wrote stands inside a JSON string, so it ends
where the runtime says; a value that was cut says how much is missing and how it is read.

Does not count tokens exactly: no tokenizer of any provider is asked.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from runs.agents import READ_RESULT, get_agent
from runs.context import Context, Observed
from runs.errors import UnknownAgent
from runs.hiding import Hider
from tools.errors import UnknownTool
from tools.redaction import scrub
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


def cut(value: Any, *, most_bytes: int, reference: str, hider: Hider) -> Any:
    """The value, or what fits of its JSON text and how the rest is read.

    `value` is as `read_result` reads it, so that an offset means the same there; `hider` then
    hides what it repeats of the secrets of others.
    """
    text = to_json(value)
    kept = take(text, most_bytes=most_bytes)
    if len(kept) == len(text):
        return hider.scrub(value)
    missing = len(text) - len(kept)
    return {
        "cut": hider.scrub(kept),
        "missing_characters": missing,
        "read_on": {"tool": "read_result", "reference": reference, "offset": len(kept)},
    }


def take(text: str, *, most_bytes: int) -> str:
    """The beginning of a text, in whole characters."""
    return text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")


def make_hider(context: Context) -> Hider:
    """Hides what is sensitive anywhere in a context: declared today, or when it was recorded."""
    names = _declared_by(context.agent)
    values = [context.input]
    for seen in context.observations:
        names |= seen.sensitive
        names |= _declared_by(seen.tool) if seen.kind == "child" else _declared([seen.tool])
        if not is_part(seen):
            values += [seen.arguments, seen.result]
    return Hider(names, values)


def hide_alone(value: Any, names: Collection[str], *beside: Any) -> Any:
    """A value without what it, or what is stored `beside` it, shows as secret: whoever reads it
    alone hides the same."""
    return Hider(names, [value, *beside]).hide(value)


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


def show_call(seen: Observed, hider: Hider, *, most_bytes: int) -> dict[str, Any]:
    """What came of a call, for the result that answers it."""
    said: dict[str, Any] = {"operation": seen.operation_id, "status": str(seen.status)}
    if seen.never_sent:
        said["never_sent"] = seen.never_sent
    if seen.error:
        said["error"] = show_error(seen, hider, most_bytes=most_bytes)
    if seen.external_ref:
        said["external_ref"] = seen.external_ref
    if seen.repeats:
        said["answered_from"] = seen.repeats
    if seen.committed:
        said["result"] = show_result(seen, hider, most_bytes=most_bytes)
    return said


def show_told(seen: Observed, hider: Hider, *, most_bytes: int) -> dict[str, Any]:
    """A signal, an answer or another run's result, as data."""
    said: dict[str, Any] = {"kind": seen.kind, "name": hider.scrub(seen.tool)[:LONGEST_TEXT]}
    said["step"] = seen.step_number
    if seen.author:
        said["from"] = seen.author
    if seen.operation_id:
        said |= {"operation": seen.operation_id, "status": str(seen.status)}
    if seen.timed_out:
        said["timed_out"] = True
    if seen.error:
        said["error"] = show_error(seen, hider, most_bytes=most_bytes)
    if seen.committed:
        said["data"] = show_result(seen, hider, most_bytes=most_bytes)
    return said


def show_error(seen: Observed, hider: Hider, *, most_bytes: int = LONGEST_TEXT) -> str:
    plain: str = hider.scrub(scrub(seen.error, seen.arguments, hider.names))
    kept = take(plain, most_bytes=min(most_bytes, LONGEST_TEXT))
    return plain if len(kept) == len(plain) else f"{kept}…"


def show_result(seen: Observed, hider: Hider, *, most_bytes: int) -> Any:
    if is_part(seen) and isinstance(seen.result, Mapping):
        return _show_part(seen.result, hider, most_bytes=most_bytes)
    reference = seen.operation_id or f"step {seen.step_number}"
    value = hide_alone(seen.result, hider.names, seen.arguments)
    return cut(value, most_bytes=most_bytes, reference=reference, hider=hider)


def show_arguments(seen: Observed, hider: Hider, *, most_bytes: int) -> dict[str, Any]:
    """Arguments as an object; too large ones are named by their beginning."""
    # The runtime's own tool has no secrets, and names that may be another tool's.
    hidden = seen.arguments if is_part(seen) else hider.hide(dict(seen.arguments))
    text = to_json(hidden)
    kept = take(text, most_bytes=most_bytes)
    if len(kept) < len(text):
        return {"cut": kept, "missing_characters": len(text) - len(kept)}
    return cast("dict[str, Any]", json.loads(text))


def is_part(seen: Observed) -> bool:
    """Whether it read a part of a value, with `read_result`: that was hidden before it was cut."""
    return seen.kind == "call" and seen.tool == READ_RESULT


def _show_part(part: Mapping[str, Any], hider: Hider, *, most_bytes: int) -> dict[str, Any]:
    """What was hidden and cut already: a shorter part, where it does not fit, and no part of it."""
    kept = take(part["text"], most_bytes=most_bytes)
    shown: dict[str, Any] = hider.scrub_own(dict(part) | {"text": kept})
    if len(kept) < len(part["text"]):
        shown["next_offset"] = part["offset"] + len(kept)
    return shown

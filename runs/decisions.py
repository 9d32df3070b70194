"""What a decider may answer, and how an answer is stored.

Guarantees: a decision is a value; `encode` and `decode` are inverse, and a body
that `decode` does not know is refused by name, never guessed at.

Does not check that a tool exists or that arguments fit: that is done when the
decision is recorded, and a call that does not fit becomes an observation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pydantic_core import to_jsonable_python

from runs.errors import UndecodableDecision

SCHEMA_VERSION = 1
LONGEST_RATIONALE = 4_000


@dataclass(frozen=True, init=False)
class ToolCall:
    """One call that a decision asks for: a tool's name and its raw arguments."""

    tool: str
    arguments: Mapping[str, Any]

    def __init__(self, tool: str, /, **arguments: Any) -> None:
        object.__setattr__(self, "tool", tool)
        object.__setattr__(self, "arguments", MappingProxyType(dict(arguments)))


@dataclass(frozen=True, init=False)
class CallTools:
    """Perform these calls, in this order.

    `rationale` is why, in the decider's own words: approvers see it apart from the action.
    `confidence`, from 0 to 1, is how sure the decider is: policies may look at it.
    """

    calls: tuple[ToolCall, ...]
    rationale: str = ""
    confidence: float | None = None

    def __init__(
        self, *calls: ToolCall, rationale: str = "", confidence: float | None = None
    ) -> None:
        if confidence is not None and not 0 <= confidence <= 1:
            raise ValueError(f"confidence is from 0 to 1, not {confidence!r}")
        object.__setattr__(self, "calls", tuple(calls))
        object.__setattr__(self, "rationale", str(rationale)[:LONGEST_RATIONALE])
        object.__setattr__(self, "confidence", confidence)


@dataclass(frozen=True)
class Finish:
    """The run is complete. `result` is any JSON value."""

    result: Any = None


@dataclass(frozen=True)
class Fail:
    """The run cannot reach its goal."""

    reason: str = field(default="")


Decision = CallTools | Finish | Fail


def encode(decision: Decision) -> dict[str, Any]:
    """The stored form, JSON with a schema version; raises for what has no JSON form."""
    match decision:
        case CallTools(calls, rationale, confidence):
            plain = [{"tool": c.tool, "arguments": _plain(dict(c.arguments))} for c in calls]
            said: dict[str, Any] = {"rationale": rationale} if rationale else {}
            if confidence is not None:
                said["confidence"] = confidence
            return {"v": SCHEMA_VERSION, "kind": "call_tools", "calls": plain, **said}
        case Finish(result):
            return {"v": SCHEMA_VERSION, "kind": "finish", "result": _plain(result)}
        case Fail(reason):
            return {"v": SCHEMA_VERSION, "kind": "fail", "reason": reason}


def decode(body: Any, *, where: str) -> Decision:
    """The decision that `encode` stored; raises `UndecodableDecision` naming `where`."""
    match body:
        case {"v": 1, "kind": "call_tools", "calls": [*calls], **rest} if _is_said(rest):
            said: dict[str, Any] = {str(name): value for name, value in rest.items()}
            return CallTools(*(_decode_call(call, where=where) for call in calls), **said)
        case {"v": 1, "kind": "finish", "result": result, **rest} if not rest:
            return Finish(result)
        case {"v": 1, "kind": "fail", "reason": str(reason), **rest} if not rest:
            return Fail(reason)
        case {"v": version, "kind": kind}:
            raise UndecodableDecision(where=where, why=f"kind {kind!r} in version {version!r}")
    raise UndecodableDecision(where=where, why=f"not a decision: {str(body)[:200]}")


def _plain(value: Any) -> Any:
    """JSON values for what Python code decides with: decimals and dates become text."""
    return to_jsonable_python(value, inf_nan_mode="constants")


def _is_said(rest: Mapping[Any, Any]) -> bool:
    """Whether these are what a decider may say beside its calls."""
    if not rest.keys() <= {"rationale", "confidence"}:
        return False
    confidence = rest.get("confidence")
    is_number = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    return isinstance(rest.get("rationale", ""), str) and (
        confidence is None or (is_number and 0 <= confidence <= 1)
    )


def _decode_call(call: Any, *, where: str) -> ToolCall:
    match call:
        case {"tool": str(tool), "arguments": dict(arguments), **rest} if not rest:
            return ToolCall(tool, **arguments)
    raise UndecodableDecision(where=where, why=f"not a tool call: {str(call)[:200]}")

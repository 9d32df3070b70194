"""What a decider may answer, and how an answer is stored.

Guarantees: a decision is a value; `encode` and `decode` are inverse, and a body
that `decode` does not know is refused by name, never guessed at.

Does not check that a tool exists or that arguments fit: that is done when the
decision is recorded, and a call that does not fit becomes an observation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, assert_never

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from runs.answers import find_schema_problem, keep_order
from runs.errors import UndecodableDecision

SCHEMA_VERSION = 1
LONGEST_RATIONALE = 4_000
LONGEST_QUESTION = 4_000
LONGEST_NAME = 100
# A date beyond this is a mistake, and beyond what some databases and clients can show.
LONGEST_WAIT: Final = timedelta(days=3_660)
MOST_CHILDREN_AT_ONCE: Final = 16
MOST_CALLS: Final = 32


@dataclass(frozen=True, init=False)
class ToolCall:
    """One call that a decision asks for: a tool's name and its raw arguments.

    `rationale` and `confidence` are what the decider says of this very call, as in `CallTools`.
    """

    tool: str
    arguments: Mapping[str, Any]
    rationale: str = ""
    confidence: float | None = None

    def __init__(self, tool: str, /, **arguments: Any) -> None:
        object.__setattr__(self, "tool", tool)
        object.__setattr__(self, "arguments", MappingProxyType(dict(arguments)))

    def because(self, rationale: str, *, confidence: float | None = None) -> "ToolCall":
        """The same call with a reason of its own. Every argument of a tool may have any name, so
        these are no arguments of the constructor."""
        call = ToolCall(self.tool, **self.arguments)
        object.__setattr__(call, "rationale", str(rationale)[:LONGEST_RATIONALE])
        object.__setattr__(call, "confidence", _checked_confidence(confidence))
        return call


@dataclass(frozen=True, init=False)
class CallTools:
    """Perform these calls, in this order.

    `rationale` is why, in the decider's own words: approvers see it apart from the action.
    `confidence`, from 0 to 1, is how sure the decider is: policies may look at it. What a call
    says of itself counts for that call instead.
    """

    calls: tuple[ToolCall, ...]
    rationale: str = ""
    confidence: float | None = None

    def __init__(
        self, *calls: ToolCall, rationale: str = "", confidence: float | None = None
    ) -> None:
        object.__setattr__(self, "calls", tuple(calls))
        object.__setattr__(self, "rationale", str(rationale)[:LONGEST_RATIONALE])
        object.__setattr__(self, "confidence", _checked_confidence(confidence))

    def confidence_in(self, ordinal: int) -> float | None:
        """How sure the decider is of the call at this place, counted from 0."""
        own = self.calls[ordinal].confidence if ordinal < len(self.calls) else None
        return self.confidence if own is None else own


@dataclass(frozen=True)
class Finish:
    """The run is complete. `result` is any JSON value."""

    result: Any = None


@dataclass(frozen=True)
class Fail:
    """The run cannot reach its goal."""

    reason: str = field(default="")


@dataclass(frozen=True, init=False)
class Sleep:
    """Go on after `for_`, counted from when this is recorded, or at `until`, a time with a zone."""

    for_: timedelta | None
    until: datetime | None

    def __init__(self, for_: timedelta | None = None, *, until: datetime | None = None) -> None:
        if (for_ is None) == (until is None):
            raise ValueError("Sleep takes one of for_ and until")
        if until is not None and until.tzinfo is None:
            raise ValueError("until needs a time zone, as in datetime(…, tzinfo=UTC)")
        object.__setattr__(self, "for_", _checked_wait(for_, "for_"))
        object.__setattr__(self, "until", until)


@dataclass(frozen=True, init=False)
class WaitFor:
    """Go on when the signal comes, or after `timeout` without it. None waits for ever."""

    signal: str
    timeout: timedelta | None

    def __init__(self, signal: str, timeout: timedelta | None = None) -> None:
        if not isinstance(signal, str) or not 0 < len(signal) <= LONGEST_NAME:
            raise ValueError(f"signal is a name of 1 to {LONGEST_NAME} characters, not {signal!r}")
        object.__setattr__(self, "signal", signal)
        object.__setattr__(self, "timeout", _checked_wait(timeout, "timeout"))


@dataclass(frozen=True, init=False)
class Ask:
    """Put a typed question to people and go on with the answer, or after `timeout` without one.

    `schema` is a Pydantic model or a JSON schema of the answer. Members of `groups` may
    answer (anybody who may answer questions, where it is empty); after `escalate_after` those
    of `escalate_to` too; `remind_after` is when they hear of it again.
    """

    question: str
    schema: Mapping[str, Any]
    groups: tuple[str, ...]
    timeout: timedelta | None
    escalate_to: tuple[str, ...]
    escalate_after: timedelta | None
    remind_after: timedelta | None

    def __init__(
        self,
        question: str,
        schema: type[BaseModel] | Mapping[str, Any],
        *,
        groups: Sequence[str] = (),
        timeout: timedelta | None = None,
        escalate_to: Sequence[str] = (),
        escalate_after: timedelta | None = None,
        remind_after: timedelta | None = None,
    ) -> None:
        if not isinstance(question, str) or not 0 < len(question.strip()) <= LONGEST_QUESTION:
            raise ValueError(f"question is a text of 1 to {LONGEST_QUESTION} characters")
        plain = keep_order(schema.model_json_schema() if isinstance(schema, type) else dict(schema))
        if problem := find_schema_problem(plain):
            raise ValueError(f"schema: {problem}")
        object.__setattr__(self, "question", question)
        object.__setattr__(self, "schema", MappingProxyType(plain))
        for name, given in (("groups", groups), ("escalate_to", escalate_to)):
            # "finance" is one group, not seven letters.
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        object.__setattr__(self, "timeout", _checked_wait(timeout, "timeout"))
        object.__setattr__(self, "escalate_after", _checked_wait(escalate_after, "escalate_after"))
        object.__setattr__(self, "remind_after", _checked_wait(remind_after, "remind_after"))


@dataclass(frozen=True)
class Delegate:
    """Have another agent's run reach a goal, and go on with what it came to.

    With `hand_over` that run begins with a handoff: what this one has done and knows.
    """

    agent: str
    objective: str = ""
    input: Any = None
    hand_over: bool = False


@dataclass(frozen=True, init=False)
class DelegateAll:
    """Start several child runs at once, and go on when all of them have ended."""

    children: tuple[Delegate, ...]

    def __init__(self, *children: Delegate) -> None:
        if not 0 < len(children) <= MOST_CHILDREN_AT_ONCE:
            raise ValueError(f"DelegateAll starts 1 to {MOST_CHILDREN_AT_ONCE} runs")
        object.__setattr__(self, "children", tuple(children))


@dataclass(frozen=True)
class Compensate:
    """Correct what the run did, newest first, and end it as failed."""

    reason: str = ""


Decision = CallTools | Finish | Fail | Sleep | WaitFor | Ask | Delegate | DelegateAll | Compensate


def encode(decision: Decision) -> dict[str, Any]:
    """The stored form, JSON with a schema version; raises for what has no JSON form."""
    kind, said = _encode(decision)
    return {"v": SCHEMA_VERSION, "kind": kind, **said}


def _encode(decision: Decision) -> tuple[str, dict[str, Any]]:
    match decision:
        case CallTools(calls, rationale, confidence):
            plain = [_encode_call(call) for call in calls]
            return "call_tools", {"calls": plain, **_encode_said(rationale, confidence)}
        case Finish(result):
            return "finish", {"result": _plain(result)}
        case Fail(reason):
            return "fail", {"reason": reason}
        case Sleep(for_, until):
            if for_ is not None:
                return "sleep", {"for": for_.total_seconds()}
            return "sleep", {"until": until and until.astimezone(UTC).isoformat()}
        case WaitFor(signal, timeout):
            return "wait_for", {"signal": signal, "timeout": _seconds(timeout)}
        case Ask():
            return "ask", {
                "question": decision.question,
                "schema": _plain(dict(decision.schema)),
                "groups": list(decision.groups),
                "timeout": _seconds(decision.timeout),
                "escalate_to": list(decision.escalate_to),
                "escalate_after": _seconds(decision.escalate_after),
                "remind_after": _seconds(decision.remind_after),
            }
        case Delegate():
            return "delegate", {"children": [_encode_child(decision)]}
        case DelegateAll(children):
            return "delegate_all", {"children": [_encode_child(child) for child in children]}
        case Compensate(reason):
            return "compensate", {"reason": reason}
        case _ as never:
            assert_never(never)


def decode(body: Any, *, where: str) -> Decision:
    """The decision that `encode` stored; raises `UndecodableDecision` naming `where`."""
    try:
        found = _decode(body, where=where)
    except (TypeError, ValueError) as error:
        raise UndecodableDecision(where=where, why=str(error)[:200]) from error
    if found is not None:
        return found
    match body:
        case {"v": version, "kind": kind}:
            raise UndecodableDecision(where=where, why=f"kind {kind!r} in version {version!r}")
    raise UndecodableDecision(where=where, why=f"not a decision: {str(body)[:200]}")


def _decode(body: Any, *, where: str) -> Decision | None:
    match body:
        case {"v": 1, "kind": "call_tools", "calls": [*calls], **rest} if _is_said(rest):
            said: dict[str, Any] = {str(name): value for name, value in rest.items()}
            return CallTools(*(_decode_call(call, where=where) for call in calls), **said)
        case {"v": 1, "kind": "finish", "result": result, **rest} if not rest:
            return Finish(result)
        case {"v": 1, "kind": "fail", "reason": str(reason), **rest} if not rest:
            return Fail(reason)
        case {"v": 1, "kind": "sleep", "for": int() | float() as seconds, **rest} if not rest:
            return Sleep(timedelta(seconds=seconds))
        case {"v": 1, "kind": "sleep", "until": str(until), **rest} if not rest:
            return Sleep(until=datetime.fromisoformat(until))
        case {"v": 1, "kind": "wait_for", "signal": str(signal), "timeout": timeout, **rest}:
            return None if rest else WaitFor(signal, _duration(timeout))
        case {"v": 1, "kind": "ask", "question": str(), "schema": dict(), **rest}:
            return _decode_question(body) if rest.keys() == _ASK_REST else None
        case {"v": 1, "kind": "delegate", "children": [child], **rest} if not rest:
            return _decode_child(child)
        case {"v": 1, "kind": "delegate_all", "children": [*children], **rest} if not rest:
            return DelegateAll(*(_decode_child(child) for child in children))
        case {"v": 1, "kind": "compensate", "reason": str(reason), **rest} if not rest:
            return Compensate(reason)
    return None


_ASK_REST: Final = frozenset({"groups", "timeout", "escalate_to", "escalate_after", "remind_after"})


def _decode_question(body: Mapping[str, Any]) -> Ask:
    return Ask(
        body["question"],
        body["schema"],
        groups=body["groups"],
        timeout=_duration(body["timeout"]),
        escalate_to=body["escalate_to"],
        escalate_after=_duration(body["escalate_after"]),
        remind_after=_duration(body["remind_after"]),
    )


def _checked_wait(given: timedelta | None, name: str) -> timedelta | None:
    if given is None:
        return None
    if not isinstance(given, timedelta) or not timedelta(0) <= given <= LONGEST_WAIT:
        raise ValueError(f"{name} is a timedelta from 0 to {LONGEST_WAIT.days} days, not {given!r}")
    return given


def _checked_confidence(given: float | None) -> float | None:
    if given is not None and not 0 <= given <= 1:
        raise ValueError(f"confidence is from 0 to 1, not {given!r}")
    return given


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def _duration(seconds: Any) -> timedelta | None:
    """Raises TypeError for what is no number."""
    return None if seconds is None else timedelta(seconds=seconds)


def _encode_call(call: ToolCall) -> dict[str, Any]:
    said = _encode_said(call.rationale, call.confidence)
    return {"tool": call.tool, "arguments": _plain(dict(call.arguments)), **said}


def _encode_said(rationale: str, confidence: float | None) -> dict[str, Any]:
    said: dict[str, Any] = {"rationale": rationale} if rationale else {}
    if confidence is not None:
        said["confidence"] = confidence
    return said


def _encode_child(child: Delegate) -> dict[str, Any]:
    plain = {"agent": child.agent, "objective": child.objective, "input": _plain(child.input)}
    return plain | ({"hand_over": True} if child.hand_over else {})


def _decode_child(child: Any) -> Delegate:
    match child:
        case {"agent": str(agent), "objective": str(objective), "input": given, **rest}:
            hand_over = rest.pop("hand_over", False)
            if not rest and isinstance(hand_over, bool):
                return Delegate(agent, objective, given, hand_over=hand_over)
    raise ValueError(f"not a delegation: {str(child)[:200]}")


def _plain(value: Any) -> Any:
    """JSON values for what Python code decides with: decimals and dates become text."""
    return to_jsonable_python(value, inf_nan_mode="constants")


def _is_said(rest: Mapping[Any, Any]) -> bool:
    """Whether these are what a decider may say of its calls."""
    if not rest.keys() <= {"rationale", "confidence"}:
        return False
    confidence = rest.get("confidence")
    is_number = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    return isinstance(rest.get("rationale", ""), str) and (
        confidence is None or (is_number and 0 <= confidence <= 1)
    )


def _decode_call(call: Any, *, where: str) -> ToolCall:
    match call:
        case {"tool": str(tool), "arguments": dict(arguments), **rest} if _is_said(rest):
            said: dict[str, Any] = {"rationale": ""} | {
                str(name): one for name, one in rest.items()
            }
            return ToolCall(tool, **arguments).because(**said)
    raise UndecodableDecision(where=where, why=f"not a tool call: {str(call)[:200]}")

"""A replay as people read it.

Guarantees: every line is bounded and steers no terminal, whatever an llm or a tool wrote.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from runs.tables import printable

if TYPE_CHECKING:
    from runs.cases.replaying import Replay, Replayed

_WORDS: Final = {"same": "same", "different": "DIFFERENT", "open": "open"}
_INDENT: Final = " " * 6


def tell(replay: "Replay") -> str:
    """One line for each step, and below those that differ what was expected and decided."""
    return "\n".join(map(printable, _lines(replay)))


def say_count(replay: "Replay") -> str:
    """How it ended, in one sentence."""
    differing = [step.step for step in replay.steps if step.verdict == "different"]
    if not differing:
        compared = sum(step.verdict == "same" for step in replay.steps)
        if compared < len(replay.steps):
            return (
                f"{compared} of {len(replay.steps)} decisions were compared, and are as expected."
            )
        return f"All {compared} decisions are as expected."
    return f"{len(differing)} of {len(replay.steps)} decisions differ: at step {_list(differing)}."


def _lines(replay: "Replay") -> Iterator[str]:
    was = f", recorded as {replay.recorded_version}" if replay.recorded_version else ""
    yield f"Agent {replay.agent} in version {replay.agent_version}{was}"
    width = max((len(str(step.step)) for step in replay.steps), default=1)
    for step in replay.steps:
        decision = step.decided if step.decided is not None else step.expected
        said = _say(decision) if not step.problem else "no decision"
        yield f"  step {step.step:>{width}}  {_WORDS[step.verdict]:<9}  {said}"
        if step.verdict == "different":
            yield from _lines_of_difference(step)
    if replay.llm_requests:
        yield (
            f"Asked an llm {replay.llm_requests} times: {replay.tokens} tokens, "
            f"{replay.cost_usd.normalize():f} USD by known prices"
        )
    yield say_count(replay)


def _lines_of_difference(step: "Replayed") -> Iterator[str]:
    yield f"{_INDENT}- {_say(step.expected)}"
    yield f"{_INDENT}+ {step.problem or _say(step.decided)}"
    for one in step.differences:
        yield f"{_INDENT}  {one.path}: {_json(one.expected)} → {_json(one.decided)}"


def _say(body: Mapping[str, Any] | None) -> str:
    match body:
        case None:
            return "anything"
        case {"kind": "call_tools", "calls": [*calls]}:
            return ", ".join(map(_say_call, calls))
        case {"kind": kind}:
            rest = ((key, value) for key, value in body.items() if key not in ("v", "kind"))
            return f"{kind}({', '.join(f'{key}={_json(value)}' for key, value in rest)})"
    return _json(body)


def _say_call(call: Any) -> str:
    match call:
        case {"tool": tool, "arguments": dict(arguments)}:
            said = (f"{name}={_json(value)}" for name, value in arguments.items())
            return f"{tool}({', '.join(said)})"
    return _json(call)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _list(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:10])
    return f"{shown}, …" if len(numbers) > 10 else shown

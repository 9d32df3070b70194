"""What is different between the decision that is expected and the one that was made.

Guarantees: two decisions are equal where the kernel would do the same with both: equal tools with
arguments that the tool itself reads as equal; what a decider says about its reasons does not
count. Where `[any]` or `[redacted]` is expected, anything is equal.

Does not compare the words of an llm: how it phrases a reason, a question or a final text changes
from one time to the next. Nor a time to sleep until, which code counts from now.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runs.cases.shapes import WILDCARDS
from tools.errors import InvalidArguments, InvalidPayload, UnknownTool
from tools.registry import get_tool

_REASONS: Final = frozenset({"v", "rationale", "confidence", "until"})
_WORDS: Final = frozenset({"reason", "question"})
MISSING: Final = "(nothing)"


@dataclass(frozen=True)
class Difference:
    """`path` is the place within the decision."""

    path: str
    expected: Any
    decided: Any


def find_differences(
    expected: Mapping[str, Any], decided: Mapping[str, Any], *, is_llm: bool
) -> list[Difference]:
    """Where two encoded decisions differ; empty where they are equal."""
    wanted = _fill(_strip(expected, is_llm=is_llm), _strip(decided, is_llm=is_llm))
    made = _strip(decided, is_llm=is_llm)
    if wanted.get("kind") != made.get("kind"):
        return [Difference("kind", wanted.get("kind"), made.get("kind"))]
    if wanted.get("kind") == "call_tools":
        wanted["calls"] = _read_alike(wanted.get("calls"), made.get("calls"))
    return list(_compare(wanted, made, path=""))


def _strip(body: Mapping[str, Any], *, is_llm: bool) -> dict[str, Any]:
    """The decision without what does not count."""
    left_out = _REASONS | _WORDS if is_llm else _REASONS
    plain = {key: value for key, value in body.items() if key not in left_out}
    if "calls" in plain:
        plain["calls"] = [
            {key: value for key, value in call.items() if key not in _REASONS}
            if isinstance(call, Mapping)
            else call
            for call in plain["calls"]
        ]
    if is_llm and isinstance(plain.get("result"), str):
        plain["result"] = "(text)"
    return plain


def _fill(expected: Any, decided: Any) -> Any:
    """What is expected, with what was decided in the places where anything is equal."""
    if isinstance(expected, str) and expected in WILDCARDS:
        return decided
    if isinstance(expected, Mapping):
        there = decided if isinstance(decided, Mapping) else {}
        return {
            key: _fill(value, there[key]) if key in there else value
            for key, value in expected.items()
        }
    if isinstance(expected, list) and isinstance(decided, list):
        pairs = zip(expected, decided, strict=False)
        return [_fill(*pair) for pair in pairs] + expected[len(decided) :]
    return expected


def _read_alike(expected: Any, decided: Any) -> Any:
    """The expected calls; those that their tool reads as the decided ones are these."""
    if not isinstance(expected, list) or not isinstance(decided, list):
        return expected
    pairs = zip(expected, decided, strict=False)
    read = [made if _means_the_same(wanted, made) else wanted for wanted, made in pairs]
    return read + expected[len(decided) :]


def _means_the_same(one: Any, other: Any) -> bool:
    match one, other:
        case (
            {"tool": str(tool), "arguments": dict(wanted)},
            {"tool": str(same), "arguments": dict(made)},
        ) if tool == same:
            try:
                spec = get_tool(tool)
                return spec.means_the_same(spec.validate(wanted), spec.validate(made))
            except (UnknownTool, InvalidArguments, InvalidPayload):
                return False
    return False


def _compare(expected: Any, decided: Any, *, path: str) -> Iterator[Difference]:
    if isinstance(expected, Mapping) and isinstance(decided, Mapping):
        for key in [*expected, *(key for key in decided if key not in expected)]:
            there = expected.get(key, MISSING), decided.get(key, MISSING)
            yield from _compare(*there, path=f"{path}.{key}" if path else str(key))
    elif isinstance(expected, list) and isinstance(decided, list):
        for place in range(max(len(expected), len(decided))):
            one = expected[place] if place < len(expected) else MISSING
            other = decided[place] if place < len(decided) else MISSING
            yield from _compare(one, other, path=f"{path}[{place}]")
    # 1 and True are equal in Python, and not in JSON.
    elif expected != decided or isinstance(expected, bool) is not isinstance(decided, bool):
        yield Difference(path, expected, decided)

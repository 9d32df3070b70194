"""One sentence that says what a call would do, in the words of its tool.

Guarantees: never raises and never runs text as code: a template knows its arguments' names
and nothing behind them; secrets are hidden; what cannot be described gives an empty text.

Does not replace the arguments, which an approver is always shown in full: the sentence is
no part of what is signed.
"""

import inspect
from collections.abc import Mapping
from string import Formatter
from typing import Any, Final

from tools.redaction import bound_text, redact
from tools.spec import ToolSpec

LONGEST_DESCRIPTION: Final = 300


def describe_call(spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
    """The sentence of `describe` for these normalised arguments; empty where there is none."""
    if spec.describe is None:
        return ""
    hidden: dict[str, Any] = redact(dict(arguments), spec.sensitive)
    try:
        if isinstance(spec.describe, str):
            said = _fill(spec.describe, hidden)
        else:
            said = str(spec.describe(**{**spec.bind(arguments), **_of(hidden, spec.sensitive)}))
    except Exception:  # noqa: BLE001 (a tool's own function; nobody should wait for its repair)
        return ""
    return bound_text(" ".join(said.split()), LONGEST_DESCRIPTION)


def check_description(spec: ToolSpec) -> str | None:
    """What is wrong with `describe`, or None."""
    given = spec.describe
    if given is None:
        return None
    if not isinstance(given, str):
        return None if _takes(given, spec.argument_names) else "it does not take the arguments"
    try:
        fields = [field for _, field, _, _ in Formatter().parse(given) if field is not None]
        pieces = list(Formatter().parse(given))
    except ValueError as error:
        return str(error)
    if any(field is not None and (form or convert) for _, field, form, convert in pieces):
        return "it uses a format or a conversion; write {name} alone"
    if unknown := [name for name in fields if name not in spec.argument_names]:
        return f"it names no argument: {', '.join(unknown)}"
    return None


def _fill(template: str, arguments: Mapping[str, Any]) -> str:
    said = []
    for text, field, _, _ in Formatter().parse(template):
        said.append(text)
        if field is not None:
            # Looked up whole, so "{order.__class__}" is the name of nothing.
            said.append(str(arguments[field]))
    return "".join(said)


def _of(arguments: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: arguments[name] for name in names if name in arguments}


def _takes(function: Any, names: tuple[str, ...]) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(**dict.fromkeys(names))
    except (TypeError, ValueError):
        return False
    return True

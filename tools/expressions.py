"""The CEL expressions of policies: over what they speak, what is wrong with one, what it yields.

Guarantees: an expression yields true or false, or `RuleFailed` says why it yields neither;
an amount that a double cannot hold exactly is such a reason, because a rounded one could fall
on the wrong side of a limit; an expression is compiled once per process.

Does not bound how long one computes over large arguments.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

from tools.errors import RuleFailed
from tools.redaction import bound_text

LONGEST_EXPRESSION: Final = 2_000
# What every expression may name besides the arguments. An argument of the same name is
# reached as `arguments.x`.
CIRCUMSTANCES: Final = (
    "tool",
    "effect_type",
    "provider",
    "account",
    "agent",
    "requester",
    "confidence",
)
ARGUMENTS: Final = "arguments"
WINDOW: Final = "window"
RESERVED: Final = frozenset((*CIRCUMSTANCES, ARGUMENTS, WINDOW))


def execute(text: str, value_of: Callable[[str], Any]) -> bool:
    """Evaluate `text`. Raises RuleFailed where it yields neither true nor false.

    `value_of` gives a variable's Python value, or raises LookupError where there is none.
    """
    try:
        program, variables = _compile(text)
        answer = program.execute(_values(variables, value_of))
    except Exception as error:
        # The library raises several built-in classes; whichever it is, the rule said nothing.
        raise RuleFailed(text, problem=_sentence(error)) from error
    if not isinstance(answer, bool):
        problem = f"it yields {type(answer).__name__}, not true or false"
        raise RuleFailed(text, problem=problem)
    return answer


def variables_of(text: str) -> frozenset[str]:
    """The variables that an expression names, those that its macros bind left out."""
    return _compile(text)[1] - _bound_by_macros(text) - _TYPE_NAMES


def value_of_constant(text: str) -> Any:
    """What an expression that names no variable yields. Raises RuleFailed for any other."""
    try:
        program, variables = _compile(text)
        value = program.execute({})
    except Exception as error:
        raise RuleFailed(text, problem=_sentence(error)) from error
    if variables:
        # The library knows `type` and `int` too, which an argument may be called.
        raise RuleFailed(text, problem=f"it names {', '.join(sorted(variables))}")
    return value


def fields_of(text: str, variable: str) -> frozenset[str]:
    """The `x` of every `variable.x` and `variable["x"]` in an expression."""
    dot, index = r"\.\s*([A-Za-z_]\w*+)(?!\s*\()", r"""\[\s*['"]([^'"]*)['"]\s*\]"""
    found = re.findall(rf"(?<![\w.]){variable}\s*(?:{dot}|{index})", text)
    return frozenset(dotted or indexed for dotted, indexed in found)


def check_expression(
    text: str, names: Collection[str], *, window: Collection[str] = ()
) -> str | None:
    """What is wrong with an expression over the arguments `names`, or None.

    `window` are the fields of `window` that it may use.
    """
    if len(text) > LONGEST_EXPRESSION:
        return f"it has {len(text)} characters; use at most {LONGEST_EXPRESSION}"
    try:
        program, _ = _compile(text)
    except Exception as error:  # noqa: BLE001 (as above)
        return bound_text(str(error), 500)
    variables = variables_of(text)
    circumstances = {*CIRCUMSTANCES, ARGUMENTS, *((WINDOW,) if window else ())}
    if WINDOW in variables and not window:
        return "it looks at a window, and none is declared for it"
    if unknown := sorted(variables - {*names, *circumstances}):
        there_are = ", ".join(names) or "none"
        besides = ", ".join((*CIRCUMSTANCES, ARGUMENTS))
        return f"unknown argument {', '.join(unknown)}; there are: {there_are}; besides: {besides}"
    if unknown := sorted(fields_of(text, WINDOW) - set(window)):
        return f"unknown window.{unknown[0]}; there are: {', '.join(window) or 'none'}"
    functions = {name for name in program.functions() if name.isidentifier()}
    if unknown := sorted(functions - _FUNCTIONS):
        return f"unknown function {', '.join(unknown)}"
    if not program.variables():
        return _problem_of_constant(text)
    return None


def as_cel(value: Any) -> Any:
    """A Python value as the library takes it. Raises ValueError where none is the same."""
    match value:
        case Enum():
            return as_cel(value.value)
        case None | bool() | int() | str() | timedelta():
            return value
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{value} can be compared with nothing")
            return value
        case Decimal():
            return _exact_double(value)
        case datetime():
            if value.tzinfo is None:
                raise ValueError(f"{value.isoformat()} has no time zone")
            return value
        case date():
            return value.isoformat()
        case BaseModel():
            return as_cel(value.model_dump())
        case Mapping():
            return {str(key): as_cel(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [as_cel(item) for item in value]
        case SecretStr() | SecretBytes():
            raise ValueError("a secret can be compared with nothing")
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {one.name: as_cel(getattr(value, one.name)) for one in fields(value)}
        case _:
            # A text by its stored form (an address, an id); anything else could hide amounts.
            plain = to_jsonable_python(value)
            if not isinstance(plain, str):
                raise ValueError(f"a {type(value).__name__} can be compared with nothing")
            return plain


def _exact_double(value: Decimal) -> float:
    """Comparing a rounded amount with a limit could fall on the wrong side of it."""
    double = float(value)
    if Decimal(repr(double)) != value:
        raise ValueError(f"{bound_text(str(value), 50)} has more digits than a rule can compare")
    return double


def _values(variables: Collection[str], value_of: Callable[[str], Any]) -> dict[str, Any]:
    values = {}
    for name in variables:
        try:
            value = value_of(name)
        except LookupError:
            # Bound by a macro, or cut off by && or ||; else the library tells that it is missing.
            continue
        values[name] = as_cel(value)
    return values


@lru_cache(maxsize=1024)
def _compile(text: str) -> tuple[Any, frozenset[str]]:
    # Imported on first use: the package loads a whole command line with it (0.25 s).
    import cel

    program = cel.compile(text)
    return program, frozenset(program.variables())


def _sentence(error: Exception) -> str:
    # A KeyError's text is the key alone, in quotation marks.
    if isinstance(error, KeyError):
        return f"there is no {error}"
    return bound_text(str(error) or type(error).__name__, 500)


_MACRO = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_]\w*)\s*,")
_TYPE_NAMES = frozenset(
    ("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint")
)
_FUNCTIONS = frozenset(
    (
        *("size", "contains", "startsWith", "endsWith", "matches"),
        *("int", "uint", "double", "string", "bytes", "timestamp", "duration", "type", "dyn"),
        *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek"),
        *("getDayOfYear", "getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    )
)


def _bound_by_macros(text: str) -> frozenset[str]:
    return frozenset(match.group(1) for match in _MACRO.finditer(text))


def _problem_of_constant(text: str) -> str | None:
    def nothing(name: str) -> Any:
        raise LookupError(name)

    try:
        execute(text, nothing)
    except RuleFailed as failed:
        return f"it must yield true or false: {failed.problem}"
    return None

"""Whether a call needs a signature, by the rule that its tool declares.

Guarantees: a rule that cannot be evaluated asks for a signature and never allows; no rule
on an irreversible tool asks as well; a rule is compiled once per process.
Does not know who may sign, nor whether somebody did: `approvals` does.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel

from tools.canonical import digest
from tools.declarations import Approve, EffectType
from tools.errors import RuleFailed
from tools.redaction import bound_text
from tools.spec import ToolSpec

PolicyOutcome = Literal["allow", "require_approval", "refuse"]

ALLOWED_WITHOUT_RULE = "no approval_policy"
IRREVERSIBLE_WITHOUT_RULE = "irreversible, and no approval_policy says otherwise"
# Changes when the meaning of the two rules above does.
DEFAULT_VERSION = "default-1"


@dataclass(frozen=True)
class PolicyDecision:
    """What the policy said of one call, and by which version of which rule."""

    outcome: PolicyOutcome
    rule: str
    version: str
    approve: Approve | None


def evaluate(spec: ToolSpec, arguments: Mapping[str, Any]) -> PolicyDecision:
    """Decide over normalised arguments. The rule sees them by name; decimals are doubles."""
    approve = spec.approval_policy
    if approve is None:
        if spec.effect_type is EffectType.IRREVERSIBLE:
            return PolicyDecision(
                "require_approval", IRREVERSIBLE_WITHOUT_RULE, DEFAULT_VERSION, Approve()
            )
        return PolicyDecision("allow", ALLOWED_WITHOUT_RULE, DEFAULT_VERSION, None)
    version = _version(approve)
    try:
        needed = _signature_needed(spec, approve, arguments)
    except RuleFailed as error:
        return PolicyDecision("require_approval", str(error), version, approve)
    if needed:
        return PolicyDecision("require_approval", approve.when, version, approve)
    return PolicyDecision("allow", approve.when, version, None)


def check_expression(text: str, names: Collection[str]) -> str | None:
    """What is wrong with a rule over the arguments `names`, or None."""
    try:
        program = _compile(text)
    except Exception as error:  # noqa: BLE001 (the library documents no base class)
        return bound_text(str(error))
    bound_by_macro = {match.group(1) for match in _MACRO.finditer(text)}
    known = {*names, *bound_by_macro, *_TYPE_NAMES}
    if unknown := sorted(set(program.variables()) - known):
        return f"unknown argument {', '.join(unknown)}; there are: {', '.join(names) or 'none'}"
    functions = {name for name in program.functions() if name.isidentifier()}
    if unknown := sorted(functions - _FUNCTIONS):
        return f"unknown function {', '.join(unknown)}"
    if not program.variables():
        return _problem_of_constant(program)
    return None


# -- Evaluation ----------------------------------------------------------------


def _signature_needed(spec: ToolSpec, approve: Approve, arguments: Mapping[str, Any]) -> bool:
    try:
        values = {name: _as_cel(value) for name, value in spec.bind(arguments).items()}
        answer = _compile(approve.when).execute(values)
    except Exception as error:
        # The library raises several built-in classes; whichever it is, the rule said nothing.
        problem = str(error) or type(error).__name__
        raise RuleFailed(approve.when, problem=problem) from error
    if not isinstance(answer, bool):
        problem = f"it yields {type(answer).__name__}, not true or false"
        raise RuleFailed(approve.when, problem=problem)
    return answer


def _as_cel(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | timedelta():
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
            return _as_cel(value.model_dump())
        case Mapping():
            return {str(key): _as_cel(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_as_cel(item) for item in value]
        case _:
            return str(value)


def _exact_double(value: Decimal) -> float:
    """Comparing a rounded amount with a limit could fall on the wrong side of it."""
    double = float(value)
    if Decimal(repr(double)) != value:
        raise ValueError(f"{bound_text(str(value), 50)} has more digits than a rule can compare")
    return double


@lru_cache(maxsize=1024)
def _compile(text: str) -> Any:
    # Imported on first use: the package loads a whole command line with it (0.25 s).
    import cel

    return cel.compile(text)


@lru_cache(maxsize=1024)
def _version(approve: Approve) -> str:
    declared = asdict(approve)
    for name in ("approve_by", "execute_by"):
        declared[name] = declared[name].total_seconds()
    declared["groups"] = list(declared["groups"])
    return digest(declared)[:12]


# -- Checking ------------------------------------------------------------------

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


def _problem_of_constant(program: Any) -> str | None:
    try:
        answer = program.execute({})
    except Exception as error:  # noqa: BLE001 (as above)
        return bound_text(str(error))
    return None if isinstance(answer, bool) else "it must yield true or false"

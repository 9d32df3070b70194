"""Comparisons in a policy that can never be true, because of what stands on their two sides.

CEL finds values of different types unequal without an error, so a policy that writes 17 for
the text '17', or the name of nothing, would be silently about nothing.

Guarantees: `==`, `!=` and `in` between a name and a constant are found wherever they stand, and
told where no value that the name can have equals the constant; none is told that could be true.
Does not look at what is computed (`size(order) == 'a'`) or lies deeper (`order.lines`), at
unions and types of other packages, nor at `<` and `>`, which fail over different types, so
that a signature is asked for.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from difflib import get_close_matches
from enum import Flag
from typing import Any, Final

from tools.declarations import EffectType
from tools.errors import RuleFailed
from tools.expressions import ARGUMENTS, WINDOW, as_cel, value_of_constant, variables_of
from tools.redaction import bound_text
from tools.registry import all_tools
from tools.schema_arguments import SchemaArguments
from tools.spec import ToolSpec


def find_never_equal(text: str, specs: Sequence[ToolSpec]) -> str | None:
    """What is wrong with the comparisons of an expression that compiles, or None.

    `specs` are the tools that its policy is about; an argument is judged by those that have it.
    """
    variables = variables_of(text)
    told: list[str] = []
    for name, constants in _comparisons(text):
        # One that a macro binds is no argument, whatever it is called.
        if name[0] not in variables:
            continue
        domains = _domains(name, specs)
        if not domains or None in domains:
            continue
        known = [domain for domain in domains if domain is not None]
        for constant in constants:
            if not any(domain.has(constant) for domain in known):
                told.append(_told(name, known, constant))
    return "; ".join(dict.fromkeys(told)) or None


# -- What a name can be ----------------------------------------------------------------

_TEXT: Final = "a text"
_NUMBER: Final = "a number"
_TRUTH: Final = "true or false"
_TIME: Final = "a point in time"
_DURATION: Final = "a duration"
_DATE: Final = "a date, which is a text here"
_OTHER: Final = "something else"


@dataclass(frozen=True)
class _Domain:
    """The values that a name can have: of one kind, and only `values` where they are known."""

    kind: str
    values: tuple[Any, ...] | None = None

    def has(self, constant: Any) -> bool:
        if constant is None:
            # To ask for null is never a slip, even where it cannot be.
            return True
        kind = _kind_of(constant)
        if self.values is not None:
            return any(_kind_of(one) == kind and one == constant for one in self.values)
        if self.kind == _DATE:
            return kind == _TEXT and _is_iso_date(constant)
        return self.kind == kind


def _domains(name: tuple[str, ...], specs: Sequence[ToolSpec]) -> list[_Domain | None]:
    """What the name can be in each of the tools; None for a type that is not looked into."""
    match name:
        case (word,) if word in _CIRCUMSTANCES:
            return [_CIRCUMSTANCES[word]]
        case ("effect_type",):
            return [_Domain(_TEXT, tuple(EffectType))]
        case ("tool",):
            names = {spec.name for spec in (*all_tools(), *specs)}
            return [_Domain(_TEXT, tuple(sorted(names)))]
        case ("provider",):
            providers = {spec.provider_name for spec in (*all_tools(), *specs)}
            # A tool without a provider has an empty one.
            return [_Domain(_TEXT, tuple(sorted(providers | {""})))]
        case ("arguments", "in"):
            keys = {argument for spec in specs for argument in spec.argument_names}
            return [_Domain(_TEXT, tuple(sorted(keys)))] if specs else []
        case ("window", field):
            return [_Domain(_NUMBER) if field in ("count", "total") else None]
        case (argument,) | ("arguments", argument):
            return [_domain_of(spec, argument) for spec in specs if argument in spec.argument_names]
        case _:
            return []


_CIRCUMSTANCES: Final[Mapping[str, _Domain]] = {
    # Accounts differ from one environment to the next, and agents are no business of tools.
    "account": _Domain(_TEXT),
    "agent": _Domain(_TEXT),
    "requester": _Domain(_TEXT),
    "confidence": _Domain(_NUMBER),
}
_KINDS: Final[Mapping[str, str]] = {
    "str": _TEXT,
    "uuid": _TEXT,
    "int": _NUMBER,
    "float": _NUMBER,
    "decimal": _NUMBER,
    "bool": _TRUTH,
    "date": _DATE,
    "datetime": _TIME,
    "timedelta": _DURATION,
}
_JSON_KINDS: Final[Mapping[str, str]] = {
    "string": _TEXT,
    "integer": _NUMBER,
    "number": _NUMBER,
    "boolean": _TRUTH,
}


def _domain_of(spec: ToolSpec, argument: str) -> _Domain | None:
    if isinstance(spec.argument_model, SchemaArguments):
        return _domain_of_schema(spec.arguments_schema()["properties"][argument])
    # Pydantic's own schema rather than the annotation: it tells of validators, which may yield
    # another type than the one that is written.
    schema: Any = spec.argument_model._model.__pydantic_core_schema__
    shared: dict[str, Any] = {}
    while schema["type"] != "model-fields":
        shared.update({one["ref"]: one for one in schema.get("definitions", ())})
        if "schema" not in schema:
            return None
        schema = schema["schema"]
    for field in schema["fields"].values():
        if field.get("validation_alias") == argument:
            return _domain_in(field["schema"], shared)
    return None


def _domain_of_schema(schema: Any) -> _Domain | None:
    """Of a JSON schema; the values of an `enum` need not be of one type."""
    match schema:
        case {"enum": [*members]} if len({type(member) for member in members}) == 1:
            return _one_of(members)
        case {"type": str(kind)} if "enum" not in schema:
            return _Domain(_JSON_KINDS[kind]) if kind in _JSON_KINDS else None
        case _:
            return None


def _domain_in(schema: Any, shared: Mapping[str, Any]) -> _Domain | None:
    match schema["type"]:
        case "default" | "nullable":
            return _domain_in(schema["schema"], shared)
        case "definition-ref":
            referred = shared.get(schema["schema_ref"])
            return _domain_in(referred, shared) if referred else None
        case "literal":
            return _one_of(schema["expected"])
        case "enum" if not issubclass(schema["cls"], Flag):
            return _one_of(schema["members"])
        case kind if kind in _KINDS:
            return _Domain(_KINDS[kind])
        case _:
            return None


def _one_of(members: Sequence[Any]) -> _Domain | None:
    try:
        values = tuple(as_cel(member) for member in members)
    except ValueError:
        return None
    given = [value for value in values if value is not None]
    return _Domain(_kind_of(given[0]), values) if given else None


def _kind_of(value: Any) -> str:
    match value:
        case bool():
            return _TRUTH
        case str():
            return _TEXT
        case int() | float():
            return _NUMBER
        case datetime():
            return _TIME
        case timedelta():
            return _DURATION
        case _:
            return _OTHER


def _is_iso_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


# -- What is said ----------------------------------------------------------------------


def _told(name: tuple[str, ...], domains: Sequence[_Domain], constant: Any) -> str:
    said = "the name of an argument" if name == ("arguments", "in") else ".".join(name)
    values = [value for domain in domains for value in domain.values or ()]
    if values:
        return f"{said} is never {_written(constant)}{_nearest(values, constant)}"
    kind = domains[0].kind
    return f"{said} is {kind}, never {_written(constant)}; {_fix(kind, constant)}"


def _nearest(values: Sequence[Any], constant: Any) -> str:
    texts = {str(value).casefold(): value for value in values}
    wanted = str(constant).casefold()
    near = get_close_matches(wanted[:100], list(texts), n=1)
    if near:
        return f" (did you mean {_written(texts[near[0]])}?)"
    there_are = ", ".join(dict.fromkeys(_written(value) for value in values))
    return f"; there are: {bound_text(there_are, 300)}"


def _fix(kind: str, constant: Any) -> str:
    is_text = isinstance(constant, str)
    if kind == _TEXT and _kind_of(constant) in (_NUMBER, _TRUTH):
        return f"write {_written(_written(constant))}"
    if kind == _NUMBER and is_text and re.fullmatch(r"-?\d{1,18}(\.\d+)?", constant):
        return f"write {constant}"
    if kind == _TIME and is_text and _is_iso_date(constant[:10]):
        moment = constant if "T" in constant else f"{constant[:10]}T00:00:00Z"
        return f"write timestamp({_written(moment)})"
    return _FIXES.get(kind, f"compare it with {kind}")


_FIXES: Final[Mapping[str, str]] = {
    _TRUTH: "write true or false",
    _TIME: "write it as timestamp('2027-01-31T00:00:00Z')",
    _DURATION: "write it as duration('90s')",
    _DATE: "write it as '2027-01-31'",
}


def _written(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return ascii(bound_text(str(value), 80))
        case datetime():
            return f"timestamp({value.isoformat()!r})"
        case timedelta():
            return f"duration('{value.total_seconds():g}s')"
        case _:
            return bound_text(str(value), 80)


# -- Finding the comparisons -----------------------------------------------------------

# The library shows no tree. What an operator compares reaches, at its own depth of brackets,
# as far as the next operator that binds as weakly; this is CEL's grammar from relations up.
_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s++|//[^\n]*+)
    | (?P<raw>[bB]?[rR](?:'{3}.*?'{3}|"{3}.*?"{3}|'[^']*'|"[^"]*"))
    | (?P<text>[bB]?(?:'{3}(?:\\.|[^\\])*?'{3}|"{3}(?:\\.|[^\\])*?"{3}
                      |'(?:\\.|[^\\'])*'|"(?:\\.|[^\\"])*"))
    | (?P<word>[A-Za-z_]\w*+)
    | (?P<sign>==|!=|<=|>=|&&|\|\||.)
    """,
    re.VERBOSE | re.DOTALL,
)
_EQUALITIES: Final = frozenset(("==", "!=", "in"))
_RELATIONS: Final = _EQUALITIES | {"<", "<=", ">", ">="}
_WEAKER: Final = frozenset(("&&", "||", "?", ":", ","))
_OPEN: Final = frozenset("([{")
_CLOSE: Final = frozenset(")]}")


def _comparisons(text: str) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Every name that is compared with a constant, and the values of that.

    A name is ("x",) or ("arguments", "x"); ("arguments", "in") where a key is looked for.
    """
    tokens = [one for one in _TOKEN.finditer(text) if one.lastgroup != "space"]
    for at, token in enumerate(tokens):
        operator = token.group()
        if operator not in _EQUALITIES:
            continue
        before, follows_relation = _operand(tokens[:at][::-1], opens=_CLOSE, closes=_OPEN)
        after, _ = _operand(tokens[at + 1 :], opens=_OPEN, closes=_CLOSE)
        if follows_relation:
            # `a == b == c` compares what `a == b` yields with c.
            continue
        left, right = before[::-1], after
        if operator == "in":
            if [one.group() for one in right] == [ARGUMENTS]:
                yield (ARGUMENTS, "in"), list(_constant(text, left))
            elif name := _name(left):
                within = next(_constant(text, right), None)
                yield name, list(within) if isinstance(within, list | dict) else []
        elif name := _name(left):
            yield name, list(_constant(text, right))
        elif name := _name(right):
            yield name, list(_constant(text, left))


def _operand(
    tokens: Sequence[re.Match[str]], *, opens: frozenset[str], closes: frozenset[str]
) -> tuple[list[re.Match[str]], bool]:
    """The tokens up to the end of an operand, and whether a relation ends it."""
    depth = 0
    for at, token in enumerate(tokens):
        sign = token.group()
        if depth == 0 and (sign in _WEAKER or sign in closes or sign in _RELATIONS):
            return list(tokens[:at]), sign in _RELATIONS
        depth += (sign in opens) - (sign in closes)
    return list(tokens), False


def _name(tokens: Sequence[re.Match[str]]) -> tuple[str, ...] | None:
    while len(tokens) > 2 and (tokens[0].group(), tokens[-1].group()) == ("(", ")"):
        tokens = tokens[1:-1]
    match [(token.lastgroup, token.group()) for token in tokens]:
        case [("word", name)]:
            return (name,)
        case [("word", word), (_, "."), ("word", name)] if word in (ARGUMENTS, WINDOW):
            return (word, name)
        case [("word", word), (_, "["), ("text" | "raw", key), (_, "]")] if word == ARGUMENTS:
            return (word, str(value_of_constant(key)))
        case _:
            return None


def _constant(text: str, tokens: Sequence[re.Match[str]]) -> Iterator[Any]:
    """The value of an operand that names no variable; nothing for any other."""
    if tokens:
        try:
            yield value_of_constant(text[tokens[0].start() : tokens[-1].end()])
        except RuleFailed:
            return

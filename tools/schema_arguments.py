"""The arguments of a tool that somebody else described: checked against their JSON schema.

Guarantees: as `ArgumentModel` does, `validate` returns storable JSON with a value for every
argument, and unknown names are refused even where the schema would take them, since what has no
name can be no part of an intent. An argument that may be left out and is stands as null, and
`given` leaves it out again; one with a default that fits stands as its default. No reference
leads out of the schema.
Does not check formats, and does not bound the time that a `pattern` takes: whoever pins a schema
has read it.
"""

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any, Final

import pydantic_core
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, SchemaRegistry

from tools.arguments import ArgumentModel
from tools.canonical import check_json
from tools.errors import InvalidArguments, InvalidPayload, InvalidTool, Problem
from tools.redaction import REDACTED, bound_text, redact

LARGEST_SCHEMA: Final = 64 * 1024
MOST_PROBLEMS: Final = 20
_SHOWN: Final = 80
_NO_STRANGERS: Final[SchemaRegistry] = Registry()
# Values, not schemas: what looks like a reference in them is none.
_VALUES: Final = frozenset({"const", "default", "enum", "examples"})
# The arguments have names of their own, so these two of an object's say nothing here.
_DROPPED: Final = frozenset({"$schema", "title"})


class SchemaArguments(ArgumentModel):
    """An `ArgumentModel` made from the JSON schema of an object. Raises InvalidTool."""

    def __init__(self, *, tool: str, schema: Mapping[str, Any]) -> None:
        if problem := find_schema_problem(schema):
            fix = "correct its input_schema, or leave the tool out"
            raise InvalidTool(tool, problem=problem, fix=fix)
        own = {name: deepcopy(part) for name, part in schema.items() if name not in _DROPPED}
        own |= {"type": "object", "additionalProperties": False}
        own["properties"] = {
            name: _spelled_out(one) for name, one in own.get("properties", {}).items()
        }
        self._tool = tool
        self._own = own
        self.names = tuple(own["properties"])
        dialect = validator_for(schema, default=Draft202012Validator)
        self._validator = dialect(own, registry=_NO_STRANGERS)
        self._defaults = self._read_defaults()

    def json_schema(self) -> dict[str, Any]:
        """The schema as it was given, closed against other names; the caller may change it."""
        return deepcopy(self._own)

    @property
    def empty_defaults(self) -> dict[str, Any]:
        """What each argument is worth that may be left out, where that is nothing."""
        return {name: value for name, value in deepcopy(self._defaults).items() if not value}

    def validate(self, raw: Mapping[str, Any], *, sensitive: Collection[str]) -> dict[str, Any]:
        """Normalised JSON of `raw`. Raises InvalidArguments; hides the values of `sensitive`."""
        try:
            plain = pydantic_core.to_jsonable_python(raw, inf_nan_mode="constants")
            check_json(plain, field="arguments")
            normal = {**deepcopy(self._defaults), **plain}
            check_json(normal, field="arguments")
        except InvalidPayload as error:
            field = error.field.removeprefix("arguments.")
            shown = REDACTED if sensitive else error.value
            raise InvalidArguments(self._tool, [Problem(field, shown, error.fix)]) from None
        except (pydantic_core.PydanticSerializationError, TypeError, ValueError) as error:
            fix = f"send a plain JSON object ({type(error).__name__})"
            raise InvalidArguments(self._tool, [Problem("arguments", "", fix)]) from None
        self._check(self.given(normal), sensitive)
        return {name: normal[name] for name in self.names}

    def bind(self, arguments: Mapping[str, Any], *, sensitive: Collection[str]) -> dict[str, Any]:
        """The same values: they are JSON for the function too. Raises InvalidArguments."""
        return self.validate(arguments, sensitive=sensitive)

    def given(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Normalised arguments without those that were left out."""
        left_out = {name for name, value in self._defaults.items() if value is None}
        return {
            name: value
            for name, value in arguments.items()
            if not (value is None and name in left_out)
        }

    def _read_defaults(self) -> dict[str, Any]:
        required = self._own.get("required", ())
        defaults: dict[str, Any] = {}
        for name, declared in self._own["properties"].items():
            if name in required:
                continue
            default = declared.get("default") if isinstance(declared, dict) else None
            fits = default is not None and not any(
                error.absolute_path and error.absolute_path[0] == name
                for error in self._validator.iter_errors({name: default})
            )
            defaults[name] = default if fits else None
        return defaults

    def _check(self, given: Mapping[str, Any], sensitive: Collection[str]) -> None:
        problems: list[Problem] = []
        try:
            for error in self._validator.iter_errors(given):
                problems += self._problems(error, sensitive)
                if len(problems) >= MOST_PROBLEMS:
                    break
        except Exception as error:  # noqa: BLE001  somebody else's pattern, or a schema in a circle
            fix = f"the tool's schema cannot be used on them ({type(error).__name__})"
            problems = [Problem("arguments", "", fix)]
        if problems:
            # The library's error would show the values that the problems hide.
            raise InvalidArguments(self._tool, problems[:MOST_PROBLEMS]) from None

    def _problems(self, error: ValidationError, sensitive: Collection[str]) -> list[Problem]:
        place = [str(part) for part in error.absolute_path]
        if error.validator == "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            fields = [".".join([*place, name]) for name in missing]
            return [Problem(bound_text(one, 200), "", "it is required") for one in fields]
        if error.validator == "additionalProperties" and not place:
            fix = f"remove it; the arguments are: {', '.join(self.names) or 'none'}"
            unknown = [name for name in error.instance if name not in self.names]
            return [Problem(bound_text(name, 200), "", fix) for name in unknown]
        hidden = {name.casefold() for name in sensitive}
        shown = bound_text(repr(redact(error.instance, sensitive)), _SHOWN)
        if any(part.casefold() in hidden for part in place):
            shown = REDACTED
        rule = bound_text(f"{error.validator}: {error.validator_value!r}", 200)
        field = bound_text(".".join(place) or "arguments", 200)
        return [Problem(field, shown, f"it has to fit {rule}")]


def _spelled_out(schema: Any) -> dict[str, Any]:
    """What true and false stand for, so that readers of an argument's schema find an object."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    own: dict[str, Any] = schema
    return own


def find_schema_problem(schema: Any) -> str:
    """Why no tool can take arguments of this schema, in one sentence; empty if one can."""
    try:
        check_json(schema, field="input_schema", limit_bytes=LARGEST_SCHEMA)
    except InvalidPayload as error:
        return str(error)
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return "its input_schema is not that of an object"
    dialect = validator_for(schema, default=Draft202012Validator)
    try:
        dialect.check_schema(schema)
    except SchemaError as error:
        where = ".".join(str(part) for part in error.absolute_path) or "input_schema"
        return f"its input_schema is no JSON schema, at {bound_text(where, 200)}"
    return _find_reference_problem(schema)


def _find_reference_problem(schema: dict[str, Any]) -> str:
    resolver = _NO_STRANGERS.resolver_with_root(DRAFT202012.create_resource(schema))
    for reference in _references(schema):
        shown = bound_text(reference, _SHOWN)
        if not reference.startswith("#"):
            return f"its input_schema refers to {shown}, which is elsewhere"
        try:
            resolver.lookup(reference)
        except Unresolvable:
            return f"its input_schema refers to {shown}, which is not in it"
    return ""


def _references(part: Any) -> list[str]:
    if isinstance(part, list):
        return [one for item in part for one in _references(item)]
    if not isinstance(part, dict):
        return []
    found = [part[word] for word in ("$ref", "$dynamicRef") if isinstance(part.get(word), str)]
    for name, item in part.items():
        if name not in _VALUES:
            found += _references(item)
    return found

"""The arguments of a tool: checked once against its annotations, kept as plain JSON.

Guarantees: what `validate` returns is storable JSON with every default filled in, and
`bind` gives the function exactly the values that this JSON stands for; text is not taken
for a number, nor a number for a truth value; unknown names are refused.
Does not make two spellings of one decimal equal ("1.50" and "1.5" stay as they were
written), because providers may care.
"""

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from decimal import Decimal
from functools import cached_property
from typing import Any

import pydantic
import pydantic_core
from pydantic import ConfigDict, Field

from tools.canonical import check_json
from tools.errors import InvalidArguments, InvalidPayload, InvalidTool, Problem, readable
from tools.redaction import REDACTED, bound_text, redact

# A decimal is stored digit by digit, and "1e999999" is short to write.
MOST_DIGITS = 100
# Fields get a prefix so that an argument may be called `json`, `copy` or `model_config`.
_PREFIX = "arg_"


class ArgumentModel:
    """A Pydantic model made from the parameters after `call`, built once per tool."""

    def __init__(self, *, tool: str, function: Callable[..., Any]) -> None:
        self._tool = tool
        parameters = _parameters(function)
        hints = _hints(function, [parameter.name for parameter in parameters])
        fields = {
            _PREFIX + parameter.name: _field(function, parameter, hints[parameter.name])
            for parameter in parameters
        }
        self.names = tuple(parameter.name for parameter in parameters)
        self._fields = {name: _PREFIX + name for name in self.names}
        try:
            self._model: type[pydantic.BaseModel] = pydantic.create_model(
                tool, __config__=_CONFIG, __module__=function.__module__, **fields
            )
        except (pydantic.PydanticUserError, pydantic_core.SchemaError) as error:
            fix = "annotate the arguments with types that Pydantic can validate"
            raise InvalidTool(_where(function), problem=str(error), fix=fix) from error
        self._decimals = any(_mentions_decimal(hint) for hint in hints.values())

    def json_schema(self) -> dict[str, Any]:
        """JSON schema of the arguments object, as an llm reads it; the caller may change it."""
        return deepcopy(self._schema)

    @cached_property
    def _schema(self) -> dict[str, Any]:
        # Kept: an llm is shown it in every request.
        schema = self._model.model_json_schema(by_alias=True)
        schema.pop("title", None)
        for declared in schema.get("properties", {}).values():
            declared.pop("title", None)
        return schema

    @cached_property
    def empty_defaults(self) -> dict[str, Any]:
        """The defaults that hold nothing (null, 0, false, an empty text or list), as JSON."""
        defaults = self._model.model_construct().model_dump(
            mode="json", by_alias=True, warnings=False
        )
        return {name: default for name, default in defaults.items() if not default}

    def validate(self, raw: Mapping[str, Any], *, sensitive: Collection[str]) -> dict[str, Any]:
        """Normalised JSON of `raw`. Raises InvalidArguments; hides the values of `sensitive`."""
        try:
            plain = pydantic_core.to_jsonable_python(raw, inf_nan_mode="constants")
            check_json(plain, field="arguments")
            parsed = self._parse(plain, sensitive=sensitive)
            normal: dict[str, Any] = parsed.model_dump(mode="json", by_alias=True)
            if self._decimals:
                self._spell_decimals(parsed, normal)
            # Defaults and the tool's own types may yield what the caller did not send.
            check_json(normal, field="arguments")
        except InvalidPayload as error:
            problem = _payload_problem(error, sensitive)
            raise InvalidArguments(self._tool, [problem]) from (None if sensitive else error)
        except InvalidArguments:
            raise
        except Exception as error:  # noqa: BLE001
            # Validators and serializers are the tool author's code: anything may come out.
            problem = Problem("arguments", "", f"send plain JSON: {_words(error, sensitive)}")
            raise InvalidArguments(self._tool, [problem]) from (None if sensitive else error)
        return normal

    def bind(self, arguments: Mapping[str, Any], *, sensitive: Collection[str]) -> dict[str, Any]:
        """The Python values that normalised arguments stand for. Raises InvalidArguments."""
        values = self._parse(arguments, sensitive=sensitive).__dict__
        return {name: values[field] for name, field in self._fields.items()}

    def _parse(self, plain: Any, *, sensitive: Collection[str]) -> pydantic.BaseModel:
        try:
            return self._model.model_validate_json(pydantic_core.to_json(plain))
        except pydantic.ValidationError as error:
            problems = [
                self._problem(entry, sensitive) for entry in error.errors(include_url=False)
            ]
            # The cause would show the values that the problems hide.
            raise InvalidArguments(self._tool, problems) from (None if sensitive else error)
        except Exception as error:  # noqa: BLE001  a validator is the author's code too
            problem = Problem("arguments", "", f"a validator failed: {_words(error, sensitive)}")
            raise InvalidArguments(self._tool, [problem]) from (None if sensitive else error)

    def _spell_decimals(self, parsed: pydantic.BaseModel, normal: dict[str, Any]) -> None:
        """Write decimals without exponents: "1E+2" is misread by too many readers."""
        for name, field in self._fields.items():
            value = parsed.__dict__[field]
            if isinstance(value, Decimal) and "E" in str(value):
                if abs(value.adjusted()) > MOST_DIGITS:
                    problem = Problem(name, str(value), f"use at most {MOST_DIGITS} digits")
                    raise InvalidArguments(self._tool, [problem])
                normal[name] = format(value, "f")

    def _problem(self, entry: Any, sensitive: Collection[str]) -> Problem:
        place = [str(part) for part in entry["loc"]]
        field = bound_text(".".join(place) or "arguments", limit=200)
        match entry["type"]:
            case "missing":
                return Problem(field, "", "it is required")
            case "extra_forbidden":
                known = ", ".join(self.names) or "none"
                return Problem(field, "", f"remove it; the arguments are: {known}")
        if _hides(sensitive, place):
            return Problem(field, REDACTED, bound_text(entry["msg"], limit=200))
        given = repr(redact(entry["input"], sensitive))
        return Problem(field, bound_text(given, limit=80), bound_text(entry["msg"], limit=200))


def _words(error: Exception, sensitive: Collection[str]) -> str:
    """What an error says, unless it may quote a value that is hidden."""
    return type(error).__name__ if sensitive else bound_text(readable(error), 200)


_CONFIG = ConfigDict(
    extra="forbid",
    strict=True,
    allow_inf_nan=False,
    protected_namespaces=(),
    arbitrary_types_allowed=False,
)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    where = _where(function)
    parameters = list(inspect.signature(function).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or parameters[0].kind not in positional:
        fix = "let its first parameter be `call`"
        raise InvalidTool(where, problem="it does not take a call", fix=fix)
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for parameter in parameters[1:]:
        if parameter.kind not in by_name:
            fix = "give every argument a name of its own"
            raise InvalidTool(where, problem=f"{parameter} cannot be named by a caller", fix=fix)
        if parameter.annotation is inspect.Parameter.empty:
            fix = "annotate it"
            raise InvalidTool(where, problem=f"{parameter.name} has no type", fix=fix)
    return parameters[1:]


def _hints(function: Callable[..., Any], names: Collection[str]) -> dict[str, Any]:
    """Resolved annotations of the arguments alone: `Call` may exist for type checkers only."""
    inner = inspect.unwrap(function)
    wanted = {name: inner.__annotations__[name] for name in names}
    holder = type("Arguments", (), {"__annotations__": wanted})
    try:
        return typing.get_type_hints(
            holder, globalns=getattr(inner, "__globals__", {}), include_extras=True
        )
    except NameError as error:
        fix = "import its types at run time, above the function"
        raise InvalidTool(_where(function), problem=str(error), fix=fix) from error


def _field(function: Callable[..., Any], parameter: inspect.Parameter, hint: Any) -> Any:
    if parameter.default is inspect.Parameter.empty:
        return (hint, Field(alias=parameter.name))
    try:
        pydantic.TypeAdapter(hint).validate_json(
            pydantic_core.to_json(parameter.default), strict=True
        )
    except ValueError as error:
        problem = f"the default of {parameter.name} does not fit its type"
        raise InvalidTool(_where(function), problem=problem, fix="correct one of them") from error
    except pydantic.PydanticUserError:
        pass  # create_model says it better, for all fields at once
    return (hint, Field(default=parameter.default, alias=parameter.name))


def _mentions_decimal(hint: Any) -> bool:
    return hint is Decimal or any(_mentions_decimal(part) for part in typing.get_args(hint))


def _payload_problem(error: InvalidPayload, sensitive: Collection[str]) -> Problem:
    field = error.field.removeprefix("arguments.")
    place = field.replace("[", ".").split(".")
    return Problem(field, REDACTED if _hides(sensitive, place) else error.value, error.fix)


def _hides(sensitive: Collection[str], place: Collection[str]) -> bool:
    hidden = {name.casefold() for name in sensitive}
    return any(part.casefold() in hidden for part in place)


def _where(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{getattr(function, '__qualname__', function)}"

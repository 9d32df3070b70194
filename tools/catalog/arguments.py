"""The arguments of a declared tool, from a Pydantic model to a function's signature.

Guarantees: every field becomes one argument with its type, constraints, description and default;
what a signature cannot carry (aliases, default factories, validators of the model itself) is
refused instead of dropped.
Does not run the model: arguments are validated like those of every other tool.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field
from pydantic.fields import FieldInfo

from tools.call import Call
from tools.errors import InvalidTool

Check = Callable[[Any], Any]


def sign(
    function: Callable[..., Any],
    *,
    name: str,
    description: str,
    arguments: type[BaseModel],
    checks: Sequence[Mapping[str, Check]],
) -> None:
    """Give a function `(call, **arguments)` the name, words and signature of a tool.

    `checks` are further Pydantic validators by argument. Raises InvalidTool.
    """
    own = arguments.__pydantic_decorators__
    if any(getattr(own, one.name) for one in dataclasses.fields(own)):
        fix = "declare constraints with Annotated types, so that each argument has its own"
        raise InvalidTool(name, problem=f"{arguments.__name__} has validators of its own", fix=fix)
    call = inspect.Parameter("call", inspect.Parameter.POSITIONAL_ONLY, annotation=Call)
    named = [
        _parameter(
            field_name,
            field,
            tool=name,
            checks=[by_name[field_name] for by_name in checks if field_name in by_name],
        )
        for field_name, field in arguments.model_fields.items()
    ]
    function.__name__ = function.__qualname__ = name
    function.__module__ = arguments.__module__
    function.__doc__ = description or inspect.getdoc(arguments)
    function.__annotations__ = {one.name: one.annotation for one in named}
    function.__signature__ = inspect.Signature([call, *named])  # type: ignore[attr-defined]


def _parameter(
    name: str, field: FieldInfo, *, tool: str, checks: Sequence[Check]
) -> inspect.Parameter:
    if field.alias or field.validation_alias or field.serialization_alias:
        fix = "give the field the argument's own name"
        raise InvalidTool(tool, problem=f"its argument {name} has an alias", fix=fix)
    if field.default_factory is not None:
        fix = "give it a fixed default"
        raise InvalidTool(tool, problem=f"its argument {name} has a default factory", fix=fix)
    further = (*field.metadata, *map(AfterValidator, checks))
    annotation: Any = Annotated[field.annotation, *further, Field(description=field.description)]
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=annotation,
        default=inspect.Parameter.empty if field.is_required() else field.default,
    )

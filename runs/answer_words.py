"""How to mend an answer that does not fit, in words for people who have not read the schema.

Guarantees: one short sentence per keyword of JSON Schema; what a schema's author wrote into it is
bounded.

Does not judge: the validator has found what it is asked to word.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from jsonschema.exceptions import ValidationError

from tools.redaction import bound_text

_TYPES: Final[Mapping[str, str]] = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a text",
}
_LIMITS: Final[Mapping[str, str]] = {
    "exclusiveMaximum": "Write a number less than {}.",
    "exclusiveMinimum": "Write a number greater than {}.",
    "maximum": "Write a number of at most {}.",
    "maxItems": "Give at most {}.",
    "maxLength": "Use at most {} characters.",
    "maxProperties": "Give at most {} fields.",
    "minimum": "Write a number of at least {}.",
    "minItems": "Give at least {}.",
    "minLength": "Use at least {} characters.",
    "minProperties": "Give at least {} fields.",
    "multipleOf": "Write a multiple of {}.",
    "pattern": "It has to match the pattern {}.",
}
LONGEST: Final = 300


def say_fix(error: ValidationError) -> str:
    """What to write in its place."""
    keyword, said = error.validator, error.validator_value
    match keyword:
        case "type":
            return f"Write {_say_types([said] if isinstance(said, str) else said)}."
        case "enum":
            return bound_text(f"Use one of: {', '.join(map(_say, said))}.", LONGEST)
        case "const":
            return bound_text(f"It has to be {_say(said)}.", LONGEST)
        case "anyOf" | "oneOf" if _types_of(error.context):
            return f"Write {_say_types(_types_of(error.context))}."
        case "anyOf" | "oneOf":
            return bound_text(f"It fits none of the {len(said)} forms that are possible.", LONGEST)
        case "uniqueItems":
            return "Give each only once."
        case str() if keyword in _LIMITS:
            return bound_text(_LIMITS[keyword].format(_say(said)), LONGEST)
    # A schema that is `false` has no keyword.
    what = f"“{keyword}” of the schema" if keyword else "the schema: nothing may stand here"
    return bound_text(f"It does not fit {what}.", LONGEST)


def _types_of(context: Any) -> list[str]:
    """The kinds of value that the forms ask for, where each of them asks for another kind."""
    if not context or any(inner.validator != "type" for inner in context):
        return []
    found: dict[str, None] = {}
    for inner in context:
        given = inner.validator_value
        found.update(dict.fromkeys([given] if isinstance(given, str) else given))
    return list(found)


def _say_types(names: Any) -> str:
    return " or ".join(_TYPES[name] for name in names)


def _say(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

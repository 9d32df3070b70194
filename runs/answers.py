"""Typed answers: which JSON schemas people may be asked with, and whether an answer fits one.

Guarantees: a schema is one document of JSON Schema 2020-12 that refers to nothing outside of
itself, so checking an answer reads no file and asks no network. An answer is checked against
all of it, formats included, by the same rules wherever it is installed; a field that the schema
does not name is refused, with the nearest name, unless the schema allows others.

Does not bound an answer: `tools.canonical.check_json` does. Does not protect against a pattern
that takes long: schemas are written by whoever wrote the agent.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final
from urllib.parse import unquote

from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import Draft202012Validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from runs.answer_formats import FORMATS, find_fix
from runs.answer_words import say_fix
from tools.canonical import check_json
from tools.errors import InvalidPayload, Problem
from tools.redaction import bound_text

LARGEST_SCHEMA: Final = 32 * 1024
# The names of an object's fields, as they were declared.
ORDER: Final = "x-order"
MOST_PROBLEMS: Final = 50
_DIALECT: Final = Draft202012Validator.META_SCHEMA["$id"]
_SHOWN: Final = 80
# Values, not schemas: what looks like a reference in them is none.
_VALUES: Final = frozenset({"const", "default", "enum", "examples"})
# Where a schema says more about the very same value.
_SAME_PLACE: Final = ("allOf", "anyOf", "oneOf")
_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
_CONDITIONS: Final = ("if", "then", "else")


def find_schema_problem(schema: Any) -> str:
    """Why nobody can be asked with this schema, in one sentence; empty if they can."""
    if not isinstance(schema, Mapping):
        return f"a schema is a JSON object, not {type(schema).__name__}"
    try:
        check_json(schema, field="schema", limit_bytes=LARGEST_SCHEMA)
        Draft202012Validator.check_schema(schema)
    except InvalidPayload as error:
        return str(error)
    except SchemaError as error:
        place = ".".join(["schema", *map(str, error.absolute_path)])
        return bound_text(f"{place}: {error.message}", 300)
    if schema.get("$schema", _DIALECT).rstrip("#") != _DIALECT:
        return f"$schema is another dialect than {_DIALECT}; leave it out"
    problem = next(_problems_of_references(schema, root=schema), "")
    if problem:
        return problem
    try:
        _validator(schema).is_valid(None)
    except RecursionError:
        return "the schema refers to itself without an end"
    return ""


def find_problems(answer: Any, schema: Mapping[str, Any]) -> list[Problem]:
    """What does not fit, field by field; nothing if the answer fits."""
    try:
        errors = sorted(_validator(schema).iter_errors(answer), key=_place_of)
    except (RecursionError, Unresolvable):
        # `find_schema_problem` finds such schemas, but for a loop that only an answer enters.
        fix = "The schema refers to itself without an end, so no answer fits it."
        return [Problem("answer", "", fix)]
    found = [problem for error in errors for problem in _problems_of(error)]
    named = {problem.field for problem in found}
    unknown = _unknown_fields(answer, [schema], root=schema, field="answer")
    found += [problem for problem in unknown if problem.field not in named]
    return list(dict.fromkeys(found))[:MOST_PROBLEMS]


def keep_order(schema: Any) -> Any:
    """The schema with the order of its fields written down, which PostgreSQL's jsonb forgets."""
    if isinstance(schema, list | tuple):
        return [keep_order(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, Any] = {}
    for keyword, item in schema.items():
        if keyword in _NAMED and isinstance(item, Mapping):
            # The names in these are an author's, and may be those of keywords.
            kept[keyword] = {name: keep_order(one) for name, one in item.items()}
        else:
            kept[keyword] = item if keyword in _VALUES else keep_order(item)
    fields = schema.get("properties")
    if isinstance(fields, Mapping) and len(fields) > 1 and ORDER not in schema:
        kept[ORDER] = list(fields)
    return kept


def ordered_fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object in their order; where none was kept, those that it requires first."""
    fields = schema.get("properties", {})
    first = _names_in(schema.get(ORDER)) or schema.get("required", ())
    names = dict.fromkeys([*(name for name in first if name in fields), *fields])
    return {name: fields[name] for name in names}


def _names_in(order: Any) -> list[str]:
    return [name for name in order if isinstance(name, str)] if isinstance(order, list) else []


def follow(schema: Any, *, root: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with what its references lead to, itself winning; {} where there is none."""
    found: dict[str, Any] = {}
    for _ in range(_SHOWN):
        if not isinstance(schema, Mapping):
            break
        found = {**schema, **found}
        if "$ref" not in schema:
            break
        schema = _resolve(schema["$ref"], root=root)
    found.pop("$ref", None)
    return found


def _validator(schema: Mapping[str, Any]) -> Any:
    # An empty registry: what is not in the document is looked for nowhere.
    return Draft202012Validator(schema, format_checker=FORMATS, registry=Registry())


def _place_of(error: ValidationError) -> list[str]:
    return [str(part) for part in error.absolute_path]


def _problems_of(error: ValidationError) -> Iterator[Problem]:
    error = _sharpest(error)
    field = _field("answer", error.absolute_path)
    match error.validator:
        case "required":
            # One error per missing name comes, and none of them says which.
            for name in error.validator_value:
                if name not in error.instance:
                    yield Problem(_field(field, [name]), "", "It is required.")
        case "additionalProperties" if error.validator_value is False:
            assert isinstance(error.schema, Mapping)
            known = list(error.schema.get("properties", ()))
            patterns = error.schema.get("patternProperties", ())
            for name in error.instance:
                if name not in known and not any(re.search(one, name) for one in patterns):
                    yield _unknown(name, known, field=field, value=error.instance[name])
        case "format":
            yield Problem(field, _shown(error.instance), find_fix(error.validator_value))
        case _:
            yield Problem(field, _shown(error.instance), say_fix(error))


def _sharpest(error: ValidationError) -> ValidationError:
    """Of several forms, of which none fits, the error in the only one that was meant."""
    while error.validator in ("anyOf", "oneOf") and error.context:
        meant: dict[Any, list[ValidationError]] = {}
        for inner in error.context:
            meant.setdefault(inner.schema_path[0], []).append(inner)
        left = [
            inner
            for inner in meant.values()
            # Another kind of value altogether: this form was not meant.
            if not any(one.validator == "type" and one.instance is error.instance for one in inner)
        ]
        if len(left) != 1:
            return error
        error = left[0][0]
    return error


def _unknown_fields(
    value: Any, schemas: Sequence[Any], *, root: Mapping[str, Any], field: str
) -> Iterator[Problem]:
    """Fields that no schema of their place names, at any depth."""
    here = list(_same_place(schemas, root=root))
    match value:
        case Mapping():
            known = [name for schema in here for name in schema.get("properties", ())]
            for name, item in value.items():
                inner = _schemas_of_field(name, here)
                if not inner and known and not _allows_others(here):
                    yield _unknown(name, known, field=field, value=item)
                    continue
                yield from _unknown_fields(item, inner, root=root, field=_field(field, [name]))
        case list():
            for place, item in enumerate(value):
                inner = [_schema_of_item(place, schema) for schema in here]
                yield from _unknown_fields(item, inner, root=root, field=_field(field, [place]))


def _schemas_of_field(name: str, here: Sequence[Mapping[str, Any]]) -> list[Any]:
    named = [schema["properties"][name] for schema in here if name in schema.get("properties", ())]
    if named or not _allows_others(here):
        return named
    return [schema.get("additionalProperties") for schema in here]


def _allows_others(here: Sequence[Mapping[str, Any]]) -> bool:
    # What a pattern does not match is refused by the validator itself.
    return any(
        schema.get("additionalProperties", False) is not False
        or schema.get("unevaluatedProperties", False) is not False
        or "patternProperties" in schema
        for schema in here
    )


def _schema_of_item(place: int, schema: Mapping[str, Any]) -> Any:
    first = schema.get("prefixItems", ())
    return first[place] if place < len(first) else schema.get("items")


def _same_place(
    schemas: Sequence[Any], *, root: Mapping[str, Any], seen: frozenset[int] = frozenset()
) -> Iterator[Mapping[str, Any]]:
    """These schemas, and all that say more about the same value."""
    for schema in schemas:
        if not isinstance(schema, Mapping) or id(schema) in seen:
            continue
        seen |= {id(schema)}
        yield schema
        more = [one for keyword in _SAME_PLACE for one in schema.get(keyword, ())]
        more += [schema[keyword] for keyword in _CONDITIONS if keyword in schema]
        more += schema.get("dependentSchemas", {}).values()
        if "$ref" in schema:
            more.append(_resolve(schema["$ref"], root=root))
        yield from _same_place(more, root=root, seen=seen)


def _problems_of_references(part: Any, *, root: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(part, list):
        for item in part:
            yield from _problems_of_references(item, root=root)
    if not isinstance(part, Mapping):
        return
    for keyword in ("$dynamicRef", "$anchor", "$id"):
        if isinstance(part.get(keyword), str) and (keyword != "$id" or part is not root):
            yield f"{keyword} is not supported; refer to #/$defs/…"
    reference = part.get("$ref")
    if isinstance(reference, str) and _resolve(reference, root=root) is None:
        yield f"$ref {bound_text(ascii(reference), _SHOWN)} leads to no part of this schema"
    for keyword, item in part.items():
        items = list(item.values()) if keyword in _NAMED and isinstance(item, Mapping) else item
        if keyword not in _VALUES:
            yield from _problems_of_references(items, root=root)


def _resolve(reference: str, *, root: Mapping[str, Any]) -> Any:
    """The part of the document that `#` or `#/…` names; None for any other reference."""
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return None
    found: Any = root
    for step in unquote(reference[2:]).split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(name)] if isinstance(found, list) else found[name]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return found


def _unknown(name: str, known: Sequence[str], *, field: str, value: Any) -> Problem:
    near = get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]}? " if near else "Remove it. "
    possible = bound_text(", ".join(dict.fromkeys(known)) or "none", 300)
    return Problem(_field(field, [name]), _shown(value), f"{hint}Possible are: {possible}.")


def _field(start: str, places: Any) -> str:
    said = start
    for place in places:
        said += f"[{place}]" if isinstance(place, int) else f".{place}"
    return bound_text(said, 200)


def _shown(value: Any) -> str:
    return bound_text(ascii(value), _SHOWN)

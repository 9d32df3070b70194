"""A JSON schema as a person sees it: parts with a label, a kind, and what can be chosen.

Guarantees: what an agent wrote into a schema (titles, descriptions, choices) comes out bounded and
with unseen characters written out. A part of which no plain kind does justice is of kind `json`.

Does not check answers, and makes no page: `question_form.py` and the template do.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from runs.admin.show import line, visible
from runs.answers import follow, ordered_fields
from tools.redaction import bound_text

Kind = Literal["text", "long", "number", "choice", "many", "date", "datetime", "time", "json"]
Schema = Mapping[str, Any]

MOST_FIELDS: Final = 60
MOST_CHOICES: Final = 300
# A text that may be longer than this gets a box of several lines.
ONE_LINE: Final = 200
LONGEST_LABEL: Final = 200
LONGEST_HELP: Final = 1_000
_OF_FORMATS: Final[Mapping[str, Kind]] = {"date": "date", "date-time": "datetime", "time": "time"}
_NUMBERS: Final = frozenset({"integer", "number"})
# With one of these a value has forms that one field cannot show.
_FORMS: Final = frozenset({"allOf", "anyOf", "oneOf", "if", "patternProperties"})


@dataclass(frozen=True)
class Part:
    """One part of an answer. `filled_in` is what the form begins with, as it would be typed."""

    name: str
    label: str
    help: str
    kind: Kind
    needed: bool
    takes_null: bool = False
    # Of a number: whether the schema takes it as a text too, for exact decimals.
    takes_text: bool = False
    choices: tuple[tuple[Any, str], ...] = ()
    filled_in: tuple[str, ...] = ()


def parts_of(schema: Schema) -> tuple[list[Part], bool]:
    """The parts of an answer, and whether they are those of one object; else it is one part."""
    whole, _ = _plain(schema, root=schema)
    fields = ordered_fields(whole)
    if _kind(whole, schema) == "json" and 0 < len(fields) <= MOST_FIELDS and _is_one_form(whole):
        needed = whole.get("required", ())
        return [
            _part(name, declared, root=schema, needed=name in needed)
            for name, declared in fields.items()
        ], True
    return [_part("", schema, root=schema, needed=True)], False


def say_value(value: Any) -> str:
    """A value as a reader needs it: words where there are some, JSON else."""
    match value:
        case None:
            return "None"
        case bool():
            return "Yes" if value else "No"
        case str():
            return visible(value)
        case [*items] if items and all(isinstance(item, str) for item in items):
            return visible(", ".join(items))
    return visible(json.dumps(value, ensure_ascii=False, indent=2))


def _part(name: str, declared: Any, *, root: Schema, needed: bool) -> Part:
    plain, takes_null = _plain(declared, root=root)
    kind = _kind(plain, root)
    of = _plain(plain.get("items"), root=root)[0] if kind == "many" else plain
    choices = tuple(_choices(of, root)) if kind in ("choice", "many") else ()
    title = plain.get("title") or name.replace("_", " ").capitalize() or "Your answer"
    return Part(
        name=name,
        label=line(str(title), LONGEST_LABEL),
        help=_help(plain, kind),
        kind=kind,
        needed=needed,
        takes_null=takes_null,
        takes_text="string" in _types(plain),
        choices=choices,
        filled_in=_filled_in(plain, kind, choices),
    )


def _plain(declared: Any, *, root: Schema) -> tuple[dict[str, Any], bool]:
    """The schema with its references followed and one form chosen, and whether null is another."""
    found = follow(declared, root=root)
    takes_null = False
    for keyword in ("anyOf", "oneOf", "allOf"):
        forms = [follow(form, root=root) for form in found.get(keyword, ())]
        left = [form for form in forms if form.get("type") != "null"]
        takes_null = takes_null or len(left) < len(forms)
        if len(left) == 1:
            # What stands beside the forms (a title, a default) is about this very field.
            found = {**left[0], **{name: found[name] for name in found if name != keyword}}
        elif {str(form.get("type")) for form in left} in ({"number", "string"},):
            types = {"type": ["number", "string"]}
            found = {**{name: found[name] for name in found if name != keyword}, **types}
    if isinstance(found.get("type"), list) and "null" in found["type"]:
        left_types = [one for one in found["type"] if one != "null"]
        takes_null = True
        found = {**found, "type": left_types[0] if len(left_types) == 1 else left_types}
    return found, takes_null


def _kind(plain: Schema, root: Schema) -> Kind:
    if _choices(plain, root):
        return "choice"
    types = _types(plain)
    if not _is_one_form(plain):
        return "json"
    if types and types <= _NUMBERS | {"string"} and types & _NUMBERS:
        return "number"
    if types == {"string"}:
        return _OF_FORMATS.get(plain.get("format", ""), _kind_of_text(plain))
    if types == {"array"} and "prefixItems" not in plain:
        items = _plain(plain.get("items"), root=root)[0]
        return "many" if _choices(items, root) else "json"
    return "json"


def _kind_of_text(plain: Schema) -> Kind:
    is_short = "pattern" in plain or "format" in plain
    return "text" if is_short or plain.get("maxLength", ONE_LINE + 1) <= ONE_LINE else "long"


def _is_one_form(plain: Schema) -> bool:
    return _FORMS.isdisjoint(plain)


def _types(plain: Schema) -> set[str]:
    given = plain.get("type", [])
    return {given} if isinstance(given, str) else set(given)


def _choices(plain: Schema, root: Schema) -> list[tuple[Any, str]]:
    """What can be chosen, each with its words; nothing where it is not a choice."""
    if "enum" in plain:
        found = [(value, "") for value in plain["enum"]]
    elif "const" in plain:
        found = [(plain["const"], "")]
    elif _types(plain) == {"boolean"}:
        found = [(True, "Yes"), (False, "No")]
    else:
        forms = [follow(form, root=root) for form in plain.get("oneOf", plain.get("anyOf", ()))]
        if not all("const" in form for form in forms):
            return []
        found = [(form["const"], str(form.get("title", ""))) for form in forms]
    if len(found) > MOST_CHOICES:
        return []
    return [(value, line(words or say_value(value), LONGEST_LABEL)) for value, words in found]


def _filled_in(plain: Schema, kind: Kind, choices: tuple[tuple[Any, str], ...]) -> tuple[str, ...]:
    value = plain.get("default")
    if value is None:
        return ()
    if kind in ("choice", "many"):
        wanted = value if kind == "many" and isinstance(value, list) else [value]
        return tuple(str(number) for number, (one, _) in enumerate(choices) if _is_in(one, wanted))
    if isinstance(value, str) and kind != "json":
        # A browser's own field of a time knows no zone; the page says that it is UTC.
        return (value.removesuffix("Z") if kind == "datetime" else value,)
    return (json.dumps(value, ensure_ascii=False, indent=2),)


def _is_in(value: Any, wanted: list[Any]) -> bool:
    # 1 and True are one to Python.
    return any(type(one) is type(value) and one == value for one in wanted)


def _help(plain: Schema, kind: Kind) -> str:
    said = visible(bound_text(str(plain.get("description", "")).strip(), LONGEST_HELP))
    return " ".join(filter(None, (said, _hint(plain, kind))))


def _hint(plain: Schema, kind: Kind) -> str:
    match kind:
        case "json":
            return "Written as JSON."
        case "datetime":
            return "In UTC."
        case "number":
            whole = "A whole number" if _types(plain) == {"integer"} else "A number"
            least, most = plain.get("minimum"), plain.get("maximum")
            limits = [f"from {least}"] if least is not None else []
            limits += [f"up to {most}"] if most is not None else []
            return f"{' '.join([whole, *limits])}."
        case "text" | "long" if "maxLength" in plain:
            return f"At most {plain['maxLength']} characters."
        case "text" if plain.get("format"):
            return {"email": "An e-mail address.", "uri": "A web address."}.get(plain["format"], "")
        case "many":
            return "Choose as many as apply."
    return ""

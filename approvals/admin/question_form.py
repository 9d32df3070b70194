"""The form that a question's schema becomes, and the answer that comes back from it.

Guarantees: every part of a schema has a field: a box, a choice, boxes to tick, a date; whatever
is nested or unusual is written as JSON. What cannot be read is named at its field, with nothing
lost of what was typed; a field that is left empty is left out of the answer. Fields are numbered
on the page, so no name that an agent chose becomes part of it.

Does not check that the answer fits: the command does, and `place` puts what it says to the fields.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.admin.schemas import Part, parts_of
from approvals.admin.words import posted
from runs.admin.show import visible
from runs.requests import MalformedJson, read_json

PREFIX: Final = "field-"
# More choices than this are a list to choose from, not a row of buttons.
MOST_BUTTONS: Final = 7
REQUIRED: Final = "It is required."
Control = Literal["line", "box", "buttons", "list", "ticks", "date", "datetime-local", "time"]
_CONTROLS: Final[Mapping[str, Control]] = {
    "date": "date",
    "datetime": "datetime-local",
    "json": "box",
    "long": "box",
    "many": "ticks",
    "number": "line",
    "text": "line",
    "time": "time",
}


class _LeftOut(Exception):
    """Nothing was typed where nothing has to be."""


@dataclass
class Field:
    """One part of the answer in the form. `typed` holds the numbers of what was chosen."""

    part: Part
    id: str
    typed: list[str]
    error: str = ""

    @property
    def control(self) -> Control:
        if self.part.kind == "choice":
            return "buttons" if len(self.part.choices) <= MOST_BUTTONS else "list"
        return _CONTROLS[self.part.kind]

    @property
    def text(self) -> str:
        return self.typed[0] if self.typed else ""

    @property
    def rows(self) -> int:
        least = 6 if self.part.kind == "json" else 3
        return min(16, max(least, self.text.count("\n") + 1))

    @property
    def is_required(self) -> bool:
        return self.part.needed and not self.part.takes_null

    @property
    def described(self) -> SafeString:
        """Which texts of the page belong to the control, and whether it is wrong."""
        ids = [f"{self.id}-help"] if self.part.help else []
        ids += [f"{self.id}-error"] if self.error else []
        said = format_html(' aria-describedby="{}"', " ".join(ids)) if ids else SafeString("")
        return said + SafeString(' aria-invalid="true"' if self.error else "")

    @property
    def options(self) -> list[tuple[str, str, bool]]:
        """(number, words, whether it is chosen) of each choice."""
        return [
            (str(number), label, str(number) in self.typed)
            for number, (_, label) in enumerate(self.part.choices)
        ]

    def read(self) -> Any:
        """What was typed, as JSON. Raises _LeftOut, ValueError or MalformedJson."""
        if self.part.kind == "many":
            if not self.typed and not self.part.needed:
                raise _LeftOut
            return [self._chosen(number) for number in self.typed]
        if not self.text.strip():
            return self._nothing()
        match self.part.kind:
            case "choice":
                return self._chosen(self.text)
            case "number":
                return _number(self.text.strip(), exact=self.part.takes_text)
            case "json":
                return read_json(self.text, field=self.part.label)
            case "datetime":
                return _with_zone(self.text.strip())
            case "date" | "time":
                return self.text.strip()
            case "text" | "long":
                return self.text

    def _nothing(self) -> Any:
        if not self.part.needed:
            raise _LeftOut
        if self.part.takes_null:
            return None
        raise ValueError(REQUIRED)

    def _chosen(self, number: str) -> Any:
        if number.isascii() and number.isdigit() and int(number[:4]) < len(self.part.choices):
            return self.part.choices[int(number[:4])][0]
        raise ValueError("Choose one of these.")


@dataclass
class Form:
    """All fields, and what is wrong with the answer as a whole."""

    fields: list[Field]
    # Whether the fields are the parts of one object, and not the answer itself.
    is_object: bool
    other: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[Field]:
        return [one for one in self.fields if one.error]

    def take(self, request: HttpRequest) -> None:
        """Fill in what was posted, line ends as they were typed."""
        for one in self.fields:
            if one.part.kind == "many":
                one.typed = [number[:10] for number in request.POST.getlist(one.id)]
            else:
                one.typed = [posted(request, one.id)]

    def read(self) -> Any:
        """The answer. Raises ValueError where a field cannot be read, which then says so."""
        found: dict[str, Any] = {}
        for one in self.fields:
            try:
                found[one.part.name] = one.read()
            except _LeftOut:
                continue
            except MalformedJson as error:
                one.error = visible(f"This is no JSON: {error.why}.")
            except ValueError as error:
                one.error = str(error)
        if self.wrong:
            raise ValueError("some fields cannot be read")
        return found if self.is_object else next(iter(found.values()), None)

    def place(self, problems: Iterable[tuple[str, str]]) -> None:
        """Put what is wrong, as (field, fix), to the fields that it is about."""
        for name, fix in problems:
            about = self._about(name)
            if about is None:
                where = "" if name == "answer" else f"{name.removeprefix('answer.')}: "
                self.other.append(visible(f"{where}{fix}"))
            else:
                about.error = f"{about.error} {visible(fix)}".strip()

    def _about(self, name: str) -> Field | None:
        if not self.is_object:
            return self.fields[0] if name == "answer" or name.startswith("answer") else None
        places = [(f"answer.{one.part.name}", one) for one in self.fields]
        fitting = [
            (place, one)
            for place, one in places
            if name == place or name.startswith((f"{place}.", f"{place}["))
        ]
        return max(fitting, key=lambda found: len(found[0]))[1] if fitting else None


def form_of(schema: Mapping[str, Any]) -> Form:
    """The form of a question, with its defaults filled in."""
    parts, is_object = parts_of(schema)
    return Form(
        fields=[
            Field(part=part, id=f"{PREFIX}{number}", typed=list(part.filled_in))
            for number, part in enumerate(parts)
        ],
        is_object=is_object,
    )


def _number(typed: str, *, exact: bool) -> Any:
    """A number; as a text where the schema takes one and a float would change it."""
    try:
        value = read_json(typed, field="number")
    except MalformedJson as error:
        raise ValueError("Write a number, as 12 or 12.50.") from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("Write a number, as 12 or 12.50.")
    if exact and isinstance(value, float) and Decimal(typed) != Decimal(repr(value)):
        return typed
    return value


def _with_zone(typed: str) -> str:
    """A browser's local time as one in UTC, which the page asks for; anything else as it is."""
    if len(typed) == len("2026-12-24T18:00") and typed[10] == "T":
        return f"{typed}:00Z"
    if len(typed) == len("2026-12-24T18:00:00") and typed[10] == "T":
        return f"{typed}Z"
    return typed

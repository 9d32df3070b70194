"""Texts with places for arguments, and the arguments that may stand in an address.

Guarantees: a place names an argument of the tool or one of the call's own names, checked at
declaration; an argument in a path is one segment of it, whatever it holds: it is encoded, and
what a server might read as structure ("", ".", "..", slashes, control characters) is refused
when the arguments are validated, before anything is decided or sent.
Does not cover a server that decodes an address twice.
"""

import string
from collections.abc import Callable, Collection, Mapping
from typing import Any
from urllib.parse import quote

import pydantic_core

from tools.call import Call

# What every template may name besides the arguments.
CALL_NAMES = ("operation_id", "idempotency_key")


class InvalidTemplate(ValueError):
    """A text whose places cannot be filled."""


class Template:
    """A text such as "/orders/{order_id}", filled from a call."""

    def __init__(self, text: str, *, names: Collection[str]) -> None:
        self.text = text
        self._parts: list[tuple[str, str | None]] = []
        known = {*names, *CALL_NAMES}
        try:
            parsed = list(string.Formatter().parse(text))
        except ValueError as error:
            raise InvalidTemplate(f"{text!r}: {error}") from error
        for literal, name, spec, conversion in parsed:
            if name is not None and (name not in known or spec or conversion):
                raise InvalidTemplate(f"{text!r} has a place {{{name}}} and no such argument")
            self._parts.append((literal, name))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for _, name in self._parts if name is not None)

    @property
    def literals(self) -> str:
        return "".join(literal for literal, _ in self._parts)

    def fill(self, call: Call, *, encode: Callable[[str], str] = str) -> str:
        """The text with the call's values, each put through `encode`."""
        own = {"operation_id": call.operation_id, "idempotency_key": call.idempotency_key}
        filled = ""
        for literal, name in self._parts:
            filled += literal
            if name is not None:
                filled += encode(own[name] if name in own else as_text(call.arguments[name]))
        return filled


class PathTemplate(Template):
    """A path whose arguments are whole segments, or parts of one beside fixed letters."""

    def __init__(self, text: str, *, names: Collection[str]) -> None:
        super().__init__(text, names=names)
        if not text.startswith("/") or any(mark in text for mark in "?#\\"):
            raise InvalidTemplate(f"{text!r} is no path: begin with a slash, and leave out ? # \\")
        for segment in text.split("/"):
            places = segment.count("{")
            letters = Template(segment, names=names).literals
            if places > 1 or letters in (".", ".."):
                raise InvalidTemplate(f"{text!r}: one argument and no dots alone in a segment")

    def fill_path(self, call: Call) -> str:
        return self.fill(call, encode=lambda value: quote(value, safe=""))


def as_text(value: Any) -> str:
    """A JSON scalar as it stands in an address. Raises ValueError for anything else."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float():
            return str(value)
    raise ValueError("only text, numbers and truth values can stand in an address")


def check_segment(value: Any) -> Any:
    """A Pydantic validator of an argument that is part of a path."""
    text = as_text(pydantic_core.to_jsonable_python(value))
    if text in ("", ".", ".."):
        raise ValueError("it would change the path: give a name")
    if any(letter in "/\\" or not letter.isprintable() for letter in text):
        raise ValueError("it would change the path: use no slash and no control character")
    return value


def check_scalar(value: Any) -> Any:
    """A Pydantic validator of an argument that stands in a text."""
    as_text(pydantic_core.to_jsonable_python(value))
    return value


def check_query(value: Any) -> Any:
    """A Pydantic validator of an argument that is sent in the query; None leaves it out."""
    return None if value is None else check_scalar(value)


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """`{"metadata.order": 1}` as `{"metadata": {"order": 1}}`."""
    nested: dict[str, Any] = {}
    for place, value in flat.items():
        *parents, name = place.split(".")
        inside = nested
        for parent in parents:
            inside = inside.setdefault(parent, {})
        inside[name] = value
    return nested

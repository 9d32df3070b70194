"""One byte form for one JSON value, and the gate that keeps unstorable values out.

Guarantees: equal JSON values give equal bytes (RFC 8785), so a digest of them names the
value; what passes `check_json` can be stored by PostgreSQL and put into canonical form.
Does not make `"1.0"` and `"1"` equal: decimals are strings here, and strings are compared
as they are.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import pydantic_core
import rfc8785

from tools.errors import InvalidPayload

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

PAYLOAD_BYTES = 256 * 1024
DEEPEST = 32
# Beyond it two different integers share one double, and RFC 8785 writes numbers as doubles.
LARGEST_INTEGER = 2**53 - 1


def canonical_json(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value. Raises InvalidPayload where there are none."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidPayload(field="value", value=value, fix=f"send plain JSON: {error}") from error


def canonical_copy(value: Any) -> Any:
    """A copy in canonical form, of which changes do not reach the value. Raises InvalidPayload."""
    return json.loads(canonical_json(value))


def digest(value: Any) -> str:
    """SHA-256 of the canonical form, 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def check_json(value: Any, *, field: str, limit_bytes: int = PAYLOAD_BYTES) -> None:
    """Refuse what cannot be stored, naming the place inside `field`; raises InvalidPayload.

    `limit_bytes` bounds the compact UTF-8 JSON. Depth is at most 32 containers.
    """
    _check(value, field=field, depth=0)
    size = len(pydantic_core.to_json(value))
    if size > limit_bytes:
        raise InvalidPayload(
            field=field,
            value=f"{size} bytes",
            fix=f"send at most {limit_bytes} bytes of JSON and refer to the rest",
        )


def _check(value: Any, *, field: str, depth: int) -> None:
    match value:
        case None | bool():
            return
        case str():
            _check_text(value, field=field)
        case int():
            if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
                fix = "send numbers beyond 2^53 - 1 as a string"
                # repr() of a giant integer raises, so only its size is shown.
                shown = f"{value.bit_length()}-bit integer"
                raise InvalidPayload(field=field, value=shown, fix=fix)
        case float():
            if not math.isfinite(value):
                raise InvalidPayload(field=field, value=value, fix="send a finite number")
            if abs(value) > LARGEST_INTEGER:
                # PostgreSQL's jsonb hands it back as an integer, with other digits.
                fix = "send numbers beyond 2^53 - 1 as a string"
                raise InvalidPayload(field=field, value=value, fix=fix)
        case Mapping() | list() | tuple():
            if depth >= DEEPEST:
                fix = f"nest at most {DEEPEST} levels deep"
                raise InvalidPayload(field=field, value=type(value).__name__, fix=fix)
            _check_items(value, field=field, depth=depth + 1)
        case _:
            fix = f"send JSON, not {type(value).__qualname__}"
            raise InvalidPayload(field=field, value=value, fix=fix)


def _check_items(value: Any, *, field: str, depth: int) -> None:
    if not isinstance(value, Mapping):
        for index, item in enumerate(value):
            _check(item, field=f"{field}[{index}]", depth=depth)
        return
    for key, item in value.items():
        if not isinstance(key, str):
            raise InvalidPayload(field=field, value=key, fix="use text as every key")
        _check_text(key, field=field)
        _check(item, field=f"{field}.{key}", depth=depth)


def _check_text(text: str, *, field: str) -> None:
    if "\0" in text:
        raise InvalidPayload(field=field, value=text, fix="remove the NUL character")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            fix = "remove the lone surrogate: it is no Unicode text"
            raise InvalidPayload(field=field, value=text, fix=fix) from error

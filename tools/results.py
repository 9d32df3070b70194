"""What a tool returned, as JSON that can be stored, and the provider's own reference.

Guarantees: Pydantic models, dataclasses, decimals, dates, enums and plain values become
JSON within the payload limits, or `UnreadableResult` says why not.
Does not know whether the effect exists: a value that cannot be stored proves nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pydantic_core

from tools.canonical import JsonValue, check_json
from tools.errors import InvalidPayload, UnreadableResult

LONGEST_REFERENCE = 255

_references: ContextVar[list[str] | None] = ContextVar("tools_external_reference", default=None)


def external_ref(reference: str) -> None:
    """Record the provider's reference of the effect; the last one said in a call counts.

    Outside a call it does nothing, so a tool can be tried by hand.
    """
    noted = _references.get()
    if noted is not None:
        noted.append(reference)


@contextmanager
def noting_references() -> Iterator[None]:
    """Lets `external_ref` and `encode_result` of one call find each other."""
    token = _references.set([])
    try:
        yield
    finally:
        _references.reset(token)


def encode_result(value: object) -> tuple[JsonValue, str | None]:
    """JSON of a result and its external reference, or None. Raises UnreadableResult.

    The reference is what the tool told `external_ref`, else the result's own field or key
    of that name.
    """
    if value is None or value is True or value is False:
        result: Any = value
    else:
        result = _as_json(value)
    return result, _reference(result)


def _as_json(value: object) -> JsonValue:
    try:
        encoded: JsonValue = pydantic_core.to_jsonable_python(value, inf_nan_mode="constants")
    except Exception as error:
        # Serializers are the tool author's code as well, so anything may come out of them.
        raise UnreadableResult(f"{type(value).__qualname__}: {error}") from error
    try:
        check_json(encoded, field="result")
    except InvalidPayload as error:
        raise UnreadableResult(str(error)) from error
    return encoded


def _reference(result: JsonValue) -> str | None:
    noted = _references.get()
    own = result.get("external_ref") if isinstance(result, dict) else None
    return read_reference(noted[-1] if noted else own)


def read_reference(given: object) -> str | None:
    """A provider's reference as it can be stored. Raises UnreadableResult."""
    if given is None or given == "":
        return None
    reference = str(given)
    try:
        check_json(reference, field="external_ref")
    except InvalidPayload as error:
        raise UnreadableResult(str(error)) from error
    if len(reference) > LONGEST_REFERENCE:
        raise UnreadableResult(f"external_ref is longer than {LONGEST_REFERENCE} characters")
    return reference

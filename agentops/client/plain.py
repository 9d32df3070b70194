"""Arguments as JSON, the same in every process: what keys and requests are made of."""

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from pydantic_core import to_jsonable_python


def to_plain(value: Any) -> Any:
    """The JSON value of an argument. Raises PydanticSerializationError for what has none.

    The order of a set differs from process to process: a list in a stable order stands for it.
    """
    match value:
        case Mapping():
            return {str(to_jsonable_python(name)): to_plain(item) for name, item in value.items()}
        case list() | tuple():
            return [to_plain(item) for item in value]
        case AbstractSet():
            return sorted((to_plain(item) for item in value), key=_as_text)
        case _:
            return to_jsonable_python(value)


def _as_text(plain: Any) -> str:
    return json.dumps(plain, sort_keys=True)

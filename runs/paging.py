"""Pages of rows by position, not by number.

Guarantees: reading on from a cursor costs the same however far one has come, and
rows that are added meanwhile are neither shown twice nor make others vanish. A
cursor that was not made here is refused by name.

Does not count: nobody needs the total, and on a large table it costs a scan.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic import ValidationError as PydanticError

from runs.errors import InvalidInput
from runs.models import AgentRun, Question, ToolOperation

PAGE_SIZE: Final = 50
LARGEST_PAGE: Final = 500

Item = TypeVar("Item")
Row = TypeVar("Row", AgentRun, Question, ToolOperation)
C = TypeVar("C", bound="Cursor")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """Some items, and the cursors of the pages around them."""

    items: Sequence[Item]
    next: str | None
    previous: str | None


class _ForeignCursor(InvalidInput):
    def __init__(self, text: str) -> None:
        super().__init__(
            field="cursor",
            value=ascii(text[:40]),
            fix="Follow the `next` and `previous` links; leave it out for the first page.",
        )


class Cursor(BaseModel):
    """A place in a list; `back` reads what comes before it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    back: bool = False

    def encode(self) -> str:
        """The cursor as it stands in a link."""
        return base64.urlsafe_b64encode(self.model_dump_json().encode()).decode().rstrip("=")

    @classmethod
    def decode(cls: type[C], text: str) -> C:
        """The cursor that `encode` wrote. Raises InvalidInput."""
        padded = text + "=" * (-len(text) % 4)
        try:
            return cls.model_validate_json(base64.urlsafe_b64decode(padded.encode("ascii")))
        except (PydanticError, UnicodeEncodeError, binascii.Error) as error:
            raise _ForeignCursor(text) from error


class _NewestFirst(Cursor):
    at: AwareDatetime
    id: str = Field(pattern=r"^[\w-]{1,64}$")


def read_newest_first(
    rows: "QuerySet[Row]", *, cursor: str | None, size: int, by: str = "created_at"
) -> Page[Row]:
    """One page of rows by (`by`, id), newest first. Raises InvalidInput."""
    place = _NewestFirst.decode(cursor) if cursor is not None else None
    back = place is not None and place.back
    order = (by, "id") if back else (f"-{by}", "-id")
    found = list(_beyond(rows, place, by=by).order_by(*order)[: size + 1])
    items, more = found[:size], len(found) > size
    if back:
        items.reverse()
    before = more if back else place is not None
    after = bool(items) if back else more
    return Page(
        items=items,
        next=_place_of(items[-1], back=False, by=by) if after else None,
        previous=_place_of(items[0], back=True, by=by) if before and items else None,
    )


def _beyond(rows: "QuerySet[Row]", place: _NewestFirst | None, *, by: str) -> "QuerySet[Row]":
    if place is None:
        return rows
    try:
        # The first condition says nothing new; it lets the index find the place.
        if place.back:
            newer = Q(**{f"{by}__gt": place.at}) | Q(id__gt=place.id)
            return rows.filter(Q(**{f"{by}__gte": place.at}) & newer)
        older = Q(**{f"{by}__lt": place.at}) | Q(id__lt=place.id)
        return rows.filter(Q(**{f"{by}__lte": place.at}) & older)
    except ValidationError as error:
        raise _ForeignCursor(place.id) from error


def _place_of(row: AgentRun | Question | ToolOperation, *, back: bool, by: str) -> str:
    return _NewestFirst(back=back, at=getattr(row, by), id=str(row.pk)).encode()

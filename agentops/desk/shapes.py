"""What the desk is made of: figures that lead somewhere, and sections that say what stands there.

Guarantees: everything shown is escaped and bounded by whoever builds it (`runs.admin.show`); a
tone is never told by colour alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.admin.readonly import Cell, Table
from runs.admin.show import Tone, badge
from runs.desk import MOST_COUNTED

# Of anything that is listed here, so many; its own list has all of them.
ROWS: Final = 8


@dataclass(frozen=True)
class Figure:
    """One number with what it counts, and where it is settled or listed."""

    number: str
    text: str
    url: str
    tone: Tone = "neutral"


@dataclass(frozen=True)
class Section:
    """One question that the desk answers. `well` is said where there is nothing to list; `note`
    says what to do about what is listed."""

    anchor: str
    title: str
    table: Table | None = None
    well: Cell = ""
    note: Cell = ""
    tone: Tone = "neutral"


@dataclass(frozen=True)
class Viewer:
    """Who looks: what they may see, and do."""

    request: HttpRequest

    def may(self, *permissions: str) -> bool:
        """Whether any of these is theirs."""
        return any(self.request.user.has_perm(one) for one in permissions)


def say_count(count: int) -> str:
    return f"{count:,}" if count < MOST_COUNTED else f"{MOST_COUNTED:,}+"


def say_many(count: int, one: str, many: str) -> str:
    """A count with the words that go with it."""
    return f"{say_count(count)} {one if count == 1 else many}"


def say_length(length: timedelta) -> str:
    """In two units at most: `3 d 4 h`, `2 h 05 min`, `43 s`."""
    seconds = max(0, int(length.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if days:
        return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"
    if hours:
        return f"{hours} h {minutes % 60:02} min" if minutes % 60 else f"{hours} h"
    return f"{minutes} min" if minutes else f"{seconds} s"


def say_seconds(seconds: float) -> str:
    return say_length(timedelta(seconds=seconds))


def meter(part: float, words: str, *, tone: Tone) -> SafeString:
    """How far along something is, from 0 to 1, and in words, which say all of it."""
    return format_html(
        '<span class="ao-metered ao-{}"><progress class="ao-meter" max="100" value="{}" '
        'aria-hidden="true"></progress><span>{}</span></span>',
        tone,
        round(100 * min(1.0, max(0.0, part))),
        words,
    )


def joined(*parts: Cell) -> SafeString:
    """Those that say something, one after the other."""
    found: Sequence[Cell] = [part for part in parts if part]
    return format_html(" ".join(["{}"] * len(found)), *found)


def tagged(words: str, tone: Tone) -> Cell:
    """Words, marked where they are not as they should be."""
    return words if tone == "neutral" else badge(words, tone)

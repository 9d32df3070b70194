"""One event as an iCalendar text (RFC 5545), and the marks by which it is known again.

Guarantees: the same event is the same bytes at each send; free text cannot add a line or a
property, whatever it holds; every line is folded at 75 bytes.
Does not read calendars: of a text that came back, only named properties are picked out.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

LINE_BYTES = 75
FINGERPRINT = "X-AGENTOPS-FINGERPRINT"
# A client that changes the event later has the newer stamp, whatever its clock says.
NEVER_REVISED = "19700101T000000Z"


@dataclass(frozen=True, kw_only=True)
class EventText:
    """What is written down of one event; the times are aware."""

    uid: str
    fingerprint: str
    start: datetime
    end: datetime
    summary: str
    description: str = ""
    location: str = ""

    def encode(self) -> bytes:
        """The calendar object, in UTF-8 with CRLF line ends."""
        return b"".join(_fold(line) for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from ("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//agentops//EN", "BEGIN:VEVENT")
        yield f"UID:{self.uid}"
        yield f"DTSTAMP:{NEVER_REVISED}"
        yield f"DTSTART:{_utc(self.start)}"
        yield f"DTEND:{_utc(self.end)}"
        texts = {
            "SUMMARY": self.summary,
            "DESCRIPTION": self.description,
            "LOCATION": self.location,
        }
        for name, text in texts.items():
            if text:
                yield f"{name}:{_escape(text)}"
        yield f"{FINGERPRINT}:{self.fingerprint}"
        yield from ("END:VEVENT", "END:VCALENDAR")


def read_properties(text: str, *names: str) -> dict[str, set[str]]:
    """The values of the named properties, of all components; parameters are left out."""
    found: dict[str, set[str]] = {name: set() for name in names}
    for line in _unfold(text).split("\n"):
        head, _, value = line.partition(":")
        name = head.partition(";")[0].upper()
        if name in found:
            found[name].add(value)
    return found


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def _escape(text: str) -> str:
    for mark in ("\\", ";", ","):
        text = text.replace(mark, "\\" + mark)
    lines = "\\n".join(text.splitlines())
    return "".join(one for one in lines if one == "\t" or unicodedata.category(one) != "Cc")


def _fold(line: str) -> bytes:
    """The line in pieces of at most 75 bytes, none of which cuts a character."""
    pieces: list[bytes] = []
    piece = b""
    for letter in line:
        encoded = letter.encode()
        # A continuation begins with a space, which counts.
        if len(piece) + len(encoded) > LINE_BYTES - bool(pieces):
            pieces.append(piece)
            piece = b""
        piece += encoded
    return b"\r\n ".join([*pieces, piece]) + b"\r\n"


def _unfold(text: str) -> str:
    text = text.replace("\r\n", "\n")
    return text.replace("\n ", "").replace("\n\t", "")

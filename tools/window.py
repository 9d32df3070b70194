"""When the bytes of one call left this process, as far as anybody noticed.

Guarantees: the first mark of "first_byte" and the newest of the others are kept, as times
on the clock of the call's deadline (the database's, carried on by the monotonic clock).
Does not prove that a byte did not leave: most clients tell nobody, and a missing mark
means "not known".
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tools.call import Call

Mark = Literal["first_byte", "last_byte", "closed"]


@dataclass(frozen=True, kw_only=True)
class SendWindow:
    """The marks of one call. `deadline` and `expires_at_monotonic` are the same moment."""

    deadline: datetime
    expires_at_monotonic: float
    _marks: dict[Mark, datetime] = field(default_factory=dict)

    def mark(self, what: Mark) -> None:
        """Note that it happens now."""
        at = self.deadline - timedelta(seconds=self.expires_at_monotonic - time.monotonic())
        if what == "first_byte":
            self._marks.setdefault(what, at)
        else:
            self._marks[what] = at

    @property
    def marks(self) -> Mapping[Mark, datetime]:
        return dict(self._marks)


def trace(call: "Call") -> Callable[[str, Mapping[str, Any]], None]:
    """A function for `extensions={"trace": …}` of a synchronous httpx2 or httpx request."""

    def note(event: str, _: Mapping[str, Any]) -> None:
        stage = event.partition(".")[2]
        if stage == "send_request_headers.started":
            call.window.mark("first_byte")
        elif stage in ("send_request_body.complete", "send_request_body.failed"):
            call.window.mark("last_byte")
        elif stage == "response_closed.complete":
            call.window.mark("closed")

    return note

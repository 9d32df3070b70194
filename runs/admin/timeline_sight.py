"""What of a timeline a person sees: no more than the pages of its rows would show them.

Guarantees: who may not see a kind of row is told nothing of what it holds, neither on the page nor
in the file, and is told that it is left out. Numbers of entries stay as they are.

Does not hide the journal: that somebody signed or answered stands in the run's own edges.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest

from runs import shapes
from runs.shapes import TimelineEntry

# By the first word of an entry's kind: what people call such rows, and the rights of which one is
# enough.
_KINDS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "approval": ("requests for a signature", ("runs.view_approval", "runs.decide_approval")),
    "question": ("questions", ("runs.view_question", "runs.answer_question")),
    "signal": ("signals", ("runs.view_signal",)),
    "gateway": ("calls from outside", ("runs.view_gatewaycall",)),
    "request": ("requests to steer the run", ("runs.view_controlrequest",)),
}
# What the edges of an operation tell of the request for its signature.
_OF_APPROVALS: Final = frozenset(
    (
        *("fingerprint", "reviewed", "rule", "groups", "quorum"),
        *("approve_by", "changed", "decided_by", "decided_at"),
    )
)


@dataclass(frozen=True)
class Sight:
    """The kinds of rows that somebody may not see."""

    hidden: frozenset[str]

    @classmethod
    def of(cls, request: HttpRequest) -> "Sight":
        """That of whoever asks."""
        may = request.user.has_perm
        kinds = _KINDS.items()
        return cls(frozenset(kind for kind, (_, rights) in kinds if not any(map(may, rights))))

    @property
    def left_out(self) -> list[str]:
        """What people call these kinds."""
        return [title for kind, (title, _) in _KINDS.items() if kind in self.hidden]

    def shows(self, kind: str) -> bool:
        return kind not in self.hidden

    def see(self, entries: Iterable[TimelineEntry]) -> list[TimelineEntry]:
        """What is left of them."""
        return [
            self._see_edge(entry) for entry in entries if self.shows(entry.kind.partition(".")[0])
        ]

    def see_run(self, run: shapes.Run) -> shapes.Run:
        """The run without the name of what it waits for, if that is hidden."""
        waits = run.waiting_for
        if waits is None or self.shows(waits.kind):
            return run
        return run.model_copy(update={"waiting_for": waits.model_copy(update={"name": None})})

    def _see_edge(self, entry: TimelineEntry) -> TimelineEntry:
        about = entry.evidence or {}
        if entry.approval_id is not None and not self.shows("approval"):
            kept = {name: value for name, value in about.items() if name not in _OF_APPROVALS}
            return entry.model_copy(update={"approval_id": None, "evidence": kept})
        if not self.shows(about.get("waits_for", "")):
            return entry.model_copy(update={"evidence": {"waits_for": about["waits_for"]}})
        return entry

"""Who moves a run on, and when, in the words of a timeline's verdict.

Guarantees: a date that has passed is told as passed; nobody is told to wait for what no living
worker does. Who is alive is asked once, and only where a worker is waited for.

Does not tell whether a living worker serves the run: it asks for one once the run is overdue.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from runs.admin.readonly import Cell
from runs.admin.show import line, link, relative, when
from runs.models import NAME, AgentRun, ToolOperation, Wait
from runs.state import OperationStatus
from runs.versions import live_releases

# Workers are told of what is due every second or so.
LATE: Final = timedelta(minutes=1)


def say_time(moment: datetime | None, *, now: datetime) -> Cell:
    """A time that can stand behind "until" and "since"."""
    if moment is None:
        return "a time that is not known"
    return format_html(
        '<time class="ao-time" datetime="{}">{} UTC <small>({})</small></time>',
        moment.isoformat(),
        f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        relative(moment, now=now),
    )


@dataclass(frozen=True)
class Moves:
    """What comes next in a run without anybody's help, as one who asks at `now` is told."""

    request: HttpRequest
    run: AgentRun
    now: datetime

    @cached_property
    def is_worker_alive(self) -> bool:
        return bool(live_releases())

    def say_asked_next(self, operation: ToolOperation) -> Cell:
        """When the provider is asked about an operation that is uncertain."""
        due = operation.next_reconcile_at
        if operation.status == OperationStatus.RUNNING:
            return "as soon as another worker takes over"
        if due is None:
            return "not again"
        if due > self.now:
            return when(due, now=self.now)
        if self.now - due <= LATE and self.is_worker_alive:
            return "now"
        return format_html("<strong>overdue:</strong> {}", when(due, now=self.now))

    def expect_look_up(self, operation: ToolOperation) -> Cell:
        """What there is to do about an operation of which the provider is yet to be asked."""
        if operation.status == OperationStatus.RUNNING:
            promise: Cell = "Nothing yet: another worker takes over, and asks the provider first."
            return self._expect(self.run.lease_expires_at, promise, "The run", "taken over")
        due = operation.next_reconcile_at
        asked = "now" if due is None or due <= self.now else when(due, now=self.now)
        promise = format_html("Nothing yet: the provider is asked again {}.", asked)
        return self._expect(due, promise, "The provider", "asked")

    def expect_move(self) -> Cell:
        """What there is to do about a run that a worker holds, or is to take up."""
        run, lease_end = self.run, self.run.lease_expires_at
        if lease_end is not None and lease_end > self.now:
            owner = line(run.lease_owner, NAME)
            return format_html("Nothing: {} is at work under token {}.", owner, run.fence_token)
        if lease_end is not None:
            promise: Cell = format_html(
                "Nothing yet: the lease of {} is over since {}, and another worker takes over.",
                line(run.lease_owner, NAME),
                say_time(lease_end, now=self.now),
            )
            return self._expect(lease_end, promise, "The run", "taken over")
        due = run.wake_at
        soon = "now" if due is None or due <= self.now else when(due, now=self.now)
        promise = format_html("Nothing: a worker takes it up {}.", soon)
        return self._expect(due, promise, "The run", "taken up")

    def expect_end_of(self, wait: Wait) -> Cell:
        """What there is to do about a run that sleeps."""
        promise = format_html(
            "Nothing: it sleeps until {}, and then goes on by itself.",
            say_time(wait.until, now=self.now),
        )
        return self._expect(wait.until, promise, "The run", "taken up")

    def _expect(self, due: datetime | None, promise: Cell, what: str, done: str) -> Cell:
        """The promise, as long as somebody is there to keep it in time."""
        is_late = due is not None and self.now - due > LATE
        if self.is_worker_alive and not is_late:
            return promise
        is_past = due is None or due <= self.now
        was = format_html("{} {} to be {}", what, "was" if is_past else "is", done)
        if due is not None:
            was = format_html("{} at {}", was, say_time(due, now=self.now))
        agent, workers = line(self.run.agent, NAME), self._workers()
        if not self.is_worker_alive:
            start = "No worker is alive: start one that serves {}. {}. {}"
            return format_html(start, agent, was, workers)
        return format_html("{}: is a worker running that serves {}? {}", was, agent, workers)

    def _workers(self) -> Cell:
        if not self.request.user.has_perm("runs.view_worker"):
            return ""
        return link(reverse("admin:runs_worker_changelist"), "Workers")

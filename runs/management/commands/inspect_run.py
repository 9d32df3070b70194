"""`inspect_run`: one run, where it stands and how it came there."""

from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandParser

from runs.access import READ
from runs.errors import UnknownRun
from runs.family import find_descendants
from runs.management.base import KernelCommand, add_limit, as_json, checked_limit
from runs.models import AgentRun, Handoff
from runs.presenting import present_incident, present_operation, present_run
from runs.presenting_llm import say_handoff, say_totals
from runs.queries import find_incidents, find_operations, parse_run_id
from runs.shapes import IncidentOfRun, Run
from runs.state import OperationStatus
from runs.tables import (
    facts_table,
    say_in_flight,
    say_spent,
    say_wait,
    show_time,
    timeline_table,
)
from runs.timeline import read_newest


class Command(KernelCommand):
    help = "Show a run and its incident timeline, oldest entry first."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("run", help="the run's id")
        add_limit(parser, default=200, of="timeline entries, the newest,")

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        run_id = parse_run_id(options["run"])
        row = AgentRun.objects.filter(id=run_id).first()
        if row is None:
            raise UnknownRun(run_id=str(run_id))
        run = present_run(row)
        limit = checked_limit(options["limit"])
        page = read_newest(run_id=run_id, size=limit)
        incidents = [present_incident(one) for one in find_incidents(run=options["run"])[:limit]]
        if self.as_json:
            entries = [as_json(entry) for entry in page.items]
            found = [as_json(incident) for incident in incidents]
            self.show_json({"run": as_json(run), "incidents": found, "timeline": entries})
            return
        facts = [
            *_facts(run),
            *_below(run),
            *_llms(run),
            *_uncertain(run),
            *_incidents(incidents),
        ]
        self.show_table(facts_table(facts), "", timeline_table(page.items))
        if page.previous:
            self.say(f"Earlier entries are left out; --limit shows more than {len(page.items)}.")


def _facts(run: Run) -> list[tuple[str, object]]:
    facts: list[tuple[str, object | None]] = [
        ("run", run.id),
        ("agent", f"{run.agent} (version {run.agent_version})"),
        ("state", f"{run.state}{' — an effect is uncertain' if run.uncertain else ''}"),
        ("objective", run.objective or None),
        ("input", run.input),
        ("result", run.result),
        ("error", run.error),
        ("labels", run.labels or None),
        ("fencing token", run.fence_token),
        (
            "lease",
            f"{run.lease.owner} until {show_time(run.lease.expires_at)}" if run.lease else None,
        ),
        ("due", show_time(run.wake_at) or None),
        ("waits for", say_wait(run) or None),
        ("paused", _words(show_time(run.paused_at), run.pause_reason) or None),
        ("cancel", _cancel(run)),
        ("correcting", _correcting(run)),
        ("spent", say_spent(run.spent, run.budget)),
        ("priority", run.priority or None),
        ("started by", run.parent),
        (
            "forked from",
            f"{run.forked_from} step {run.forked_at_step}" if run.forked_from else None,
        ),
        ("created", f"{show_time(run.created_at)} by {run.created_by}"),
        ("finished", show_time(run.finished_at) or None),
    ]
    return [(name, value) for name, value in facts if value is not None]


def _cancel(run: Run) -> str | None:
    asked = run.cancel_requested
    if asked is None:
        return None
    how = " with compensation" if asked.compensate else ""
    return f"asked for{how} by {asked.by} at {show_time(asked.at)}"


def _correcting(run: Run) -> str | None:
    saga = run.compensating
    return _words(f"since {show_time(saga.since)}", saga.reason) if saga else None


def _below(run: Run) -> list[tuple[str, object]]:
    """The runs that it started, and below each those that it started."""
    if not run.children:
        return []
    return [
        (
            "below" if place == 0 else "",
            f"{'  ' * (one.level - 1)}{one.run_id} {one.agent} {one.state}",
        )
        for place, one in enumerate(find_descendants(run.id))
    ]


def _llms(run: Run) -> list[tuple[str, object]]:
    """What its llms were asked, and the handoff that the next decision starts from."""
    asked: list[tuple[str, object]] = [("asked", line) for line in say_totals(run.id)]
    newest = Handoff.objects.filter(run_id=run.id).defer("body").order_by("-number").first()
    return [*asked, ("handoff", say_handoff(newest))] if newest is not None else asked


def _uncertain(run: Run) -> list[tuple[str, object]]:
    if not run.uncertain:
        return []
    unknown = find_operations(run=str(run.id), status=OperationStatus.UNKNOWN)
    shown = [present_operation(one) for one in unknown.order_by("step_number", "ordinal")]
    return [("unknown", _words(one.operation_id, one.tool, say_in_flight(one))) for one in shown]


def _incidents(incidents: Sequence[IncidentOfRun]) -> list[tuple[str, object]]:
    return [
        ("incident", _words(one.kind, one.tool, one.external_ref, one.detail)) for one in incidents
    ]


def _words(*parts: str | None) -> str:
    return " · ".join(part for part in parts if part)

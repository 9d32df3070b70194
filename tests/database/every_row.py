"""Rows of every kind that the admin shows, as many as a test asks for, with hostile words."""

from datetime import timedelta
from itertools import count
from typing import Final

from django.contrib.auth.models import Group, User
from django.utils import timezone

from agentops.models import AuditEntry, Delivery
from agentops.tokens import issue_token
from runs.access import READ
from runs.models import (
    AgentRun,
    ControlRequest,
    Definition,
    EffectAudit,
    Incident,
    Notice,
    Release,
    Rollup,
    Signal,
    ToolObservation,
    Worker,
)
from tests.database import approving, asking
from tests.database.admin_pages import (
    CARD,
    HOSTILE,
    Start,
    define_tools,
    finished_run,
    uncertain_run,
)
from tests.database.callers import Caller, caller
from tests.database.policy_rows import save_row
from tests.database.scheduling import reporter, schedule
from tools.registry import all_tools

_numbers: Final = count(1)


def fill(start: Start, times: int) -> None:
    """So many rows of every kind; then a run, an operation and a worker that have as many each."""
    if "pay" not in {spec.name for spec in all_tools()}:
        define_tools()
        reporter()
    api = caller("operations:call:*")
    for _ in range(times):
        approving.asked(start)
        asking.asked(start, text=f"Which one? {HOSTILE}")
        _beside(uncertain_run(start), api)
    _deep(start, times)


def _beside(run: AgentRun, api: Caller) -> None:
    """A row of each kind that no engine has to write."""
    number = next(_numbers)
    call = {"tool": "look", "arguments": {"order": HOSTILE}, "rationale": HOSTILE}
    answer = api.post("operations/", call | {"wait_seconds": 0}, key=f"key {number}")
    assert answer.status_code == 202, answer.content
    _told(run)
    schedule(f"schedule-{number}", objective=HOSTILE, input={"note": HOSTILE})
    save_row(f"policy {number}", tool="elsewhere", reason=HOSTILE)
    release = Release.objects.create(
        id=f"release {number}",
        agents={HOSTILE: {"version": HOSTILE, "rule": "next_step"}},
        tools={},
    )
    Definition.objects.create(
        kind="prompt", name=HOSTILE, version=f"v{number}", body={"text": HOSTILE}
    )
    Worker.objects.create(name=f"worker {number} <b>", host=HOSTILE, pid=number, release=release)
    notice = Notice.objects.create(
        event_id=f"told {number}", kind=Notice.Kind.OPERATION_NEEDS_PERSON, run=run
    )
    Delivery.objects.create(
        notice=notice,
        channel=Delivery.Channel.WEBHOOK,
        address=f"https://hooks.example/{number}",
        status=Delivery.Status.FAILED,
        give_up_at=timezone.now(),
        last_error=HOSTILE,
    )
    user = User.objects.create(username=f"user{number}", first_name="<b>Ann</b>")
    user.groups.add(Group.objects.create(name=f"group {number} <b>"))
    issue_token(user=user, name="nightly <b>", scopes=[READ])
    AuditEntry.objects.create(actor="ann", door=AuditEntry.Door.API, action=HOSTILE, status=403)
    EffectAudit.objects.create(
        tool="pay",
        since=timezone.now() - timedelta(hours=1),
        until=timezone.now(),
        effects=2,
        matched=1,
        unaccounted=1,
        findings=[{"reference": HOSTILE}],
    )
    Rollup.objects.create(
        starts_at=timezone.now() - timedelta(minutes=5 * number),
        seconds=300,
        agent=run.agent,
        agent_version="v1",
        tool="pay",
        measure="runs_completed",
        count=number,
    )


def _told(run: AgentRun) -> None:
    number = next(_numbers)
    ControlRequest.objects.create(run=run, kind="pause", by="ann", reason=f"{CARD} {HOSTILE}")
    Signal.objects.create(
        run=run, name="paid", event_id=f"event {number}", payload={"note": HOSTILE}, digest="d"
    )


def _deep(start: Start, times: int) -> None:
    """What one page has to show grows as well as what is in a list."""
    run = finished_run(start, steps=times)
    paid = run.operations.get(tool="pay")
    for number in range(times):
        _told(run)
        Incident.objects.create(
            run=run, operation=paid, kind=Incident.Kind.LATE_COMMIT, external_ref=f"re_{number}"
        )
    uncertain = uncertain_run(start)
    unknown = uncertain.operations.get(tool="pay")
    ToolObservation.objects.bulk_create(
        ToolObservation(
            operation=unknown,
            run=uncertain,
            source=ToolObservation.Source.LOOK_UP,
            verdict=ToolObservation.Verdict.INDETERMINATE,
            detail=HOSTILE,
            attempt=1,
            fence_token=1,
        )
        for _ in range(times)
    )

"""Rows for every section of the desk."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

from django.utils import timezone

from runs import Finish
from runs.access import operator
from runs.commands import pause_run
from runs.models import AgentRun, Incident, Rollup, Sweep, ToolOperation
from runs.slo.measures import Measure
from tests.database.approving import ask, held_run
from tests.database.asking import asked
from tests.database.deploying import serve
from tests.database.kit import change, let_pass
from tests.database.stories import parked_run, uncertain_run
from tests.database.test_stuck import nobody_asked
from tools import registry

Start = Callable[..., AgentRun]


def fill(start: Start, *, words: str = "finance") -> None:
    """Something in every section."""
    late = uncertain_run(start)
    with registry.isolated_registry():
        parked_run(start)
    let_pass(minutes=61)
    with registry.isolated_registry():
        nobody_asked(start)
    ask(held_run(start), groups=[words])
    asked(start, groups=[words])
    paused = start(decider=lambda context: Finish(1))
    pause_run(actor=operator(), run_id=paused.id, reason=words)
    serve("worker 1")
    gone = start(decider=lambda context: Finish(1))
    AgentRun.objects.filter(pk=gone.pk).update(agent_version="0123456789abcdef")
    Sweep.objects.create(name="due runs")
    operation = ToolOperation.objects.get(run=late)
    Incident.objects.create(run=late, operation=operation, kind=Incident.Kind.LATE_COMMIT)
    add_rollup(Measure.OPERATIONS_COMMITTED, 90, tool="pay")
    add_rollup(Measure.OPERATIONS_REJECTED, 9, tool="pay")
    add_rollup(Measure.UNKNOWN_SECONDS, 14, tool="pay", le=60)
    add_rollup(Measure.LLM_REQUESTS, 310)
    add_rollup(Measure.LLM_TOKENS, 310, total=1_204_000)
    add_rollup(Measure.LLM_COST_USD, 310, total="4.17")


def copy_unknown(run: AgentRun, count: int) -> None:
    """So many more operations of the run that are unknown."""
    columns = [field.column for field in ToolOperation._meta.local_fields]
    changed = {
        "id": "'copy' || n",
        "ordinal": "n",
        "holds_intent": "NULL",
        "unknown_since": "unknown_since + make_interval(secs => n)",
    }
    names = ", ".join(f'"{name}"' for name in columns)
    values = ", ".join(changed.get(name, f'"{name}"') for name in columns)
    tamper_insert = (
        f"INSERT INTO runs_tooloperation ({names}) SELECT {values} FROM runs_tooloperation,"
        " generate_series(1, %s) AS n WHERE run_id = %s AND status = 'UNKNOWN'"
    )
    change("ALTER TABLE runs_tooloperation DISABLE TRIGGER USER")
    change(tamper_insert, count, run.id)
    change("ALTER TABLE runs_tooloperation ENABLE TRIGGER USER")


def add_rollup(
    measure: Measure, count: int, *, tool: str = "", le: float = 0, total: Decimal | int | str = 0
) -> None:
    """So many of one measure, of the agent `support`."""
    Rollup.objects.create(
        starts_at=timezone.now() - timedelta(minutes=10),
        seconds=300,
        agent="support",
        agent_version="1",
        tool=tool,
        measure=measure,
        le=le,
        count=count,
        total=total,
    )

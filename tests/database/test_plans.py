"""Every query on a run's path has an index, so no run pays for how many others there are.

With sequential scans forbidden, the planner takes one only where no index would do.
"""

from collections.abc import Callable

from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import CallTools, Context, Decision, Finish, ToolCall, events, sweeps
from runs.access import operator
from runs.commands import cancel_run, reconcile_now
from runs.models import AgentRun
from runs.timeline import read_timeline
from tests.database.kit import (
    ON_DATABASE,
    call_once,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    operation_of,
    scripted_tool,
)

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


def scans(captured: CaptureQueriesContext) -> list[str]:
    """The captured statements that read a kernel table from end to end."""
    found = []
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        for query in captured.captured_queries:
            sql = query["sql"]
            if "runs_" not in sql or not sql.lstrip().startswith(("SELECT", "UPDATE")):
                continue
            cursor.execute(f"EXPLAIN {sql}")
            plan = " | ".join(row[0] for row in cursor.fetchall())
            if "Seq Scan on runs_" in plan:
                found.append(f"{sql}\n    {plan}")
        cursor.execute("SET enable_seqscan = on")
    return found


def test_taking_over_in_the_middle_of_a_step_scans_nothing(start: Start) -> None:
    scripted_tool(7, 7)
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_STARTING):
        drive(run)
    expire_lease(run)
    with CaptureQueriesContext(
        connection,
    ) as captured:
        drive(run)
    assert run.operations.exists()
    assert scans(captured) == []


def test_the_next_step_of_a_long_run_scans_nothing(start: Start) -> None:
    def decide(context: Context) -> Decision:
        return CallTools(ToolCall("pay")) if context.step_number < 4 else Finish(1)

    scripted_tool(1, 2, 3)
    run = start(decider=decide, tools=("pay",))
    with dies_at(events.Name.DECIDER_STARTING, nth=3):
        drive(run)
    expire_lease(run)
    with CaptureQueriesContext(connection) as captured:
        drive(run)
    assert run.result == 1
    assert scans(captured) == []


def test_sweeping_cancelling_and_reconciling_scan_nothing(start: Start) -> None:
    scripted_tool(ConnectionResetError("lost"), 7)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    with CaptureQueriesContext(connection) as captured:
        reconcile_now(actor=operator(), operation_id=operation_of(run).id)
        reconcile_now(actor=operator())
        cancel_run(actor=operator(), run_id=run.id)
        sweeps.run_once()
        drive_when_due(run)
        read_timeline(run_id=run.id)
    moved_by_the_test = [sql for sql in scans(captured) if "in_flight_until = NULL" not in sql]
    assert moved_by_the_test == []

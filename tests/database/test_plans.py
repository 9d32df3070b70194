"""Every query on a run's path has an index, so no run pays for how many others there are.

With sequential scans forbidden, the planner takes one only where no index would do.
"""

from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import CallTools, Context, Decision, Finish, ToolCall, events, sweeps, watch
from runs.access import operator
from runs.commands import cancel_run, reconcile_now
from runs.models import AgentRun
from runs.resolution import resolve_operation
from runs.timeline import read_timeline
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    Script,
    call_once,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    found,
    hear_late,
    let_pass,
    make_due,
    operation_of,
    scripted_tool,
)
from tests.database.settling import drive_now, end_worker, vanish
from tools import EffectType, Reconciled

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


def test_settling_an_unknown_call_scans_nothing(start: Start) -> None:
    """Its senders, and whether they are known to have ended; its evidence; its tries."""
    run, _ = vanish(start, "second", max_attempts=1)
    with CaptureQueriesContext(connection) as captured:
        drive_now(run)
    assert operation_of(run).look_ups == 2
    assert "runs_worker" in _all(captured)
    assert "runs_stepattempt" in _all(captured)
    assert scans(captured) == []


def test_sending_again_and_recording_beside_earlier_answers_scans_nothing(start: Start) -> None:
    scripted_tool(LOST, 7)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    make_due(run)
    with CaptureQueriesContext(connection) as captured:
        drive(run)
    assert operation_of(run).attempts == 2
    assert "runs_toolobservation" in _all(captured)
    assert scans(captured) == []


@pytest.mark.parametrize("scope", ["run", "global"])
def test_answering_a_repeat_scans_nothing(start: Start, scope: str) -> None:
    scripted_tool(7, 8, intent_key=("amount",), intent_scope=scope)
    for _ in range(2):
        run = start(decider=call_once(ToolCall("pay"), ToolCall("pay")), tools=("pay",))
        with CaptureQueriesContext(connection) as captured:
            drive(run)
    assert operation_of(run, ordinal=1).repeats_id is not None
    assert ('"holds_intent" IN (' in _all(captured)) == (scope == "global")
    assert scans(captured) == []


def test_a_persons_word_scans_nothing(start: Start) -> None:
    scripted_tool(LOST, 7, effect=EffectType.NON_IDEMPOTENT_WRITE)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    with CaptureQueriesContext(connection) as captured:
        resolve_operation(
            actor=operator(),
            operation_id=operation_of(run).id,
            outcome="not_committed",
            evidence="not on the statement",
        )
    assert scans(captured) == []


def test_late_evidence_and_watching_scan_nothing(start: Start) -> None:
    scripted_tool(LOST, 7, look_up=Script(Reconciled.not_found(), found(reference="re_1")))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    let_pass(hours=1)
    with CaptureQueriesContext(connection) as captured:
        hear_late(run, "committed", external_ref="re_0", attempt=1)
        for operation_id in watch.find_due():
            watch.watch(operation_id)
    assert operation_of(run).observations.count() == 5
    assert scans(captured) == []


def test_the_end_of_a_worker_scans_nothing(start: Start) -> None:
    run, _ = vanish(start)
    with CaptureQueriesContext(connection) as captured:
        end_worker("worker 1")
    assert run.operations.exists()
    assert scans(captured) == []


def _all(captured: CaptureQueriesContext) -> str:
    return " ".join(query["sql"] for query in captured.captured_queries)

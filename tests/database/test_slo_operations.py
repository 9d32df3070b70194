"""What is counted of operations, from runs that the engine drove."""

from datetime import timedelta

import pytest

from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.access import operator
from runs.commands import start_run
from runs.models import AgentRun, Definition, Incident
from runs.resolution import resolve_operation
from runs.slo.counting_operations import OBJECTIVE
from runs.slo.measures import Measure
from runs.versions import register_release
from tests.database.calling import NEVER, carry_out, send
from tests.database.kit import (
    KEYED,
    LOST,
    Script,
    ask,
    call_once,
    drive,
    drive_in_time,
    drive_late,
    drive_when_due,
    found,
    operation_of,
    scripted_tool,
)
from tests.database.sagas import Books, compensated, failing_run, stuck
from tests.database.slo_sums import Start, buckets, counts, grow_older, sums, tools
from tests.database.stories import reconciled_run, repeating_run, taken_over_run
from tools import Approve, NotSent, Rejected

pytestmark = pytest.mark.django_db(transaction=True)

PLAIN_RUN = {"runs_completed": 1, "operations_sent": 1, "operations_committed": 1}
FREE = Approve(when="false")


def paying(start: Start, *answers: object, **declared: object) -> tuple[AgentRun, Script]:
    """A run with one payment, driven once."""
    script = scripted_tool(*answers, approval_policy=FREE, **declared)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    return run, script


def test_an_answer_is_one_send_and_one_effect(start: Start) -> None:
    run, _ = paying(start, "paid")
    assert counts() == PLAIN_RUN
    labels = {(one.agent, one.agent_version, one.tool) for one in sums(Measure.OPERATIONS_SENT)}
    assert labels == {(run.agent, run.agent_version, "pay")}


def test_a_refusal_is_a_send_without_an_effect(start: Start) -> None:
    paying(start, Rejected("no"))
    assert counts() == {"runs_failed": 1, "operations_sent": 1, "operations_rejected": 1}


def test_what_did_not_leave_is_sent_again(start: Start) -> None:
    run, _ = paying(start, NotSent("no route"), "paid")
    drive_when_due(run)
    assert counts() == PLAIN_RUN | {"operations_sent": 2, "operations_resent": 1}


def test_an_unknown_outcome_that_a_look_up_settles(start: Start) -> None:
    reconciled_run(start)
    assert counts() == PLAIN_RUN | {"unknown_in_time": 1, "unknown_settled_by_look_up": 1}
    assert buckets(Measure.UNKNOWN_SECONDS) == {1: 1}


def test_an_unknown_outcome_that_another_send_settles_lasts_until_then(start: Start) -> None:
    run, script = paying(start, LOST, LOST, "paid", provider=KEYED)
    grow_older(minutes=4)
    drive_in_time(run)
    assert (run.state, len(script.calls)) == ("COMPLETED", 3)
    assert counts() == PLAIN_RUN | {
        "operations_sent": 3,
        "operations_resent": 2,
        "unknown_in_time": 1,
    }
    # From the first time on, and not from the second.
    assert buckets(Measure.UNKNOWN_SECONDS) == {300: 1}


def test_an_unknown_outcome_that_a_person_settles(start: Start) -> None:
    run, _ = paying(start, LOST)
    resolve_operation(
        actor=operator(),
        operation_id=operation_of(run).id,
        outcome="committed",
        evidence="seen in the ledger",
    )
    drive(run)
    assert counts() == PLAIN_RUN | {
        "unknown_in_time": 1,
        "unknown_settled_by_person": 1,
        "runs_touched": 1,
    }


def test_one_that_proves_not_to_have_happened_and_is_unknown_anew_lasts_anew(start: Start) -> None:
    run, _ = paying(start, LOST, LOST, look_up=Script(found()))
    grow_older(hours=2)
    resolve_operation(
        actor=operator(),
        operation_id=operation_of(run).id,
        outcome="not_committed",
        evidence="the ledger is empty",
    )
    drive(run)
    drive_when_due(run)
    assert run.state == "COMPLETED"
    # Two hours for the first, and next to nothing for the second.
    assert buckets(Measure.UNKNOWN_SECONDS) == {1: 1, 14_400: 1}


def test_one_beyond_its_tools_objective_is_over_it_once_also_where_a_person_waits(
    start: Start,
) -> None:
    """Nothing asks about it, so nothing notices before it is settled."""
    longer = timedelta(days=2)
    run, _ = paying(
        start, LOST, settle_window=longer, reconcile_within=timedelta(days=1, minutes=30)
    )
    register_release()
    grow_older(hours=24, minutes=31)
    resolve_operation(
        actor=operator(),
        operation_id=operation_of(run).id,
        outcome="committed",
        evidence="seen in the ledger",
    )
    assert counts() == {
        "operations_sent": 1,
        "operations_committed": 1,
        "unknown_over_objective": 1,
        "unknown_settled_by_person": 1,
    }


def test_an_incident_says_so_while_it_is_unknown_and_is_not_counted_again(start: Start) -> None:
    run, _ = paying(start, LOST, provider=None, look_up=Script(*[LOST] * 200))
    drive_late(run)
    assert run.state == "WAITING_FOR_RESOLUTION"
    assert counts()["unknown_over_objective"] == 1
    resolve_operation(
        actor=operator(),
        operation_id=operation_of(run).id,
        outcome="committed",
        evidence="seen in the ledger",
    )
    found = counts()
    assert (found["unknown_over_objective"], found.get("unknown_in_time", 0)) == (1, 0)


def test_what_is_noticed_of_one_and_settled_of_another_at_one_time_adds_up(start: Start) -> None:
    """Both of one agent and tool, in one slice."""
    run, _ = paying(start, LOST, LOST, reconcile_within=timedelta(minutes=30))
    other = start_run(actor=operator(), agent=run.agent).run
    drive(other)
    register_release()
    grow_older(minutes=31)
    resolve_operation(
        actor=operator(),
        operation_id=operation_of(run).id,
        outcome="committed",
        evidence="seen in the ledger",
    )
    Incident.objects.create(
        run=other, operation=operation_of(other), kind=Incident.Kind.OVERDUE, external_ref=""
    )
    assert counts()["unknown_over_objective"] == 2


def test_what_is_no_duration_is_no_objective_and_no_error() -> None:
    said = {
        "0:10:00": timedelta(minutes=10),
        "23:59:59.999999": timedelta(days=1) - timedelta(microseconds=1),
        "1 day, 0:30:00": timedelta(days=1, minutes=30),
        "999999 days, 0:00:00": timedelta(days=999_999),
    } | dict.fromkeys(["0:99:00", "0:00:60", "25:00:00", "1:0:0", "-1 day, 0:00:00", "٠:00:00"])
    bodies = [({"idempotency": ["", "", None, "0:15:00", text]}, at) for text, at in said.items()]
    bodies += [({"idempotency": wrong}, None) for wrong in (["", ""], {"4": "0:10:00"}, "0:10:00")]
    for number, (body, expected) in enumerate([*bodies, ([], None)]):
        Definition.objects.create(kind="tool", name="pay", version=str(number), body=body)
        found = ask(
            f"SELECT {OBJECTIVE} FROM (VALUES ('pay', '{number}')) edge (tool, tool_version)"
        )
        assert found == expected, body


def test_a_worker_that_died_lost_its_lease(start: Start) -> None:
    taken_over_run(start)
    assert counts() == PLAIN_RUN | {
        "leases_lost": 1,
        "unknown_in_time": 1,
        "unknown_settled_by_look_up": 1,
    }


def test_a_repeat_is_answered(start: Start) -> None:
    repeating_run(start, on_repeated_intent="return_recorded")
    assert counts() == PLAIN_RUN | {"repeats_answered": 1}


def test_a_repeat_is_refused(start: Start) -> None:
    repeating_run(start, on_repeated_intent="refuse")
    assert counts() == PLAIN_RUN | {"repeats_refused": 1, "operations_cancelled": 1}


def test_a_call_from_outside_under_another_key_is_a_repeat_that_is_answered() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    carry_out(send("k1", thread="t", step=1, action="pay"))
    assert send("k2", thread="t", step=1, action="pay").replayed
    assert counts()["repeats_answered"] == 1
    assert tools(Measure.REPEATS_ANSWERED) == {"pay": 1}


def test_an_invalid_call_is_no_repeat_and_a_name_that_nobody_declared_is_not_kept(
    start: Start,
) -> None:
    hostile = 'pay"} 1\n# HELP agentops_fake <script>alert(1)</script>'

    def decide(context: Context) -> Decision:
        return Finish() if context.last else CallTools(ToolCall(hostile))

    drive(start(decider=decide, tools=("pay",)))
    assert counts() == {"runs_completed": 1, "operations_cancelled": 1}
    assert tools(Measure.OPERATIONS_CANCELLED) == {"": 1}


def test_compensations_that_were_made(start: Start) -> None:
    books = Books()
    books.define("a", "b")
    compensated(failing_run(start, "a", "b"))
    found = counts()
    assert (found["compensations_committed"], found.get("compensations_failed")) == (2, None)
    assert (found["operations_committed"], found["runs_failed"]) == (4, 1)
    assert tools(Measure.COMPENSATIONS_COMMITTED) == {"undo_a": 1, "undo_b": 1}


def test_compensations_that_came_to_nothing(start: Start) -> None:
    books = Books()
    books.define("a", undo={"a": [books.entry("undo_a", fails=Rejected("too late"))]})
    stuck(failing_run(start, "a"))
    found = counts()
    assert (found.get("compensations_committed"), found["compensations_failed"]) == (None, 1)

"""What the database refuses, whoever writes: raw SQL against CHECKs and triggers."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.models import AgentRun
from runs.state import (
    OPERATION_EDGES,
    RUN_EDGES,
    UNDATED_STATES,
    OperationEvent,
    OperationStatus,
    RunEvent,
    RunState,
    edge_names,
)
from runs.triggers import OPERATION_IDENTITY, check_functions
from tests.database.kit import ON_DATABASE, ask, change, drive, operation_of, scripted_tool
from tools import EffectType

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
APPEND_ONLY = ["transition", "toolobservation", "modeldecision", "checkpoint"]


@pytest.fixture
def ready(start: Start) -> AgentRun:
    """A run in READY at version 1."""
    return start(decider=lambda context: Finish(1))


@pytest.fixture
def finished(start: Start) -> AgentRun:
    """A completed run with rows of every kind."""
    scripted_tool(7, effect=EffectType.READ)

    def decide(context: Context) -> Decision:
        return CallTools(ToolCall("pay")) if context.last is None else Finish(context.last.result)

    run = start(decider=decide, tools=("pay",))
    drive(run)
    assert run.state == RunState.COMPLETED
    return run


# -- The pure table and the database agree ------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "edges", "states"),
    [(None, RUN_EDGES, RunState), ("op_1", OPERATION_EDGES, OperationStatus)],
)
def test_the_database_allows_exactly_the_edges_of_the_pure_table(
    operation: str | None, edges: Any, states: Any
) -> None:
    names = ["", *map(str, RunState), *map(str, OperationStatus), "NOWHERE"]
    happenings = sorted({*map(str, RunEvent), *map(str, OperationEvent), "", "GUESS"})
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT f || ' ' || e || ' ' || t, runs_is_legal_edge(%s, f, e, t)
            FROM unnest(%s::text[]) f, unnest(%s::text[]) e, unnest(%s::text[]) t
            """,
            [operation, names, happenings, names],
        )
        answers = cursor.fetchall()
    assert len(answers) == len(names) ** 2 * len(happenings)
    assert sorted({name for name, legal in answers if legal}) == edge_names(edges)
    assert {legal for _, legal in answers} == {True, False}


def test_the_migrations_functions_are_those_of_the_pure_table() -> None:
    frozen = import_module("runs.migrations.0001_initial").CHECKS
    assert frozen == check_functions()


@pytest.mark.parametrize("state", RunState)
def test_a_run_without_a_date_is_possible_only_where_nobody_is_due(
    ready: AgentRun, state: RunState
) -> None:
    with transaction.atomic():
        try:
            with transaction.atomic():
                change(
                    "UPDATE runs_agentrun SET state = %s, version = version + 1, wake_at = NULL"
                    " WHERE id = %s",
                    state,
                    ready.id,
                )
            accepted = True
        except IntegrityError as error:
            assert "run_has_a_next_mover" in str(error)  # noqa: PT017
            accepted = False
        transaction.set_rollback(True)
    assert accepted == (state in UNDATED_STATES)


# -- A state moves only as the journal says -----------------------------------------------------


def _move(run: AgentRun, *, to: str, version: int = 2) -> None:
    change("UPDATE runs_agentrun SET state = %s, version = %s WHERE id = %s", to, version, run.id)


def _note(run: AgentRun, edge: str, *, version: int = 2, operation: str | None = None) -> None:
    before, event, after = edge.split(" ")
    change(
        "INSERT INTO runs_transition (run_id, version, operation_id, event, from_state, to_state,"
        " reason, actor, fence_token, step_number, attempt)"
        " VALUES (%s, %s, %s, %s, %s, %s, '', 'sql', 0, 1, 1)",
        run.id, version, operation, event, before, after,
    )  # fmt: skip


OPEN = "READY OPEN_STEP DECIDING"
DECIDE = "DECIDING RECORD_DECISION DECISION_RECORDED"


@pytest.mark.parametrize(
    ("edges", "to"), [([OPEN], "DECIDING"), ([OPEN, DECIDE], "DECISION_RECORDED")]
)
def test_a_journaled_move_is_accepted(ready: AgentRun, edges: list[str], to: str) -> None:
    with transaction.atomic():
        _move(ready, to=to)
        for edge in edges:
            _note(ready, edge)
    assert ask("SELECT state FROM runs_agentrun WHERE id = %s", ready.id) == to


@pytest.mark.parametrize(
    ("edges", "to", "version"),
    [
        ([], "DECIDING", 2),  # no journal row
        ([OPEN], "DECIDING", 1),  # the version stays
        ([OPEN], "DECIDING", 3),  # the journal speaks of another version
        ([DECIDE], "DECISION_RECORDED", 2),  # starts elsewhere
        ([OPEN], "DECISION_RECORDED", 2),  # ends elsewhere
        ([OPEN, "TOOL_PREPARED SEND TOOL_RUNNING"], "TOOL_RUNNING", 2),  # does not chain
        ([DECIDE, OPEN], "DECISION_RECORDED", 2),  # in the wrong order
        ([OPEN, DECIDE], "DECIDING", 2),  # goes on after the state
    ],
)
def test_a_move_that_the_journal_does_not_explain_is_refused(
    ready: AgentRun, edges: list[str], to: str, version: int
) -> None:
    def write() -> None:
        with transaction.atomic():
            _move(ready, to=to, version=version)
            for edge in edges:
                _note(ready, edge)

    _refuses(write)
    assert ask("SELECT state FROM runs_agentrun WHERE id = %s", ready.id) == "READY"


@pytest.mark.parametrize(
    "edge",
    [
        "READY SEND TOOL_RUNNING",
        "READY OPEN_STEP DECISION_RECORDED",
        "COMPLETED CREATE READY",
        "TOOL_STATUS_UNKNOWN FAIL FAILED",
        "TOOL_RUNNING CANCEL CANCELLED",
        "PREPARED SEND RUNNING",  # an operation's edge, said of a run
    ],
)
def test_an_edge_that_is_not_in_the_table_cannot_be_journaled(ready: AgentRun, edge: str) -> None:
    _refuses(lambda: _note(ready, edge), "transition_is_a_legal_edge")


def test_a_runs_edge_cannot_be_journaled_of_an_operation(finished: AgentRun) -> None:
    operation = operation_of(finished).id
    _refuses(lambda: _note(finished, OPEN, operation=operation), "transition_is_a_legal_edge")


def test_the_journal_of_another_run_explains_nothing(start: Start, ready: AgentRun) -> None:
    other = start(decider=lambda context: Finish(1))

    def write() -> None:
        with transaction.atomic():
            _move(ready, to="DECIDING")
            _note(other, OPEN)

    _refuses(write)


def test_a_run_is_not_created_without_a_journal_row() -> None:
    with pytest.raises(IntegrityError, match="no journal row explains"):
        AgentRun.objects.create(
            agent="a",
            agent_version="1",
            created_by="sql",
            request_digest="0",
            wake_at="2026-01-01T00:00Z",
        )


@pytest.mark.parametrize("status", ["PREPARED", "RUNNING", "UNKNOWN", "REJECTED", "CANCELLED"])
def test_an_operation_moves_only_with_a_journal_row(finished: AgentRun, status: str) -> None:
    settled = status in {"REJECTED", "CANCELLED"}
    _refuses(
        lambda: change(
            "UPDATE runs_tooloperation SET status = %s, unknown_since = now(),"
            " settled_at = CASE WHEN %s THEN now() END WHERE run_id = %s",
            status,
            settled,
            finished.id,
        ),
        "where COMMITTED was expected|no journal row explains",
    )


def test_an_operation_is_not_created_without_a_journal_row(finished: AgentRun) -> None:
    _refuses(
        lambda: change(
            "INSERT INTO runs_tooloperation SELECT (jsonb_populate_record(operation,"
            ' \'{"id": "op_new", "ordinal": 9}\')).* FROM runs_tooloperation operation'
            " WHERE run_id = %s",
            finished.id,
        ),
        "leaves|no journal row explains",
    )


# -- What only grows, and what never changes ----------------------------------------------------


@pytest.mark.parametrize("column", ["fence_token", "version"])
def test_a_runs_token_and_version_never_shrink(finished: AgentRun, column: str) -> None:
    sql = f"UPDATE runs_agentrun SET {column} = {column} - 1 WHERE id = %s"
    _refuses(lambda: change(sql, finished.id), "only grow")


def test_an_operations_token_never_shrinks(finished: AgentRun) -> None:
    sql = "UPDATE runs_tooloperation SET fence_token = fence_token - 1 WHERE run_id = %s"
    _refuses(lambda: change(sql, finished.id), "only grows")


OTHER_IDENTITY = {
    "id": "'op_other'",
    "run_id": "gen_random_uuid()",
    "step_id": "step_id + 1000",
    "step_number": "step_number + 1",
    "ordinal": "ordinal + 1",
    "revision": "revision + 1",
    "tool": "'other'",
    "tool_version": "'other'",
    "arguments_version": "'other'",
    "effect_type": "'IRREVERSIBLE'",
    "provider": "'other'",
    "account": "'other'",
    "sensitive": "'[\"other\"]'",
    "arguments": "'{\"amount\": 1000}'",
    "arguments_digest": "'other'",
    "idempotency_key": "'other'",
}


@pytest.mark.parametrize("column", OPERATION_IDENTITY)
def test_what_an_operation_is_never_changes(finished: AgentRun, column: str) -> None:
    sql = f"UPDATE runs_tooloperation SET {column} = {OTHER_IDENTITY[column]} WHERE run_id = %s"
    _refuses(lambda: change(sql, finished.id), "what it is cannot change")


@pytest.mark.parametrize("table", APPEND_ONLY)
def test_evidence_is_never_updated(finished: AgentRun, table: str) -> None:
    sql = f"UPDATE runs_{table} SET fence_token = fence_token WHERE run_id = %s"
    _refuses(lambda: change(sql, finished.id), "append-only")


@pytest.mark.parametrize("table", APPEND_ONLY)
def test_evidence_is_never_deleted_while_its_run_exists(finished: AgentRun, table: str) -> None:
    assert ask(f"SELECT count(*) FROM runs_{table} WHERE run_id = %s", finished.id) > 0
    _refuses(lambda: change(f"DELETE FROM runs_{table} WHERE run_id = %s", finished.id), "stay")


def test_a_whole_run_is_purged_with_its_rows_in_one_transaction(finished: AgentRun) -> None:
    steps = "SELECT id FROM runs_step WHERE run_id = %s"
    with transaction.atomic():
        change("DELETE FROM runs_agentrun WHERE id = %s", finished.id)
        for table in ("transition", "toolobservation", "checkpoint", "modeldecision", "notice"):
            assert change(f"DELETE FROM runs_{table} WHERE run_id = %s", finished.id) > 0
        change("DELETE FROM runs_tooloperation WHERE run_id = %s", finished.id)
        change(f"DELETE FROM runs_stepattempt WHERE step_id IN ({steps})", finished.id)
        change("DELETE FROM runs_step WHERE run_id = %s", finished.id)
    assert not AgentRun.objects.filter(id=finished.id).exists()


def test_a_run_is_not_removed_from_under_its_journal(finished: AgentRun) -> None:
    _refuses(lambda: change("DELETE FROM runs_agentrun WHERE id = %s", finished.id), "foreign key")


# -- Rows that cannot be ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "constraint"),
    [
        ("UPDATE runs_agentrun SET lease_owner = 'w' WHERE id = %s", "run_lease_has_owner"),
        (
            "UPDATE runs_agentrun SET lease_expires_at = now() WHERE id = %s",
            "run_lease_has_owner",
        ),
        (
            "UPDATE runs_tooloperation SET settled_at = NULL WHERE run_id = %s",
            "operation_standing_is_dated",
        ),
        ("UPDATE runs_step SET closed_at = NULL WHERE run_id = %s", "step_one_open_per_run"),
        ("UPDATE runs_step SET number = 1 WHERE run_id = %s", "step_unique_number"),
    ],
)
def test_a_row_that_cannot_be_is_refused(finished: AgentRun, sql: str, constraint: str) -> None:
    _refuses(lambda: change(sql, finished.id), constraint)


def test_two_operations_never_hold_one_intent(finished: AgentRun) -> None:
    change("UPDATE runs_tooloperation SET holds_intent = 'i' WHERE run_id = %s", finished.id)
    twin = '{"id": "op_new", "ordinal": 9}'
    _refuses(
        lambda: change(
            "INSERT INTO runs_tooloperation SELECT (jsonb_populate_record(operation, %s)).*"
            " FROM runs_tooloperation operation WHERE run_id = %s",
            twin,
            finished.id,
        ),
        "operation_unique_intent",
    )


def test_a_step_has_one_open_attempt(finished: AgentRun) -> None:
    def write() -> None:
        step = ask("SELECT min(id) FROM runs_step WHERE run_id = %s", finished.id)
        change("UPDATE runs_stepattempt SET ended_at = NULL WHERE step_id = %s", step)
        change(
            "INSERT INTO runs_stepattempt (step_id, number, fence_token, worker, outcome)"
            " VALUES (%s, 9, 9, 'w', '')",
            step,
        )

    _refuses(write, "attempt_one_open_per_step")


@pytest.mark.parametrize(
    "standing",
    [
        "'RUNNING', 0, 1, now(), NULL, NULL",
        "'RUNNING', 1, 0, now(), NULL, NULL",
        "'RUNNING', 1, 1, NULL, NULL, NULL",
        "'UNKNOWN', 1, 1, now(), NULL, NULL",
        "'UNKNOWN', 1, 1, now(), now(), now()",
        "'COMMITTED', 1, 1, now(), NULL, NULL",
        "'PREPARED', 0, 0, NULL, NULL, now()",
    ],
)
def test_an_operations_standing_has_its_dates(standing: str) -> None:
    assert ask(f"SELECT runs_operation_is_dated({standing})") is False


@pytest.mark.parametrize(
    "standing",
    [
        "'AWAITING_APPROVAL', 0, 0, NULL, NULL, NULL",
        "'PREPARED', 0, 0, NULL, NULL, NULL",
        "'RUNNING', 1, 1, now(), NULL, NULL",
        "'UNKNOWN', 1, 1, now(), now(), NULL",
        "'COMMITTED', 1, 1, now(), NULL, now()",
        "'CANCELLED', 0, 0, NULL, NULL, now()",
    ],
)
def test_an_operations_standing_with_its_dates_is_accepted(standing: str) -> None:
    assert ask(f"SELECT runs_operation_is_dated({standing})") is True


def _refuses(write: Callable[[], Any], words: str = ".") -> None:
    with pytest.raises(IntegrityError, match=words):
        write()

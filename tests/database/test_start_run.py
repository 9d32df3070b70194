"""Starting a run: durable and due in one transaction, and one run per key."""

import threading
from typing import Any

import celery
import pytest
from django.db import connection, transaction

from runs import Agent, Finish, events, wake
from runs.access import Actor, operator
from runs.commands import MAX_LABELS, Started, start_run
from runs.errors import InvalidInput, KeyInUse, KeyReused, NotPermitted, UnknownAgent
from runs.models import AgentRun, Transition
from runs.state import RunState
from tests.database.kit import ON_DATABASE, another_connection, ask, drive, listening

pytestmark = ON_DATABASE

ANN = Actor(name="ann", scopes=frozenset({"runs:write"}))


@pytest.fixture(autouse=True)
def agent() -> Agent:
    return Agent(name="greeter", decider=lambda context: Finish(context.input))


def _start(**given: Any) -> Started:
    asked: dict[str, Any] = {"actor": ANN, "agent": "greeter", **given}
    return start_run(**asked)


def test_a_started_run_is_ready_due_now_and_journaled(agent: Agent) -> None:
    run = _start(objective="greet", input={"name": "ann"}, labels={"team": "a"}).run
    assert (run.state, run.version, run.fence_token, run.step_number) == ("READY", 1, 0, 0)
    assert (run.objective, run.input, run.labels) == ("greet", {"name": "ann"}, {"team": "a"})
    assert (run.created_by, run.agent_version) == ("ann", agent.version)
    assert ask("SELECT wake_at <= now() AND sweep_at <= now() FROM runs_agentrun")
    row = Transition.objects.get(run=run)
    assert (row.event, row.from_state, row.to_state, row.version, row.actor) == (
        "CREATE",
        "",
        "READY",
        1,
        "ann",
    )
    drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, {"name": "ann"})


def test_a_run_and_its_journal_row_come_together_or_not_at_all() -> None:
    _start_and_roll_back()
    assert _count() == (0, 0)


@pytest.mark.parametrize("value", [{}, [], [1, {"a": None}], "text", 7, 1.5, True, None])
def test_any_json_may_be_the_input(value: Any) -> None:
    assert _start(input=value).run.input == ({} if value is None else value)


# -- One run per key ----------------------------------------------------------------------------


def test_the_same_request_under_one_key_is_one_run() -> None:
    first = _start(input={"a": 1, "b": 2}, idempotency_key="k")
    again = _start(input={"b": 2, "a": 1}, idempotency_key="k")
    assert (first.replayed, again.replayed) == (False, True)
    assert again.run.id == first.run.id
    assert _count() == (1, 1)


def test_a_replay_shows_the_run_as_it_stands_now() -> None:
    first = _start(idempotency_key="k")
    drive(first.run)
    assert _start(idempotency_key="k").run.state == RunState.COMPLETED


@pytest.mark.parametrize(
    "other", [{"input": {"x": 2}}, {"objective": "other"}, {"labels": {"a": "b"}}]
)
def test_another_request_under_the_same_key_is_refused(other: dict[str, Any]) -> None:
    first = _start(input={"x": 1}, idempotency_key="k")
    with pytest.raises(KeyReused) as refused:
        _start(**{"input": {"x": 1}, "idempotency_key": "k"} | other)
    assert refused.value.run_id == str(first.run.id)
    assert _count() == (1, 1)


def test_another_agent_under_the_same_key_is_refused() -> None:
    Agent(name="other", decider=lambda context: Finish(1))
    _start(idempotency_key="k")
    with pytest.raises(KeyReused):
        _start(agent="other", idempotency_key="k")


def test_a_key_belongs_to_who_uses_it() -> None:
    bob = Actor(name="bob", scopes=ANN.scopes)
    ids = {_start(actor=actor, idempotency_key="k").run.id for actor in (ANN, bob)}
    assert len(ids) == 2


def test_requests_without_a_key_are_runs_of_their_own() -> None:
    assert _start().run.id != _start().run.id


def test_fifty_requests_at_once_under_one_key_are_one_run() -> None:
    together = threading.Barrier(50)
    started: list[Started] = []
    failed: list[Exception] = []

    def request() -> None:
        together.wait(timeout=20)
        try:
            started.append(_start(input=[1], idempotency_key="k"))
        except Exception as error:
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=request) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len({one.run.id for one in started}) == 1
    assert [one.replayed for one in started].count(False) == 1
    assert _count() == (1, 1)


def test_a_key_whose_first_request_is_still_being_written_is_in_use() -> None:
    row = _start(idempotency_key="k").run
    columns = ask(
        "SELECT string_agg(quote_ident(column_name), ',') FROM information_schema.columns"
        " WHERE table_name = 'runs_agentrun' AND column_name NOT IN ('id', 'idempotency_key')"
    )
    with another_connection(autocommit=False) as other:
        other.execute(
            f"INSERT INTO runs_agentrun (id, idempotency_key, {columns})"
            f" SELECT gen_random_uuid(), 'k2', {columns} FROM runs_agentrun WHERE id = %s",
            [row.id],
        )
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '100ms'")
        with pytest.raises(KeyInUse, match="still in flight"):
            _start(idempotency_key="k2")
        other.rollback()
    assert not _start(idempotency_key="k2").replayed


# -- Requests that cannot be --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"input": {"x": "a\0b"}}, "input.x"),
        ({"input": {"x": "\ud800"}}, "input.x"),
        ({"input": float("nan")}, "input"),
        ({"input": [float("inf")]}, "input[0]"),
        ({"input": {1: 2}}, "input"),
        ({"input": {"x": 2**60}}, "input.x"),
        ({"input": "x" * 300_000}, "input"),
        ({"input": object()}, "input"),
        ({"objective": "a\0b"}, "objective"),
        ({"objective": "x" * 300_000}, "objective"),
        ({"labels": {"a": 1}}, "labels.a"),
        ({"labels": {"": "x"}}, "labels."),
        ({"labels": {"a": "x" * 101}}, "labels.a"),
        ({"labels": {str(n): "x" for n in range(MAX_LABELS + 1)}}, "labels"),
        ({"labels": ["a"]}, "labels"),
        ({"idempotency_key": ""}, "Idempotency-Key"),
        ({"idempotency_key": "k" * 256}, "Idempotency-Key"),
        ({"idempotency_key": "k\0"}, "Idempotency-Key"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_field_and_leaves_no_trace(
    given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        _start(**given)
    assert refused.value.field == field
    assert refused.value.fix
    assert len(str(refused.value)) < 1000
    assert _count() == (0, 0)


def test_deep_nesting_is_refused() -> None:
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    with pytest.raises(InvalidInput, match="nest"):
        _start(input=deep)


def test_an_unknown_agent_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownAgent, match="Did you mean 'greeter'"):
        _start(agent="greter")
    assert _count() == (0, 0)


def test_an_actor_without_the_scope_starts_nothing() -> None:
    with pytest.raises(NotPermitted, match="runs:write"):
        _start(actor=Actor(name="reader", scopes=frozenset({"read"})))
    assert _count() == (0, 0)


def test_the_command_line_may_start_runs() -> None:
    assert _start(actor=operator()).run.created_by == "command line"


# -- The hint -----------------------------------------------------------------------------------


def test_the_hint_leaves_after_the_commit_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def look(run_id: Any, **_: Any) -> bool:
        with another_connection() as other:
            row = other.execute("SELECT count(*) FROM runs_agentrun").fetchone()
        seen.append((run_id, row and row[0]))
        return True

    monkeypatch.setattr(wake, "hint", look)
    run = _start().run
    assert seen == [(run.id, 1)]
    _start_and_roll_back()
    assert len(seen) == 1


def test_a_broker_that_is_away_does_not_fail_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CELERY_BROKER_URL", raising=False)  # Celery prefers it to what it is told
    app = celery.Celery(broker="redis://127.0.0.1:1/0", set_as_current=False)
    app.conf.broker_transport_options = {"max_retries": 0}
    monkeypatch.setattr(celery, "current_app", app)
    with listening() as heard:
        run = _start().run
    assert [event.name for event in heard] == [events.Name.HINT_LOST]
    assert AgentRun.objects.get(id=run.id).state == RunState.READY
    assert ask("SELECT sweep_at <= now() FROM runs_agentrun")


def _start_and_roll_back() -> None:
    with transaction.atomic():
        _start()
        transaction.set_rollback(True)


def _count() -> tuple[int, int]:
    return AgentRun.objects.count(), Transition.objects.count()

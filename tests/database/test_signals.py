"""Signals: kept before anybody looks for them, once per event id, in the order they were kept."""

import threading
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now

from runs import Context, Decision, Finish, WaitFor, signals
from runs.commands import Signalled, signal_run
from runs.errors import (
    EventReused,
    InvalidInput,
    NotPermitted,
    TooManySignals,
    UnknownRun,
    WrongState,
)
from runs.lease import claim
from runs.models import AgentRun, Signal
from tests.database.controlling import ANN, READER, as_it_stands, finish, waiting
from tests.database.gating import Start
from tests.database.kit import ON_DATABASE, another_connection, ask, change, drive

pytestmark = ON_DATABASE

NOBODY = "01900000-0000-7000-8000-000000000000"


def _send(run: AgentRun, event_id: str = "e1", **given: Any) -> Signalled:
    asked: dict[str, Any] = {"name": "paid", "payload": {"order": 17}, **given}
    return signal_run(actor=ANN, run_id=run.id, event_id=event_id, **asked)


def test_a_signal_is_kept_with_who_sent_it(start: Start) -> None:
    run = start(decider=finish)
    sent = _send(run)
    row = Signal.objects.get()
    assert (sent.signal.pk, sent.replayed) == (row.pk, False)
    assert (row.name, row.event_id, row.payload, row.sent_by) == (
        "paid",
        "e1",
        {"order": 17},
        "ann",
    )
    assert (row.delivered_at, row.delivered_step) == (None, None)


def test_the_same_event_again_is_the_same_signal(start: Start) -> None:
    run = start(decider=finish)
    first, again = _send(run), _send(run, payload={"order": 17})
    assert again.replayed
    assert again.signal.pk == first.signal.pk
    assert Signal.objects.count() == 1


@pytest.mark.parametrize("other", [{"name": "sent"}, {"payload": {"order": 18}}, {"payload": None}])
def test_the_same_event_with_other_content_is_refused(start: Start, other: dict[str, Any]) -> None:
    run = start(decider=finish)
    _send(run)
    with pytest.raises(EventReused):
        _send(run, **other)
    assert Signal.objects.get().payload == {"order": 17}


def test_an_event_id_belongs_to_its_run(start: Start) -> None:
    one, other = start(decider=finish), start(decider=finish)
    assert not _send(one).replayed
    assert not _send(other, name="other").replayed


def test_a_run_that_ended_takes_no_signal_but_knows_those_it_had(start: Start) -> None:
    run = start(decider=finish)
    _send(run)
    drive(run)
    assert run.state == "COMPLETED"
    assert _send(run).replayed
    with pytest.raises(WrongState, match="signal"):
        _send(run, "e2")
    assert Signal.objects.count() == 1


@pytest.mark.parametrize("state", ["waiting", "held"])
def test_a_run_that_may_be_waiting_is_due_at_once(start: Start, state: str) -> None:
    run = waiting(start) if state == "waiting" else start(decider=finish)
    if state == "held":
        assert claim(run_id=run.id, owner="worker 1") is not None
        change("UPDATE runs_agentrun SET wake_at = now() + interval '1 h', sweep_at = wake_at")
    _send(run)
    assert ask("SELECT wake_at <= now() AND sweep_at <= now() FROM runs_agentrun")


def test_a_run_that_waits_for_something_else_is_left_alone(start: Start) -> None:
    run = start(decider=finish)
    change("UPDATE runs_agentrun SET wake_at = now() + interval '1 h', sweep_at = wake_at")
    before = as_it_stands(run)
    _send(run)
    assert as_it_stands(run) == before


def test_a_replay_makes_nothing_due(start: Start) -> None:
    run = waiting(start)
    _send(run)
    AgentRun.objects.filter(id=run.id).update(wake_at=None, sweep_at=None)
    _send(run)
    assert ask("SELECT wake_at FROM runs_agentrun") is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"name": 7}, "name"),
        ({"event_id": ""}, "event_id"),
        ({"event_id": "x" * 256}, "event_id"),
        ({"event_id": "\ud800"}, "event_id"),
        ({"payload": {"x": float("nan")}}, "payload.x"),
        ({"payload": "x" * 300_000}, "payload"),
        ({"payload": {"x": "a\0"}}, "payload.x"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_field(
    start: Start, given: dict[str, Any], field: str
) -> None:
    run = start(decider=finish)
    with pytest.raises(InvalidInput) as refused:
        _send(run, **given)
    assert refused.value.field == field
    assert not Signal.objects.exists()


def test_nobody_signals_without_the_scope_or_a_run_that_is_not_there(start: Start) -> None:
    run = start(decider=finish)
    with pytest.raises(NotPermitted):
        signal_run(actor=READER, run_id=run.id, name="paid", event_id="e1")
    run.id = NOBODY  # type: ignore[assignment]
    with pytest.raises(UnknownRun):
        _send(run)
    assert not Signal.objects.exists()


def test_a_run_that_takes_none_is_sent_no_more_than_the_cap(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "MOST_UNDELIVERED", 3)
    run = start(decider=finish)
    for n in range(3):
        _send(run, f"e{n}")
    with pytest.raises(TooManySignals, match="3 signals"):
        _send(run, "e3")
    assert _send(run, "e2").replayed
    Signal.objects.filter(event_id="e0").update(delivered_at=Now())
    assert not _send(run, "e3").replayed


# -- At the same time ---------------------------------------------------------------------------


def test_fifty_at_once_lose_none_and_stand_in_the_order_of_their_commits(start: Start) -> None:
    run = waiting(start)
    _all_at_once(lambda n: _send(run, f"e{n}", payload=n), 50)
    rows = list(Signal.objects.order_by("id").values_list("id", "sent_at"))
    assert len(rows) == 50
    assert [at for _, at in rows] == sorted(at for _, at in rows)


def test_an_event_that_is_sent_twice_at_once_is_one_signal(start: Start) -> None:
    run = waiting(start)
    sent = _all_at_once(lambda n: _send(run, "e1"), 10)
    assert [one.replayed for one in sent].count(False) == 1
    assert Signal.objects.count() == 1


def test_a_later_signal_waits_for_the_commit_of_the_one_before(start: Start) -> None:
    run = waiting(start)
    with another_connection(autocommit=False) as other:
        other.execute("SELECT 1 FROM runs_agentrun WHERE id = %s FOR NO KEY UPDATE", [run.id])
        change("SET lock_timeout = '100ms'")
        with pytest.raises(Exception, match="lock timeout"):
            _send(run)
        other.rollback()
    assert not Signal.objects.exists()
    assert not _send(run).replayed


def _all_at_once(send: Any, number: int) -> list[Signalled]:
    together = threading.Barrier(number)
    sent: list[Signalled] = []
    wrong: list[Exception] = []

    def request(n: int) -> None:
        together.wait(timeout=30)
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '30s'")
            sent.append(send(n))
        except Exception as error:
            wrong.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=request, args=(n,)) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    return sent


# -- What the worker then does ------------------------------------------------------------------


def _take(number: int) -> Any:
    def decide(context: Context) -> Decision:
        got = [one.payload for one in context.signals]
        return Finish(got) if len(got) == number else WaitFor("paid")

    return decide


def test_a_signal_wakes_the_run_that_waits_for_it(start: Start) -> None:
    run = start(decider=_take(1))
    drive(run)
    assert run.state == "WAITING"
    signal = _send(run).signal
    drive(run)
    assert (run.state, run.result) == ("COMPLETED", [{"order": 17}])
    signal.refresh_from_db()
    assert (signal.delivered_at is not None, signal.delivered_step) == (True, 1)


def test_a_signal_that_came_before_the_wait_is_delivered_too(start: Start) -> None:
    run = start(decider=_take(1))
    _send(run)
    drive(run)
    assert (run.state, run.result) == ("COMPLETED", [{"order": 17}])


def test_signals_are_delivered_in_their_order_and_each_once(start: Start) -> None:
    run = start(decider=_take(3))
    for n in range(3):
        _send(run, f"e{n}", payload=n)
    _send(run, "e1", payload=1)
    drive(run)
    assert (run.state, run.result) == ("COMPLETED", [0, 1, 2])


def test_a_signal_of_another_name_wakes_nobody(start: Start) -> None:
    run = start(decider=_take(1))
    drive(run)
    _send(run, name="other")
    drive(run)
    assert run.state == "WAITING"
    assert Signal.objects.get().delivered_at is None

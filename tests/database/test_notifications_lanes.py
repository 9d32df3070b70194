"""Crashes, races and lanes: sent at least once, and nobody waits for a receiver that is down."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agentops.models import Delivery
from agentops.notifications import handing_on, sending, webhooks
from agentops.notifications.sending import Swept
from runs.models import AgentRun
from tests.database.admin_pages import define_tools, finished_run
from tests.database.kit import ask, change
from tests.database.notifying import (
    NOBODY,
    ON_TABLES,
    Kind,
    Receiver,
    eventually,
    forget_notices,
    hanging,
    make_due,
    notice_of,
    scans,
    sweep_in_background,
    the_delivery,
    turn_on_mail,
    turn_on_webhooks,
)

pytestmark = ON_TABLES

Start = Callable[..., AgentRun]
Status = Delivery.Status


OPEN_TRANSACTIONS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND xact_start IS NOT NULL AND backend_type = 'client backend'
"""


@pytest.fixture(autouse=True)
def _calls_may_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that hangs ends when the test says so."""
    monkeypatch.setattr(webhooks, "CALL_SECONDS", 60.0)


@pytest.fixture
def run(start: Start) -> AgentRun:
    define_tools()
    run = finished_run(start)
    forget_notices()
    return run


# -- Crashes and races ---------------------------------------------------------------------------


class Died(BaseException):
    """The process ends here."""


def test_a_crash_between_sending_and_recording_sends_again_under_the_same_id(
    run: AgentRun, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise Died

    with Receiver() as receiver:
        turn_on_webhooks(settings, receiver.url)
        notice_of(run, Kind.RUN_FINISHED)
        with monkeypatch.context() as patch:
            patch.setattr(sending, "_record", die)
            with pytest.raises(Died):
                sending.run_once()
        assert sending.run_once() == Swept(), "somebody may still be sending it"
        make_due()
        assert sending.run_once() == Swept(sent=1)
    assert len(receiver.ids) == 2
    assert len(set(receiver.ids)) == 1
    assert the_delivery().attempts == 2


def test_two_sweeps_at_one_time_send_once(run: AgentRun, settings: Settings) -> None:
    with Receiver() as receiver:
        turn_on_webhooks(settings, receiver.url)
        for _ in range(6):
            notice_of(run, Kind.RUN_PAUSED)
        together = threading.Barrier(4)
        swept: list[Swept] = []

        def sweep() -> None:
            try:
                connection.ensure_connection()
                together.wait(timeout=30)
                swept.append(sending.run_once())
            finally:
                connection.close()

        threads = [threading.Thread(target=sweep) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sending.run_once()
    assert len(receiver.ids) == len(set(receiver.ids)) == 6
    assert set(Delivery.objects.values_list("attempts", flat=True)) == {1}


def test_one_call_at_a_time_goes_to_a_receiver_whoever_sweeps(
    run: AgentRun, settings: Settings
) -> None:
    with hanging() as (receiver, called, go_on):
        turn_on_webhooks(settings, receiver.url)
        notice_of(run, Kind.RUN_PAUSED)
        notice_of(run, Kind.RUN_PAUSED)
        first = sweep_in_background()
        assert called.wait(timeout=30)
        assert sending.run_once() == Swept()
        assert len(receiver.received) == 1
        go_on.set()
        first.join(timeout=30)
        assert len(receiver.received) == 2


def test_a_sender_that_comes_back_late_overwrites_nothing(
    run: AgentRun, settings: Settings
) -> None:
    with hanging() as (receiver, called, go_on), Receiver(lambda number: 410) as second:
        turn_on_webhooks(settings, receiver.url)
        notice_of(run, Kind.RUN_PAUSED)
        first = sweep_in_background()
        assert called.wait(timeout=30)
        make_due()
        change("UPDATE agentops_delivery SET address = %s", second.url)
        turn_on_webhooks(settings, second.url)
        assert sending.run_once() == Swept(failed=1)
        go_on.set()
        first.join(timeout=30)
        assert the_delivery().status == Status.FAILED
        assert the_delivery().attempts == 2


def test_no_transaction_is_open_while_a_call_is_out(run: AgentRun, settings: Settings) -> None:
    with hanging() as (receiver, called, go_on):
        turn_on_webhooks(settings, receiver.url)
        notice_of(run, Kind.RUN_PAUSED)
        sweep = sweep_in_background()
        assert called.wait(timeout=30)
        # Others are over soon. Ours would last as long as the call, or until the database ends it.
        eventually(lambda: ask(OPEN_TRANSACTIONS) == 0, seconds=10)
        go_on.set()
        sweep.join(timeout=30)


def test_no_connection_is_held_while_a_call_is_out(run: AgentRun, settings: Settings) -> None:
    with hanging() as (receiver, called, go_on):
        turn_on_webhooks(settings, receiver.url)
        notice_of(run, Kind.RUN_PAUSED)
        connection.close()
        # What threads of earlier tests have not given back is none of the sweep's.
        before = connections_in_use()
        sweep = sweep_in_background()
        assert called.wait(timeout=30)
        eventually(lambda: connections_in_use() <= before)
        go_on.set()
        sweep.join(timeout=30)


def connections_in_use() -> int:
    pool = connection.pool.get_stats()  # type: ignore[attr-defined]
    return int(pool["pool_size"] - pool["pool_available"])


# -- Lanes --------------------------------------------------------------------------------------


def test_a_receiver_that_is_down_is_tried_once_per_sweep(run: AgentRun, settings: Settings) -> None:
    with Receiver(lambda number: 503) as receiver:
        turn_on_webhooks(settings, receiver.url)
        for _ in range(3):
            notice_of(run, Kind.RUN_PAUSED)
        assert sending.run_once() == Swept(handed_on=3, to_be_tried_again=1)
        assert len(receiver.received) == 1
        receiver.answer = lambda number: 204
        assert sending.run_once() == Swept(sent=2)


def test_one_event_that_a_receiver_refuses_does_not_stop_the_others(
    run: AgentRun, settings: Settings
) -> None:
    with Receiver(lambda number: 400 if number == 1 else 200) as receiver:
        turn_on_webhooks(settings, receiver.url)
        for _ in range(3):
            notice_of(run, Kind.RUN_PAUSED)
        assert sending.run_once() == Swept(handed_on=3, sent=2, to_be_tried_again=1)


def test_a_lane_ends_when_its_time_is_over(
    run: AgentRun, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "LANE_SECONDS", 0.0)
    with Receiver() as receiver:
        turn_on_webhooks(settings, receiver.url)
        for _ in range(3):
            notice_of(run, Kind.RUN_PAUSED)
        assert sending.run_once() == Swept(handed_on=3, sent=1)


def test_what_goes_to_a_receiver_that_was_taken_out_waits(
    run: AgentRun, settings: Settings
) -> None:
    with Receiver() as receiver:
        turn_on_webhooks(settings, receiver.url)
        notice_of(run, Kind.RUN_PAUSED)
        handing_on.run_once()
        turn_on_webhooks(settings)
        assert sending.run_once() == Swept()
        assert the_delivery().attempts == 0
        turn_on_webhooks(settings, receiver.url)
        assert sending.run_once() == Swept(sent=1)


def test_sweeping_scans_no_table(run: AgentRun, settings: Settings) -> None:
    turn_on_mail(settings)
    turn_on_webhooks(settings, NOBODY)
    with CaptureQueriesContext(connection) as captured:
        sending.run_once()
    assert scans(captured) == []
    assert sum("UPDATE agentops_delivery" in one["sql"] for one in captured) == 2

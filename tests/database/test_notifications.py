"""Handing on: each notice reaches everybody who is to hear of it, once, and nobody else."""

import threading
from collections.abc import Callable

import pytest
from django.db import IntegrityError, connection, transaction
from pytest_django import Settings

from agentops.models import Delivery
from agentops.notifications import handing_on
from agentops.notifications.handing_on import HandedOn
from runs.models import AgentRun, Notice, Sweep
from tests.database.admin_pages import define_tools, finished_run
from tests.database.kit import another_connection, change
from tests.database.notifying import (
    ON_TABLES,
    Kind,
    approval_of,
    asked,
    forget_notices,
    notice_of,
    turn_on_webhooks,
)

pytestmark = ON_TABLES

Start = Callable[..., AgentRun]
EMAIL, WEBHOOK = Delivery.Channel.EMAIL, Delivery.Channel.WEBHOOK
ONE, TWO = "https://one.example/hook", "https://two.example/hook"


@pytest.fixture
def run(start: Start) -> AgentRun:
    """A run with a payment."""
    define_tools()
    run = finished_run(start)
    forget_notices()
    return run


# -- The outbox ---------------------------------------------------------------------------------


def test_every_kind_goes_to_every_webhook(run: AgentRun, settings: Settings) -> None:
    turn_on_webhooks(settings, ONE, TWO)
    approval = approval_of(run)
    for kind in Kind:
        notice_of(run, kind, approval=approval)
    assert handing_on.run_once().notices == len(Kind)
    rows = Delivery.objects.filter(channel=WEBHOOK).values_list("notice__kind", "address")
    assert sorted(rows) == sorted((kind.value, url) for kind in Kind for url in (ONE, TWO))


def test_a_notice_is_handed_on_once(run: AgentRun, settings: Settings) -> None:
    turn_on_webhooks(settings, ONE)
    notice_of(run, Kind.RUN_FINISHED)
    assert handing_on.run_once() == HandedOn(notices=1, deliveries=1)
    assert handing_on.run_once() == HandedOn(notices=0, deliveries=0)
    assert Delivery.objects.count() == 1


def test_a_notice_stays_in_the_outbox_until_all_its_deliveries_are_there(
    run: AgentRun, settings: Settings
) -> None:
    turn_on_webhooks(settings, ONE)
    notice_of(run, Kind.RUN_FINISHED)
    change("ALTER TABLE agentops_delivery ADD CONSTRAINT breaks CHECK (address = '')")
    try:
        with pytest.raises(IntegrityError):
            handing_on.run_once()
        assert Notice.objects.filter(handed_on_at__isnull=True).count() == 1
    finally:
        change("ALTER TABLE agentops_delivery DROP CONSTRAINT breaks")
    assert handing_on.run_once() == HandedOn(notices=1, deliveries=1)


def test_with_nothing_turned_on_a_notice_is_told_to_nobody_and_does_not_pile_up(
    run: AgentRun, settings: Settings
) -> None:
    settings.AGENTOPS_EMAIL_HOST = ""
    notice_of(run, Kind.RUN_PAUSED)
    assert handing_on.run_once() == HandedOn(notices=1, deliveries=0)
    turn_on_webhooks(settings, ONE)
    assert handing_on.run_once() == HandedOn(notices=0, deliveries=0)


def test_two_sweeps_at_one_time_hand_each_notice_on_once(run: AgentRun, settings: Settings) -> None:
    turn_on_webhooks(settings, ONE)
    for _ in range(5):
        notice_of(run, Kind.RUN_PAUSED)
    together = threading.Barrier(3)
    done: list[HandedOn] = []

    def hand_on() -> None:
        try:
            connection.ensure_connection()
            together.wait(timeout=10)
            done.append(handing_on.run_once())
        finally:
            connection.close()

    threads = [threading.Thread(target=hand_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one.notices for one in done) == 5
    assert Delivery.objects.count() == 5


def test_a_sweep_does_not_wait_for_another_one_nor_for_a_locked_notice(
    run: AgentRun, settings: Settings
) -> None:
    turn_on_webhooks(settings, ONE)
    first, _ = notice_of(run, Kind.RUN_PAUSED), notice_of(run, Kind.RUN_PAUSED)
    with another_connection(autocommit=False) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [handing_on._LOCK])
        assert handing_on.run_once().notices == 0
        other.rollback()
        other.execute("SELECT 1 FROM runs_notice WHERE id = %s FOR UPDATE", [first.pk])
        assert handing_on.run_once().notices == 1
        other.rollback()
    assert handing_on.run_once().notices == 1


def test_no_more_than_a_batch_oldest_first(
    run: AgentRun, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_on_webhooks(settings, ONE)
    monkeypatch.setattr(handing_on, "BATCH", 2)
    notices = [notice_of(run, Kind.RUN_PAUSED) for _ in range(3)]
    assert handing_on.run_once().notices == 2
    assert list(Notice.objects.filter(handed_on_at=None)) == notices[2:]
    assert Sweep.objects.get(name=handing_on.SWEEP).found == 2


def test_one_delivery_per_address_by_the_database_too(run: AgentRun, settings: Settings) -> None:
    turn_on_webhooks(settings, ONE)
    notice = notice_of(run, Kind.RUN_FINISHED)
    handing_on.run_once()
    change("UPDATE runs_notice SET handed_on_at = NULL WHERE id = %s", notice.pk)
    handing_on.run_once()
    assert Delivery.objects.count() == 1


def test_a_purged_run_takes_its_notices_along(run: AgentRun, settings: Settings) -> None:
    """By plain statements of the kernel's own tables, which know nothing of deliveries."""
    turn_on_webhooks(settings, ONE)
    asked(run)
    handing_on.run_once()
    steps = "SELECT id FROM runs_step WHERE run_id = %s"
    with transaction.atomic():
        change("DELETE FROM runs_agentrun WHERE id = %s", run.id)
        for table in ("transition", "toolobservation", "checkpoint", "modeldecision"):
            change(f"DELETE FROM runs_{table} WHERE run_id = %s", run.id)
        for table in ("llmrequest", "handoff", "incident", "notice", "approval", "tooloperation"):
            change(f"DELETE FROM runs_{table} WHERE run_id = %s", run.id)
        change(f"DELETE FROM runs_stepattempt WHERE step_id IN ({steps})", run.id)
        change("DELETE FROM runs_step WHERE run_id = %s", run.id)
    assert not Delivery.objects.exists()

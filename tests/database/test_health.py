"""Alive and ready."""

from datetime import timedelta
from typing import Any

import celery
import pytest
from django.conf import LazySettings
from django.db.models.functions import Now
from django.test import Client
from kombu import Connection

from agentops.sweeping import SWEEPS
from approvals import sweeps as approval_sweeps
from runs import schedules, sweeps
from runs.models import Sweep


def parts() -> tuple[int, dict[str, Any]]:
    answer = Client().get("/readyz")
    return answer.status_code, answer.json()["parts"]


@pytest.fixture
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> Connection:
        return Connection("redis://127.0.0.1:1/0", transport_options={"socket_timeout": 1})

    monkeypatch.setattr(celery.current_app, "connection_for_write", unreachable)


def test_alive_asks_no_database() -> None:
    # No database mark: a query would fail this test.
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})
    assert "no-store" in answer["Cache-Control"]


@pytest.mark.parametrize("address", ["/healthz", "/readyz"])
def test_only_reading_is_possible(address: str) -> None:
    assert Client().post(address).status_code == 405


@pytest.mark.django_db(transaction=True)
def test_ready_with_database_broker_and_a_fresh_sweep() -> None:
    sweeps.run_once()
    approval_sweeps.run_once()
    schedules.run_once()
    answer = Client().get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ready"
    assert {name: part["ok"] for name, part in answer.json()["parts"].items()} == {
        "database": True,
        "broker": True,
        "sweeps": True,
        "versions": True,
    }


@pytest.mark.django_db
def test_not_ready_before_the_first_sweep() -> None:
    status, found = parts()
    assert status == 503
    assert found["database"]["ok"]
    assert not found["sweeps"]["ok"]
    assert "beat" in found["sweeps"]["detail"]


@pytest.fixture
def all_fresh() -> None:
    for name in SWEEPS:
        Sweep.objects.create(name=name)


@pytest.mark.django_db
@pytest.mark.parametrize("stale", ["due runs", "approvals", "schedules"])
@pytest.mark.parametrize(
    ("every", "age", "fresh"), [(1, 5, True), (1, 11, False), (6, 59, True), (6, 61, False)]
)
def test_a_sweep_is_fresh_for_ten_periods_and_ten_seconds_at_least(
    settings: LazySettings, every: float, age: float, fresh: bool, stale: str
) -> None:
    period = {"schedule": timedelta(seconds=every)}
    schedule = {name: one | period for name, one in settings.CELERY_BEAT_SCHEDULE.items()}
    settings.CELERY_BEAT_SCHEDULE = schedule
    for name in SWEEPS:
        seconds = age if name == stale else 0
        Sweep.objects.create(name=name, last_run_at=Now() - timedelta(seconds=seconds))
    status, found = parts()
    assert found["sweeps"]["ok"] is fresh
    assert status == (200 if fresh else 503)


@pytest.mark.django_db
def test_a_late_sweep_that_runs_go_on_without_is_told_and_leaves_it_ready(all_fresh: None) -> None:
    assert "late" not in parts()[1]["sweeps"]["detail"]
    for name in ("rollups", "unsigned effects"):
        Sweep.objects.create(name=name, last_run_at=Now() - timedelta(hours=4))
    status, found = parts()
    assert (status, found["sweeps"]["ok"]) == (200, True)
    assert "late: 2 of the others" in found["sweeps"]["detail"]


@pytest.mark.django_db(transaction=True)
def test_not_ready_without_the_broker(no_broker: None) -> None:
    sweeps.run_once()
    approval_sweeps.run_once()
    schedules.run_once()
    status, found = parts()
    assert status == 503
    assert not found["broker"]["ok"]
    assert "127.0.0.1" not in found["broker"]["detail"]
    assert found["sweeps"]["ok"]


def test_not_ready_without_the_database() -> None:
    # No database mark: every query fails, as with a server that is away.
    status, found = parts()
    assert status == 503
    assert not found["database"]["ok"]
    assert not found["sweeps"]["ok"]

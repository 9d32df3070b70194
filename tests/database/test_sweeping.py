"""Every sweep is late by its own period, and `doctor` names it and what it is a task of."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.db.models.functions import Now

from agentops.management.commands import doctor
from agentops.sweeping import SWEEPS, read_standings
from runs.models import Sweep
from tests.database.auditing import Listing, paying

pytestmark = pytest.mark.django_db

# In seconds; the periods are 2 and 30 seconds, and an hour.
ALLOWED = {"notifications": 20, "rollups": 90, "unsigned effects": 10_800}


def ran(name: str, ago: timedelta = timedelta()) -> None:
    Sweep.objects.update_or_create(name=name, defaults={"last_run_at": Now() - ago})


@pytest.fixture(autouse=True)
def all_fresh() -> None:
    for name in SWEEPS:
        ran(name)


def late() -> list[str]:
    return [one.name for one in read_standings() if one.is_late]


def test_beat_asks_for_every_sweep_there_is() -> None:
    assert {one.name for one in read_standings()} == {*SWEEPS, *ALLOWED}
    paying(Listing())
    tasks = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    # What purges keys leaves no row.
    assert {one.task for one in read_standings()} == tasks - {"tools.purge_keys"}


@pytest.mark.parametrize(("name", "seconds"), ALLOWED.items())
def test_a_sweep_is_late_by_its_own_period(name: str, seconds: int) -> None:
    ran(name, timedelta(seconds=seconds - 5))
    assert late() == []
    ran(name, timedelta(seconds=seconds + 5))
    assert late() == [name]


def test_the_audits_of_a_tool_are_a_sweep_of_their_own() -> None:
    ran("audit pay", timedelta(hours=4))
    assert late() == []
    paying(Listing())
    assert late() == ["audit pay"]


def test_doctor_names_the_late_sweep_and_the_task_that_fails() -> None:
    assert doctor._sweeps().level == "ok"
    ran("rollups", timedelta(hours=3))
    finding = doctor._sweeps()
    assert (finding.level, "rollups 10800 s ago" in finding.detail) == ("error", True)
    assert "runs.roll_up" in finding.fix
    Sweep.objects.filter(name="approvals").delete()
    assert "approvals not yet" in doctor._sweeps().detail
    assert "manage.py up" in doctor._sweeps().fix

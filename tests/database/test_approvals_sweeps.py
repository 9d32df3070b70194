"""Approvals whose dates have come: run out, reminded of, escalated; each once."""

from datetime import timedelta

import pytest
from django.conf import settings
from django.db.models.functions import Now

from approvals import sweeps
from approvals.commands import read_missing
from approvals.sweeps import Swept
from approvals.tasks import sweep_approvals
from runs.models import AgentRun, Approval, Notice, Sweep
from tests.database.approving import Start, asked, let_run_out, person, say

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)


def notices(approval: Approval) -> list[tuple[str, str, str]]:
    found = Notice.objects.filter(run=approval.run_id).order_by("id")
    return [(one.kind, one.event_id, one.status) for one in found]


def test_what_nobody_decided_expires_and_is_neither_approved_nor_refused(start: Start) -> None:
    approval = asked(start)
    say_pending = say(asked(start, quorum=2), person(), "approve")
    AgentRun.objects.filter(id=approval.run_id).update(wake_at=None, sweep_at=None)
    let_run_out(approval)
    assert sweeps.run_once() == Swept(expired=1)
    approval.refresh_from_db()
    assert (approval.status, approval.decided_by) == ("expired", "")
    assert approval.decided_at is not None
    assert (approval.execute_by, approval.reason) == (None, "nobody decided in time")
    assert not approval.verdicts.exists()
    assert notices(approval) == [
        ("approval.decided", f"approval.decided:{approval.id}", "expired"),
    ]
    assert AgentRun.objects.filter(id=approval.run_id, wake_at__lte=Now(), sweep_at__lte=Now())
    say_pending.refresh_from_db()
    assert say_pending.status == "pending"


def test_half_the_signatures_do_not_keep_it_from_running_out(start: Start) -> None:
    approval = asked(start, quorum=2)
    say(approval, person())
    let_run_out(approval)
    assert sweeps.run_once() == Swept(expired=1)
    approval.refresh_from_db()
    assert (approval.status, approval.decided_by) == ("expired", "")


def test_nothing_is_due_before_its_date(start: Start) -> None:
    soon = Now() + timedelta(minutes=1)
    approval = asked(start, approve_by=soon, remind_at=soon, escalate_at=soon)
    assert sweeps.run_once() == Swept()
    assert notices(approval) == []


@pytest.mark.parametrize("status", ["approved", "denied", "cancelled", "superseded"])
def test_what_is_no_longer_pending_is_left_alone(start: Start, status: str) -> None:
    approval = asked(start, remind_at=Now(), escalate_at=Now())
    columns = {"execute_by": Now()} if status == "approved" else {}
    Approval.objects.filter(id=approval.id).update(status=status, **columns)
    let_run_out(approval)
    assert sweeps.run_once() == Swept()
    approval.refresh_from_db()
    assert approval.status == status


def test_a_reminder_is_told_of_once(start: Start) -> None:
    approval = asked(start, remind_at=Now())
    assert sweeps.run_once() == Swept(reminded=1)
    assert sweeps.run_once() == Swept()
    approval.refresh_from_db()
    assert (approval.status, approval.remind_at) == ("pending", None)
    assert notices(approval) == [
        ("approval.reminder", f"approval.reminder:{approval.id}", "pending"),
    ]


def test_an_escalation_opens_the_door_for_the_second_group(start: Start) -> None:
    approval = asked(start, groups=["finance"], escalate_to=["board"], escalate_at=Now())
    assert sweeps.run_once() == Swept(escalated=1)
    assert sweeps.run_once() == Swept()
    approval.refresh_from_db()
    assert approval.escalated_at is not None
    assert approval.escalate_at is None
    assert str(read_missing(approval)) == "1 of finance"
    assert notices(approval) == [
        ("approval.escalated", f"approval.escalated:{approval.id}", "pending"),
    ]
    assert say(approval, person("kim", "board")).status == "approved"


def test_what_ran_out_is_not_reminded_of_and_goes_to_nobody_else(start: Start) -> None:
    approval = asked(start, remind_at=Now(), escalate_at=Now())
    let_run_out(approval)
    assert sweeps.run_once() == Swept(expired=1)
    assert [kind for kind, _, _ in notices(approval)] == ["approval.decided"]


def test_a_notice_that_is_there_already_is_not_written_twice(start: Start) -> None:
    approval = asked(start, remind_at=Now())
    sweeps.run_once()
    Approval.objects.filter(id=approval.id).update(remind_at=Now())
    sweeps.run_once()
    assert len(notices(approval)) == 1


def test_a_sweep_takes_a_bounded_number_the_oldest_first(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "BATCH", 2)
    requests = [asked(start) for _ in range(3)]
    for approval in requests:
        let_run_out(approval)
    assert sweeps.run_once().expired == 2
    left = Approval.objects.get(status="pending")
    assert left.approve_by == max(approval.approve_by for approval in requests)
    assert sweeps.run_once().expired == 1


def test_the_task_sweeps_and_leaves_a_sign_that_it_did(start: Start) -> None:
    approval = asked(start)
    let_run_out(approval)
    sweep_approvals()
    approval.refresh_from_db()
    assert approval.status == "expired"
    sign = Sweep.objects.get(name="approvals")
    assert sign.found == 1
    sweep_approvals()
    sign.refresh_from_db()
    assert sign.found == 0


def test_beat_sends_the_task() -> None:
    tasks = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert sweep_approvals.name in tasks

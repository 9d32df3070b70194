"""A word on an approval: what it does, once, and what it leaves alone."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Now

from approvals.commands import decide, read_missing
from approvals.errors import (
    AlreadyDecided,
    AlreadySigned,
    AnotherFingerprint,
    EventSeen,
    RanOut,
    Superseded,
    UnknownApproval,
)
from approvals.models import Verdict
from runs.access import operator
from runs.errors import InvalidInput
from runs.models import AgentRun, Approval, Notice
from tests.database.approving import (
    PRINT,
    Start,
    acting,
    ask,
    asked,
    held_run,
    let_run_out,
    person,
    say,
    written,
)
from tests.database.stories import SECRET

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)


# -- What a word does ------------------------------------------------------------------


def test_one_signature_is_enough_where_one_is_asked_for(start: Start) -> None:
    approval = say(asked(start, execute_within=timedelta(minutes=7)), person("robin"))
    assert (approval.status, approval.decided_by) == ("approved", "robin")
    assert approval.decided_at is not None
    assert approval.execute_by == approval.decided_at + timedelta(minutes=7)
    notice = Notice.objects.get(run=approval.run_id)
    assert notice.event_id == f"approval.decided:{approval.id}"
    assert (notice.kind, notice.status) == ("approval.decided", "approved")
    assert (notice.operation_id, notice.approval_id) == (approval.operation_id, approval.id)


def test_a_signature_is_kept_with_what_was_signed_and_how_it_came(start: Start) -> None:
    approval = asked(start, groups=["finance"])
    user = person("robin", "finance", "football")
    say(approval, user, event_id="e1", via="admin", reason="seen")
    signed = Verdict.objects.get()
    assert (signed.user_id, signed.name, signed.verdict) == (user.pk, "robin", "approve")
    assert (signed.fingerprint, signed.event_id, signed.via) == (PRINT, "e1", "admin")
    assert (signed.reason, signed.groups) == ("seen", ["finance"])


def test_one_denial_ends_it_with_its_reason(start: Start) -> None:
    approval = say(asked(start, quorum=3), person("robin"), "deny", reason=" too much \n")
    assert (approval.status, approval.decided_by) == ("denied", "robin")
    assert (approval.reason, approval.execute_by) == ("too much", None)
    assert Notice.objects.get(run=approval.run_id).status == "denied"


def test_a_decided_run_is_due_at_once_however_long_it_waited(start: Start) -> None:
    approval = asked(start)
    AgentRun.objects.filter(id=approval.run_id).update(wake_at=None, sweep_at=None)
    before = AgentRun.objects.get()
    say(approval, person())
    run = AgentRun.objects.filter(wake_at__lte=Now(), sweep_at__lte=Now()).get()
    # Who waits holds nothing, and who decides moves nothing.
    assert (run.lease_owner, run.lease_expires_at) == ("", None)
    assert (run.state, run.version, run.fence_token) == (
        before.state,
        before.version,
        before.fence_token,
    )


def test_a_signature_that_is_not_yet_enough_wakes_nobody_and_says_who_is_missing(
    start: Start,
) -> None:
    approval = asked(start, groups=["finance", "legal"], quorum=3)
    AgentRun.objects.filter(id=approval.run_id).update(wake_at=None, sweep_at=None)
    approval = say(approval, person("robin", "finance"))
    assert (approval.status, approval.decided_at) == ("pending", None)
    assert str(read_missing(approval)) == "1 of legal and 1 other"
    assert AgentRun.objects.get().wake_at is None
    assert not Notice.objects.filter(run=approval.run_id).exists()
    assert say(approval, person("sam", "finance")).status == "pending"
    assert say(approval, person("kim", "legal")).status == "approved"


def test_after_an_escalation_the_second_group_may_stand_for_the_first(start: Start) -> None:
    approval = asked(start, groups=["finance", "legal"], escalate_to=["board"], escalated_at=Now())
    assert say(approval, person("a", "finance")).status == "pending"
    assert say(approval, person("b", "board")).status == "approved"


def test_a_secret_in_a_reason_is_not_stored(start: Start) -> None:
    approval = say(asked(start), person(), "deny", reason=f"card {SECRET} is stolen")
    assert approval.reason == "card [redacted] is stolen"
    assert Verdict.objects.get().reason == "card [redacted] is stolen"


def test_why_it_was_asked_anew_stays_whatever_the_decider_says(start: Start) -> None:
    approval = ask(held_run(start), asked_because="changed: arguments.amount")
    decided = say(approval, person(), reason="seen")
    assert (decided.asked_because, decided.reason) == ("changed: arguments.amount", "seen")


# -- Too late --------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["approve", "deny"])
def test_what_is_decided_stays_decided(start: Start, first: str) -> None:
    approval = asked(start)
    say(approval, person("robin"), first)
    before = written(approval)
    for second in ("approve", "deny"):
        with pytest.raises(AlreadyDecided, match="by robin already"):
            say(approval, person(), second)
    assert written(approval) == before


def test_what_ran_out_cannot_be_signed_though_no_sweep_has_come_by(start: Start) -> None:
    approval = asked(start)
    let_run_out(approval)
    before = written(approval)
    for verdict in ("approve", "deny"):
        with pytest.raises(RanOut, match="undecided"):
            say(approval, person(), verdict)
    assert written(approval) == before
    assert approval.status == "pending"


def test_what_expired_is_told_as_that_and_not_as_a_refusal(start: Start) -> None:
    approval = asked(start)
    Approval.objects.filter(id=approval.id).update(status="expired")
    with pytest.raises(RanOut):
        say(approval, person())


def test_a_superseded_request_names_the_newer_one(start: Start) -> None:
    run = held_run(start)
    old = ask(run)
    new = ask(run, supersedes=old, fingerprint="v1:" + "b" * 64)
    with pytest.raises(Superseded, match=str(new.id)):
        say(old, person())
    assert say(new, person()).status == "approved"


def test_a_cancelled_request_cannot_be_signed(start: Start) -> None:
    approval = asked(start)
    Approval.objects.filter(id=approval.id).update(status="cancelled")
    with pytest.raises(AlreadyDecided, match="cancelled"):
        say(approval, person())


def test_nobody_signs_twice(start: Start) -> None:
    approval, robin = asked(start, quorum=2), person("robin")
    say(approval, robin)
    before = written(approval)
    for again in ("approve", "deny"):
        with pytest.raises(AlreadySigned):
            say(approval, robin, again)
    assert written(approval) == before


def test_a_user_who_was_made_again_is_still_one_person(start: Start) -> None:
    approval, robin = asked(start, quorum=2), person("robin")
    say(approval, robin)
    robin.delete()
    assert Verdict.objects.get().name == "robin"
    with pytest.raises(AlreadySigned):
        say(approval, person("robin"))


def test_one_event_is_heard_once_whoever_sends_it(start: Start) -> None:
    approval = asked(start, quorum=2)
    say(approval, person(), event_id="e1")
    before = written(approval)
    with pytest.raises(EventSeen):
        say(approval, person(), event_id="e1")
    assert written(approval) == before
    assert say(approval, person(), event_id="e2").status == "approved"


def test_an_event_id_means_something_on_one_approval_only(start: Start) -> None:
    run = held_run(start)
    old = ask(run)
    say(old, person(), event_id="e1")
    assert say(ask(run, supersedes=old), person(), event_id="e1").status == "approved"


# -- What does not fit -----------------------------------------------------------------


def test_an_approval_that_does_not_exist_is_said_to_be_unknown() -> None:
    for approval_id in ("", "7", "x" * 500, "a\0b", "0" * 32):
        with pytest.raises(UnknownApproval):
            decide(
                actor=operator(),
                user=person(),
                approval_id=approval_id,
                verdict="approve",
                fingerprint=PRINT,
            )


def test_another_fingerprint_is_another_action(start: Start) -> None:
    approval = asked(start)
    before = written(approval)
    for fingerprint in ("", PRINT.upper(), PRINT[:-1], f"{PRINT} ", "\0"):
        with pytest.raises(AnotherFingerprint):
            say(approval, person(), fingerprint=fingerprint)
    assert written(approval) == before


def test_a_bad_word_is_refused_by_name(start: Start) -> None:
    approval, user = asked(start), person()
    before = written(approval)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"verdict": "aprove"}, "verdict"),
        ({"verdict": "propose"}, "verdict"),
        ({"verdict": "deny", "reason": ""}, "reason"),
        ({"verdict": "deny", "reason": " \n"}, "reason"),
        ({"reason": "a\0b"}, "reason"),
        ({"reason": "\ud800"}, "reason"),
        ({"reason": "x" * 2001}, "reason"),
        ({"event_id": "x" * 256}, "event_id"),
        ({"event_id": "\0"}, "event_id"),
        ({"via": "carrier pigeon"}, "via"),
    ]
    for given, field in bad:
        with pytest.raises(InvalidInput) as caught:
            say(approval, user, **given)
        assert caught.value.field == field, given
    assert written(approval) == before


def test_a_word_and_all_that_follows_from_it_are_one_transaction(start: Start) -> None:
    approval = asked(start)
    before = written(approval)
    with transaction.atomic():
        assert say(approval, person()).status == "approved"
        transaction.set_rollback(True)
    assert written(approval) == before


# -- What the database refuses ---------------------------------------------------------


def test_what_was_signed_cannot_change(start: Start) -> None:
    say(asked(start, quorum=2), person())
    changes: list[dict[str, Any]] = [
        {"verdict": "deny", "reason": "forged"},
        {"name": "sam"},
        {"fingerprint": "v1:" + "b" * 64},
        {"groups": ["board"]},
        {"at": F("at") + timedelta(days=1)},
        {"event_id": "e2"},
        {"via": "api"},
        {"user": person()},
    ]
    for change in changes:
        with pytest.raises(IntegrityError, match="cannot change"):
            Verdict.objects.update(**change)


def test_a_signature_stays_as_long_as_its_run(start: Start) -> None:
    say(asked(start, quorum=2), person())
    with pytest.raises(IntegrityError, match="stay while run"):
        Verdict.objects.all().delete()


def test_the_database_too_keeps_one_word_per_person_and_event(start: Start) -> None:
    approval, robin = asked(start, quorum=2), person()
    say(approval, robin, event_id="e1")
    signed = Verdict.objects.get()
    for change in ({"event_id": "e2"}, {"user": person()}):
        again = Verdict.objects.get(pk=signed.pk)
        again.pk = None
        for name, value in change.items():
            setattr(again, name, value)
        with pytest.raises(IntegrityError, match="verdict_one_per"):
            again.save(force_insert=True)


def test_the_clock_of_the_database_decides_not_ours(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose clock is a year ahead signs as any other."""
    from django.utils import timezone

    later = timezone.now() + timedelta(days=365)
    monkeypatch.setattr("django.utils.timezone.now", lambda: later)
    approval = say(asked(start), person())
    assert approval.decided_at is not None
    assert approval.decided_at < later - timedelta(days=300)
    assert acting(None).user_id is None

"""E-mail: through a real SMTP server, to people who can do something about it."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from agentops.notifications import handing_on, sending, webhooks
from agentops.notifications.sending import Swept
from runs.models import AgentRun
from tests.conformance.targets.mail import MailServer
from tests.database.admin_pages import CARD, HOSTILE, define_tools, finished_run
from tests.database.kit import change
from tests.database.notifying import (
    NOBODY,
    Kind,
    Receiver,
    approval_of,
    asked,
    bytes_of,
    eventually,
    forget_notices,
    hanging,
    make_due,
    notice_of,
    payment_of,
    somebody,
    sweep_in_background,
    the_delivery,
    turn_on_mail,
    turn_on_webhooks,
)

# Permissions are asked for, so all tables are emptied and filled anew after each test.
pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., AgentRun]


@pytest.fixture
def run(start: Start) -> AgentRun:
    define_tools()
    run = finished_run(start)
    forget_notices()
    return run


@pytest.fixture
def mail(tmp_path: Path, settings: Settings) -> Iterator[MailServer]:
    """A real SMTP server, which the settings name."""
    with MailServer(log_dir=tmp_path) as server:
        turn_on_mail(settings, server.address)
        yield server


def test_an_e_mail_says_one_sentence_where_and_until_when(
    run: AgentRun, settings: Settings, mail: MailServer
) -> None:
    settings.AGENTOPS_BASE_URL = "https://agents.example.com"
    somebody("may", "decide_approval")
    notice = asked(run)
    assert sending.run_once() == Swept(handed_on=1, sent=1)
    (one,) = mail.taken()
    approval = notice.approval
    assert approval is not None
    assert (one.sender, one.to) == ("agents@example.com", ("may@example.com",))
    assert one.message["Subject"] == f"Signature asked: pay (…{str(approval.pk)[-8:]})"
    assert one.message["Auto-Submitted"] == "auto-generated"
    assert one.message.get_content_type() == "text/plain"
    said = one.message.get_content().replace("\r\n", "\n")
    assert said.startswith(f"Signature asked: pay, in run {run.pk} of {run.agent}.\n\n")
    assert f"\nhttps://agents.example.com/admin/runs/approval/{approval.pk}/change/\n" in said
    assert f"until {approval.approve_by:%Y-%m-%d %H:%M} UTC" in said


def test_an_e_mail_that_is_sent_again_has_the_same_id(
    run: AgentRun, mail: MailServer, settings: Settings
) -> None:
    somebody("may", "decide_approval", email="lost@example.com")
    notice = asked(run)
    assert sending.run_once() == Swept(handed_on=1, to_be_tried_again=1)
    make_due()
    sending.run_once()
    ids = [str(one.message["Message-ID"]).strip() for one in mail.taken()]
    assert len(ids) == 2
    assert len(set(ids)) == 1
    assert re.fullmatch(r"<approval\.requested\.[0-9a-f-]+@example\.com>", ids[0])
    assert {one.message["X-Event-ID"] for one in mail.taken()} == {notice.event_id}


@pytest.mark.parametrize(
    ("recipient", "swept"),
    [
        ("refused@example.com", Swept(handed_on=1, failed=1, sent=1)),
        ("later@example.com", Swept(handed_on=1, to_be_tried_again=1, sent=1)),
        ("bounced@example.com", Swept(handed_on=1, failed=1, sent=1)),
        ("busy@example.com", Swept(handed_on=1, to_be_tried_again=1, sent=1)),
    ],
)
def test_an_address_that_the_server_refuses_holds_up_no_other(
    run: AgentRun, mail: MailServer, recipient: str, swept: Swept
) -> None:
    somebody("first", "decide_approval", email=recipient)
    somebody("second", "decide_approval")
    asked(run)
    assert sending.run_once() == swept
    assert [one.to for one in mail.taken()] == [("second@example.com",)]


def test_an_address_that_ends_the_connection_holds_up_others_for_one_sweep(
    run: AgentRun, mail: MailServer
) -> None:
    somebody("first", "decide_approval", email="gone@example.com")
    somebody("second", "decide_approval")
    asked(run)
    assert sending.run_once() == Swept(handed_on=1, to_be_tried_again=1)
    assert sending.run_once() == Swept(sent=1)


def test_what_is_no_address_is_given_up_and_adds_no_header(run: AgentRun, mail: MailServer) -> None:
    somebody("first", "decide_approval", email="a@example.com\nBcc: evil@example.com")
    somebody("second", "decide_approval")
    asked(run)
    assert sending.run_once() == Swept(handed_on=1, failed=1, sent=1)
    assert [one.to for one in mail.taken()] == [("second@example.com",)]


def test_a_person_is_not_asked_for_what_is_decided(
    run: AgentRun, mail: MailServer, settings: Settings
) -> None:
    """A program hears of it all the same: it keeps a history, and is asked nothing."""
    somebody("may", "decide_approval")
    with Receiver() as receiver:
        turn_on_webhooks(settings, receiver.url)
        asked(run)
        handing_on.run_once()
        change("UPDATE runs_approval SET status = 'denied', decided_at = now()")
        assert sending.run_once() == Swept(sent=1, dropped=1)
        assert len(receiver.received) == 1
    assert mail.taken() == []


def test_without_a_mail_server_nothing_is_lost_but_time(run: AgentRun, settings: Settings) -> None:
    turn_on_mail(settings, "127.0.0.1:9")
    somebody("may", "decide_approval")
    asked(run)
    assert sending.run_once() == Swept(handed_on=1, to_be_tried_again=1)
    delivery = the_delivery()
    assert delivery.last_error.startswith("ConnectionRefusedError")
    assert delivery.next_try_at is not None
    assert delivery.next_try_at - delivery.made_at < timedelta(minutes=1)


def test_what_is_secret_is_in_no_byte_that_leaves(
    run: AgentRun, settings: Settings, mail: MailServer
) -> None:
    """Arguments, results, reasons, errors and rules are full of it."""
    somebody("may", "decide_approval", "resolve_operation")
    change("UPDATE runs_agentrun SET error = %s, pause_reason = %s", CARD, CARD)
    change("UPDATE runs_agentrun SET objective = %s", CARD)
    secret: dict[str, Any] = {
        "covered": {"arguments": {"card_number": CARD}},
        "rule": f"{HOSTILE} {CARD}",
        "reason": CARD,
        "proposed_arguments": {"card_number": CARD},
    }
    approval = approval_of(run, requester_user=somebody("asker"), **secret)
    with Receiver() as receiver:
        turn_on_webhooks(settings, receiver.url)
        for kind in Kind:
            notice_of(run, kind, approval=approval, operation_id=payment_of(run).pk)
        swept = sending.run_once()
    mails = mail.taken()
    # Three kinds are for programs alone, and here is no question that anybody could answer.
    mailed = [kind for kind in Kind if not kind.startswith("question.")]
    assert (len(receiver.received), len(mails)) == (len(Kind), len(mailed) - 3)
    assert swept.sent == len(receiver.received) + len(mails)
    leaked = bytes_of(receiver.received) + "".join(one.message.as_string() for one in mails)
    for planted in (CARD, "4111-1111", "alert(1)", "egnp", "always", "re_1"):
        assert planted not in leaked


def test_a_receiver_that_hangs_holds_up_nobody_else(
    run: AgentRun, settings: Settings, mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "CALL_SECONDS", 60.0)
    somebody("may", "resolve_operation")
    with hanging() as (slow, called, go_on), Receiver() as quick:
        turn_on_webhooks(settings, slow.url, quick.url, NOBODY)
        for _ in range(3):
            notice_of(run, Kind.RUN_PAUSED)
        sweep = sweep_in_background()
        assert called.wait(timeout=30)
        eventually(lambda: len(quick.received) == 3 and len(mail.taken()) == 3)
        assert len(slow.received) == 1
        go_on.set()
        sweep.join(timeout=30)

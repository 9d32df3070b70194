"""Webhooks and tries: signed, bounded, under one id at every try."""

import base64
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest
from pytest_django import Settings

from agentops.models import Delivery
from agentops.notifications import handing_on, schedule, sending, webhooks
from agentops.notifications.sending import Swept
from agentops.notifications.webhooks import WebhookChannel
from agentops.notifications.wording import Told
from runs import ToolCall
from runs.models import AgentRun, Notice
from tests.database.admin_pages import CARD, define_tools, finished_run, uncertain_run
from tests.database.kit import ask, call_once, change, drive, scripted_tool
from tests.database.notifying import (
    NOBODY,
    ON_TABLES,
    Answer,
    Kind,
    Receiver,
    asked,
    forget_notices,
    make_due,
    notice_of,
    payment_of,
    the_delivery,
    turn_on_webhooks,
)
from tools import Approve

pytestmark = ON_TABLES

Start = Callable[..., AgentRun]
Status = Delivery.Status


@pytest.fixture
def run(start: Start) -> AgentRun:
    define_tools()
    run = finished_run(start)
    forget_notices()
    return run


# -- Webhooks -----------------------------------------------------------------------------------


def test_a_webhook_is_signed_and_says_what_where_and_nothing_else(
    run: AgentRun, settings: Settings
) -> None:
    settings.AGENTOPS_BASE_URL = "https://agents.example.com"
    with Receiver() as receiver:
        turn_on_webhooks(settings, receiver.url)
        notice = asked(run)
        assert sending.run_once() == Swept(handed_on=1, sent=1)
    (received,) = receiver.received
    notice.refresh_from_db()
    assert received.id == notice.event_id.replace(".", "_")
    assert received.said == {
        "type": "approval.requested",
        "timestamp": notice.at.isoformat().replace("+00:00", "Z"),
        "data": {
            "run_id": str(run.pk),
            "agent": run.agent,
            "operation_id": payment_of(run).pk,
            "tool": "pay",
            "approval_id": str(notice.approval_id),
            "question_id": None,
            "status": None,
            "url": f"https://agents.example.com/admin/runs/approval/{notice.approval_id}/change/",
        },
    }
    delivery = the_delivery()
    assert (delivery.status, delivery.attempts, delivery.leased_until) == (Status.SENT, 1, None)
    assert sending.run_once() == Swept()


@pytest.mark.parametrize(
    ("kind", "page"),
    [(Kind.OPERATION_UNKNOWN, "tooloperation"), (Kind.RUN_FINISHED, "agentrun")],
)
def test_the_link_leads_to_what_it_is_about(
    run: AgentRun, settings: Settings, kind: Notice.Kind, page: str
) -> None:
    operation_id = payment_of(run).pk if kind is Kind.OPERATION_UNKNOWN else ""
    with Receiver() as receiver:
        turn_on_webhooks(settings, receiver.url)
        notice_of(run, kind, operation_id=operation_id, status="COMPLETED")
        sending.run_once()
    data = receiver.received[0].said["data"]
    assert data["url"].endswith(f"/admin/runs/{page}/{operation_id or run.pk}/change/")
    assert (data["status"], data["approval_id"]) == ("COMPLETED", None)


def test_what_the_kernel_writes_arrives(start: Start, settings: Settings) -> None:
    """A signature that is asked for, an effect that is unknown, and an end."""
    define_tools()
    scripted_tool(7, name="wire", approval_policy=Approve(groups=("finance",)))
    waiting = start(decider=call_once(ToolCall("wire", amount=1)), tools=("wire",))
    drive(waiting)
    uncertain, finished = uncertain_run(start), finished_run(start)
    with Receiver() as receiver:
        turn_on_webhooks(settings, receiver.url)
        sending.run_once()
    heard = {one.said["type"]: one.said["data"] for one in receiver.received}
    assert set(heard) == {"approval.requested", "operation.unknown", "run.finished"}
    approval = waiting.approvals.get()
    assert heard["approval.requested"]["approval_id"] == str(approval.pk)
    assert heard["approval.requested"]["tool"] == "wire"
    assert heard["operation.unknown"]["operation_id"] == payment_of(uncertain).pk
    assert heard["run.finished"]["run_id"] == str(finished.pk)
    assert heard["run.finished"]["status"] == "COMPLETED"
    assert f"approval_requested:{approval.pk}" in receiver.ids


def test_another_secret_does_not_verify(run: AgentRun, settings: Settings) -> None:
    with Receiver() as receiver:
        turn_on_webhooks(settings, receiver.url)
        other = base64.b64encode(b"another secret of enough bytes!!").decode()
        settings.AGENTOPS_WEBHOOK_SECRET = f"whsec_{other}"
        notice_of(run, Kind.RUN_FINISHED)
        # The receiver of these tests hangs up on a signature that does not fit.
        assert sending.run_once() == Swept(handed_on=1, to_be_tried_again=1)
        assert receiver.received == []


@pytest.mark.parametrize("status", [301, 302, 307, 400, 404, 429, 500, 503])
def test_only_a_success_is_one_and_a_redirect_is_not_followed(
    run: AgentRun, settings: Settings, status: int
) -> None:
    with Receiver() as elsewhere, Receiver() as receiver:

        def refuse(number: int) -> Answer:
            def answer(handler: BaseHTTPRequestHandler) -> None:
                handler.send_response(status)
                handler.send_header("location", elsewhere.url)
                handler.send_header("content-length", "0")
                handler.end_headers()

            return answer if number == 1 else 200

        receiver.answer = refuse
        turn_on_webhooks(settings, receiver.url)
        notice_of(run, Kind.RUN_FINISHED)
        assert sending.run_once() == Swept(handed_on=1, to_be_tried_again=1)
        assert the_delivery().last_error == f"answered {status}"
        assert elsewhere.received == []
        make_due()
        assert sending.run_once() == Swept(sent=1)
    assert len(set(receiver.ids)) == 1
    assert len(receiver.ids) == 2
    assert the_delivery().last_error == ""


def test_a_receiver_that_is_gone_for_good_is_not_asked_again(
    run: AgentRun, settings: Settings
) -> None:
    with Receiver(lambda number: 410) as receiver:
        turn_on_webhooks(settings, receiver.url)
        notice_of(run, Kind.RUN_FINISHED)
        assert sending.run_once() == Swept(handed_on=1, failed=1)
    assert the_delivery().status == Status.FAILED


def _drip(handler: BaseHTTPRequestHandler) -> None:
    """A header that never ends, a little at a time."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nx-more: ")
    for _ in range(1_200):
        handler.wfile.write(b"y")
        handler.wfile.flush()
        time.sleep(0.05)


def _endless(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
    for _ in range(10_000):
        handler.wfile.write(b"x" * 10_000)
    read_to_its_end.append("100 MB")


read_to_its_end: list[str] = []


def _garbage(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"SSH-2.0 hello\r\n")
    handler.close_connection = True


def test_a_receiver_that_drips_costs_no_more_than_one_call(
    run: AgentRun, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "CALL_SECONDS", 0.5)
    with Receiver(lambda number: _drip) as receiver:
        turn_on_webhooks(settings, receiver.url)
        notice_of(run, Kind.RUN_FINISHED)
        began = time.monotonic()
        assert sending.run_once() == Swept(handed_on=1, to_be_tried_again=1)
        # It would go on for a minute.
        assert time.monotonic() - began < 30
    assert the_delivery().last_error == "no answer within 0.5 s"


def test_of_an_endless_answer_little_is_read(run: AgentRun, settings: Settings) -> None:
    with Receiver(lambda number: _endless) as receiver:
        turn_on_webhooks(settings, receiver.url)
        notice_of(run, Kind.RUN_FINISHED)
        assert sending.run_once() == Swept(handed_on=1, sent=1)
    assert read_to_its_end == []


def test_nonsense_is_no_answer_and_its_words_are_not_kept(
    run: AgentRun, settings: Settings
) -> None:
    with Receiver(lambda number: _garbage) as receiver:
        turn_on_webhooks(settings, f"{receiver.url}?token=t0psecret")
        notice_of(run, Kind.RUN_FINISHED)
        sending.run_once()
    error = the_delivery().last_error
    assert error.startswith("no answer (")
    assert "t0psecret" not in error


# -- Tries --------------------------------------------------------------------------------------


def test_tries_grow_apart_for_about_three_days(run: AgentRun, settings: Settings) -> None:
    turn_on_webhooks(settings, NOBODY)
    notice_of(run, Kind.RUN_FINISHED)
    pauses: list[float] = []
    for _ in range(schedule.MOST_TRIES - 1):
        assert sending.run_once().to_be_tried_again == 1
        pauses.append(ask("SELECT EXTRACT(EPOCH FROM next_try_at - now()) FROM agentops_delivery"))
        make_due()
    assert sending.run_once() == Swept(failed=1)
    delivery = the_delivery()
    assert (delivery.status, delivery.attempts) == (Status.FAILED, schedule.MOST_TRIES)
    assert delivery.last_error == "no answer (ConnectError)"
    assert sending.run_once() == Swept()
    assert 3 <= float(pauses[0]) <= 6.1
    assert 2 * 86_400 < sum(map(float, pauses)) < 4 * 86_400


def test_what_failed_together_does_not_come_back_together() -> None:
    assert len({schedule.delay_after(3) for _ in range(5)}) == 5
    assert schedule.delay_after(schedule.MOST_TRIES) is None


def test_a_delivery_behind_a_receiver_that_is_down_ends_too(
    run: AgentRun, settings: Settings
) -> None:
    turn_on_webhooks(settings, NOBODY)
    notice_of(run, Kind.RUN_FINISHED)
    handing_on.run_once()
    change("UPDATE agentops_delivery SET give_up_at = now()")
    assert sending.run_once() == Swept(failed=1)
    assert the_delivery().last_error != ""


def test_a_fault_of_ours_is_one_failed_try_and_ends_nothing_else(
    run: AgentRun, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = WebhookChannel.send

    def break_once(self: WebhookChannel, told: Told, address: str) -> None:
        if told.kind is Kind.RUN_PAUSED:
            raise LookupError(CARD)
        send(self, told, address)

    monkeypatch.setattr(WebhookChannel, "send", break_once)
    with Receiver() as receiver:
        turn_on_webhooks(settings, receiver.url)
        notice_of(run, Kind.RUN_PAUSED)
        notice_of(run, Kind.RUN_FINISHED)
        assert sending.run_once() == Swept(handed_on=2, sent=1, to_be_tried_again=1)
    assert the_delivery(status=Status.PENDING).last_error == "fault: LookupError"

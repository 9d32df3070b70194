"""Notifications of the whole stack: beat and a worker send them, and a killed sender loses none."""

import os
import signal
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from pytest_django import Settings

from agentops.models import Delivery
from agentops.notifications import sending
from agentops.notifications.sending import Swept
from runs.models import AgentRun, Sweep
from tests.conformance.targets.mail import MailServer
from tests.database.admin_pages import define_tools, finished_run
from tests.database.notifying import (
    SECRET,
    Answer,
    Kind,
    Receiver,
    forget_notices,
    make_due,
    notice_of,
    somebody,
    the_delivery,
    turn_on_webhooks,
)
from tests.processes import Celery, Program, environment, of_this_test, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.django_db(transaction=True)]

SWEEP = (
    "import django; django.setup(); from agentops.notifications import sending; sending.run_once()"
)


@pytest.fixture
def run(start: Callable[..., AgentRun]) -> AgentRun:
    define_tools()
    run = finished_run(start)
    forget_notices()
    return run


def test_beat_and_a_worker_send_what_is_in_the_outbox(run: AgentRun, tmp_path: Path) -> None:
    somebody("may", "resolve_operation")
    notice = notice_of(run, Kind.RUN_PAUSED)
    with Receiver() as receiver, MailServer(log_dir=tmp_path) as mail:
        host, _, port = mail.address.rpartition(":")
        env = {
            "AGENTOPS_BASE_URL": "https://agents.example.com",
            "AGENTOPS_WEBHOOK_URLS": receiver.url,
            "AGENTOPS_WEBHOOK_SECRET": SECRET,
            "AGENTOPS_EMAIL_HOST": host,
            "AGENTOPS_EMAIL_PORT": port,
            "AGENTOPS_EMAIL_TLS": "off",
            "AGENTOPS_EMAIL_FROM": "agents@example.com",
        }
        with Celery(of_this_test(), log_dir=tmp_path, env=env) as celery:
            celery.worker("one")
            celery.beat()
            wait_until(
                lambda: Delivery.objects.filter(status=Delivery.Status.SENT).count() == 2,
                what="both are sent",
                seconds=60,
            )
        (called,), (mailed,) = receiver.received, mail.taken()
    where = f"https://agents.example.com/admin/runs/agentrun/{run.pk}/change/"
    assert called.said["data"]["url"] == where
    assert where in mailed.message.get_content()
    assert mailed.message["X-Event-ID"] == notice.event_id
    assert Sweep.objects.filter(name="notifications").exists()


def test_a_sender_that_is_killed_after_the_receiver_took_it_is_followed_by_another(
    run: AgentRun, tmp_path: Path, settings: Settings
) -> None:
    notice_of(run, Kind.RUN_FINISHED)
    started: list[Program] = []

    def kill_the_sender(handler: BaseHTTPRequestHandler) -> None:
        os.kill(started[0].pid, signal.SIGKILL)
        started[0].wait()
        handler.close_connection = True

    def answer(number: int) -> Answer:
        return kill_the_sender if number == 1 else 204

    with Receiver(answer) as receiver:
        env = environment(
            of_this_test(),
            more={"AGENTOPS_WEBHOOK_URLS": receiver.url, "AGENTOPS_WEBHOOK_SECRET": SECRET}
            | {"DJANGO_SETTINGS_MODULE": "agentops.settings"},
        )
        with Program("-c", SWEEP, env=env, log=tmp_path / "sweep.log", name="sweep") as program:
            started.append(program)
            assert program.wait() == -signal.SIGKILL, program.said
        assert the_delivery().status == Delivery.Status.PENDING
        turn_on_webhooks(settings, receiver.url)
        assert sending.run_once() == Swept(), "its lease is not over"
        make_due()
        assert sending.run_once() == Swept(sent=1)
    assert len(receiver.ids) == 2
    assert len(set(receiver.ids)) == 1

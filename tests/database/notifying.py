"""What the tests of notifications share: receivers, people, and things worth telling.

A receiver is a real HTTP server on loopback that checks every signature with the library of
Standard Webhooks, and answers as the test says; mail goes to a real SMTP server.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings
from standardwebhooks import Webhook

from agentops.models import Delivery
from agentops.notifications import sending
from runs.models import AgentRun, Approval, Notice, ToolOperation
from tests.database.kit import change

# Each test commits for real.
ON_TABLES = pytest.mark.django_db(transaction=True)
SECRET = "whsec_" + "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IDEyMzQ="
NOBODY = "http://127.0.0.1:9/hook"
Kind = Notice.Kind
# A status, or something that does as it likes with the connection.
Answer = int | Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class Received:
    """One call: where to, under which id, what it said, and every byte of it."""

    path: str
    id: str
    said: dict[str, Any]
    raw: str


class Receiver:
    """Answers 204, or what `answer` returns for the number of the call (from 1)."""

    def __init__(self, answer: Callable[[int], Answer] = lambda number: 204) -> None:
        self.received: list[Received] = []
        self.answer = answer
        self.secret = SECRET
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                said = Webhook(receiver.secret).verify(body, dict(self.headers))
                raw = f"{self.requestline}\n{self.headers}\n{body.decode()}"
                receiver.received.append(Received(self.path, self.headers["webhook-id"], said, raw))
                answer = receiver.answer(len(receiver.received))
                if callable(answer):
                    answer(self)
                    return
                self.send_response(answer)
                self.send_header("content-length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"

    def __enter__(self) -> "Receiver":
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.received]


@contextmanager
def hanging() -> Iterator[tuple[Receiver, threading.Event, threading.Event]]:
    """A receiver that takes a call and answers only once told to: (it, called, answer now)."""
    called, go_on = threading.Event(), threading.Event()

    def wait(number: int) -> Answer:
        called.set()
        go_on.wait(timeout=30)
        return 204

    with Receiver(wait) as receiver:
        try:
            yield receiver, called, go_on
        finally:
            go_on.set()


def turn_on_webhooks(settings: Settings, *urls: str) -> None:
    settings.AGENTOPS_WEBHOOK_URLS = list(urls)
    settings.AGENTOPS_WEBHOOK_SECRET = SECRET


def turn_on_mail(settings: Settings, address: str = "127.0.0.1:9") -> None:
    host, _, port = address.rpartition(":")
    settings.AGENTOPS_EMAIL_HOST = host
    settings.AGENTOPS_EMAIL_PORT = int(port)
    settings.AGENTOPS_EMAIL_TLS = "off"
    settings.AGENTOPS_EMAIL_FROM = "agents@example.com"


def somebody(
    name: str,
    *permissions: str,
    groups: tuple[str, ...] = (),
    email: str | None = None,
    **fields: Any,
) -> User:
    """A person with an address, these permissions and groups."""
    address = f"{name}@example.com" if email is None else email
    user = User.objects.create(username=name, email=address, **fields)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return user


def approval_of(run: AgentRun, **fields: Any) -> Approval:
    """A pending approval of the run's payment."""
    given: dict[str, Any] = {
        "fingerprint": "v1:0",
        "covered": {},
        "rule": "always",
        "policy_version": "1",
        "requester": "agent",
        "approve_by": timezone.now() + timedelta(days=1),
    }
    return Approval.objects.create(operation=payment_of(run), run=run, **given | fields)


def payment_of(run: AgentRun) -> ToolOperation:
    return run.operations.get(tool="pay")


def notice_of(
    run: AgentRun,
    kind: Notice.Kind,
    *,
    approval: Approval | None = None,
    status: str = "",
    operation_id: str = "",
) -> Notice:
    """A notice as the kernel and approvals write them."""
    return Notice.objects.create(
        event_id=f"{kind.value}:{uuid4()}",
        kind=kind,
        run=run,
        approval=approval,
        operation_id=operation_id,
        status=status,
    )


def asked(run: AgentRun, **fields: Any) -> Notice:
    """A signature is asked for."""
    return notice_of(run, Kind.APPROVAL_REQUESTED, approval=approval_of(run, **fields))


def forget_notices() -> None:
    """What the kernel wrote while the test prepared its run is told already."""
    change("UPDATE runs_notice SET handed_on_at = now() WHERE handed_on_at IS NULL")


def make_due() -> None:
    """Let every lease and every pause between tries pass."""
    change(
        "UPDATE agentops_delivery SET next_try_at = now(),"
        " leased_until = leased_until - interval '1 h' WHERE status = 'pending'"
    )


def addresses(channel: Delivery.Channel) -> list[str]:
    return sorted(Delivery.objects.filter(channel=channel).values_list("address", flat=True))


def the_delivery(**narrowed: Any) -> Delivery:
    return Delivery.objects.get(**narrowed)


def bytes_of(received: list[Received]) -> str:
    return json.dumps([one.raw for one in received])


def sweep_in_background() -> threading.Thread:
    """One sweep in a thread of its own, with a connection of its own."""

    def sweep() -> None:
        try:
            sending.run_once()
        finally:
            connection.close()

    thread = threading.Thread(target=sweep)
    thread.start()
    return thread


def eventually(holds: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Return once it holds."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.02)


def scans(captured: CaptureQueriesContext) -> list[str]:
    """The captured statements that read a table of ours from end to end."""
    found = []
    change("SET enable_seqscan = off")
    for query in captured.captured_queries:
        sql = query["sql"]
        if sql.lstrip().startswith(("SELECT", "UPDATE")) and ("runs_" in sql or "agentops_" in sql):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {sql}")
                plan = " | ".join(row[0] for row in cursor.fetchall())
            if "Seq Scan on runs_" in plan or "Seq Scan on agentops_" in plan:
                found.append(f"{sql}\n    {plan}")
    change("SET enable_seqscan = on")
    return found

"""An e-mail is handed over once, to all recipients or to none, whatever is lost on the way.

Against PyPI's aiosmtpd in its own process; effects are the messages that it took.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.calls import Operation
from tests.conformance.targets.loopback import free_port
from tests.conformance.targets.mail import MailServer, make_certificate
from tests.processes import Program
from tools import Approve, EffectType, policy_store
from tools.catalog.smtp_email import email_tool
from tools.errors import InvalidArguments, InvalidTool
from tools.outcome import Committed, Refused, Unknown, Unsent
from tools.policy import evaluate
from tools.registry import get_tool, isolated_registry

SENDER = "shop@example.com"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailServer]:
    with MailServer(log_dir=tmp_path_factory.mktemp("mail")) as mail_server:
        yield mail_server


@pytest.fixture
def mail(server: MailServer, monkeypatch: pytest.MonkeyPatch) -> MailServer:
    monkeypatch.setenv("SMTP_HOST", server.address)
    email_tool(sender=SENDER, sender_name='The "Shop", Ltd', security="none")
    return server


def email(*to: str, **changed: Any) -> Operation:
    arguments = {"to": list(to), "subject": "Your order", "text": "It is on its way."}
    return Operation("send_email", arguments | changed)


def message_id(operation: Operation) -> str:
    return f"<{operation.id}@example.com>"


def test_an_email_is_taken_once_under_the_operations_name(mail: MailServer) -> None:
    order = email("ann@example.com", "bob@example.com", text="Grüße\n.\n.dot\n\nend")
    outcome = order.send()
    assert isinstance(outcome, Committed)
    assert outcome.external_ref == message_id(order)
    assert outcome.result == {
        "message_id": message_id(order),
        "recipients": 2,
        "reply": "250 2.0.0 OK: queued as 4711",
    }
    (taken,) = mail.taken(message_id(order))
    assert (taken.sender, taken.to) == (SENDER, ("ann@example.com", "bob@example.com"))
    assert taken.message["From"] == '"The \\"Shop\\", Ltd" <shop@example.com>'
    assert taken.message["To"] == "ann@example.com, bob@example.com"
    assert taken.message["Auto-Submitted"] == "auto-generated"
    assert taken.message.get_content().splitlines() == ["Grüße", ".", ".dot", "", "end"]


@pytest.mark.parametrize("fault", ["lost", "odd"])
def test_a_reply_that_is_lost_after_the_message_was_taken_is_unknown(
    fault: str, mail: MailServer
) -> None:
    order = email(f"{fault}@example.com")
    outcome = order.send()
    assert isinstance(outcome, Unknown)
    assert message_id(order) in outcome.reason
    assert len(mail.taken(message_id(order))) == 1
    assert order.look_up().failed


def test_a_reply_after_the_deadline_is_unknown(mail: MailServer) -> None:
    order = email("silent@example.com")
    assert isinstance(order.send(seconds=0.5), Unknown)
    assert len(mail.taken(message_id(order))) == 1


@pytest.mark.parametrize("fault", ["gone", "cut", "later", "busy"])
def test_what_ends_before_the_message_is_taken_sent_nothing(fault: str, mail: MailServer) -> None:
    order = email(f"{fault}@example.com")
    assert isinstance(order.send(), Unsent)
    assert mail.taken(message_id(order)) == []


# Room for a busy machine to come as far as the message, where the process stops itself.
DEADLINE_SECONDS = 4.0
STOPPED = f"""
import os
from tests.conformance.calls import Operation
from tools.catalog.smtp_email import email_tool
from tools.execution import wait_until_back

email_tool(sender="{SENDER}", security="none")
to = [f"stop.{{os.getpid()}}@example.com"]
email = Operation("send_email", {{"to": to, "subject": "a", "text": "b"}})
print(email.send(seconds={DEADLINE_SECONDS}), wait_until_back(seconds=20), email.late)
"""


@pytest.mark.crash
def test_a_process_that_stood_still_until_its_deadline_does_not_end_the_message(
    mail: MailServer, tmp_path: Path
) -> None:
    before = len(mail.taken())
    log = tmp_path / "sender.log"
    with Program("-c", STOPPED, env=os.environ, log=log, name="sender") as sender:
        sender.wait_until_stopped()
        time.sleep(DEADLINE_SECONDS)
        sender.go_on()
        assert sender.wait() == 0
        assert "Unsent(reason='the deadline passed before the message was complete" in sender.said
    assert len(mail.taken()) == before


@pytest.mark.parametrize("fault", ["refused", "bounced"])
def test_a_final_refusal_is_a_rejection(fault: str, mail: MailServer) -> None:
    order = email(f"{fault}@example.com")
    outcome = order.send()
    assert isinstance(outcome, Refused)
    assert "550" in outcome.reason
    assert mail.taken(message_id(order)) == []


@pytest.mark.parametrize(("fault", "kind"), [("refused", Refused), ("later", Unsent)])
def test_one_refused_recipient_leaves_none_with_a_message(
    fault: str, kind: type[object], mail: MailServer
) -> None:
    order = email("ann@example.com", f"{fault}@example.com", "bob@example.com")
    outcome = order.send()
    assert isinstance(outcome, kind)
    assert f"{fault}@example.com" in str(outcome)
    assert mail.taken(message_id(order)) == []


def test_a_refused_connection_sent_nothing(
    mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMTP_HOST", f"127.0.0.1:{free_port()}")
    assert isinstance(email("ann@example.com").send(), Unsent)


@pytest.mark.parametrize("host", ["", "a@b", "host:99999", "http://host"])
def test_a_wrong_environment_sent_nothing(
    host: str, mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMTP_HOST", host)
    outcome = email("ann@example.com").send()
    assert isinstance(outcome, Unsent)
    assert "SMTP_HOST" in outcome.reason


@pytest.mark.parametrize(
    "login", [{}, {"username_env": "MAIL_USER", "password_env": "MAIL_PASSWORD"}]
)
def test_a_server_without_tls_gets_neither_password_nor_message(
    login: dict[str, str], mail: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_USER", "shop")
    monkeypatch.setenv("MAIL_PASSWORD", "geheim")
    email_tool(sender=SENDER, name="mail_in", **login)  # type: ignore[arg-type]
    order = Operation("mail_in", email("ann@example.com").arguments)
    outcome = order.send()
    assert isinstance(outcome, Unsent)
    assert "STARTTLS" in outcome.reason
    assert "geheim" not in outcome.reason
    assert mail.taken(message_id(order)) == []


@pytest.mark.parametrize(("password", "kind"), [("geheim", Committed), ("falsch", Unsent)])
def test_a_login_goes_over_tls_to_a_server_that_is_trusted(
    password: str, kind: type[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path)
    monkeypatch.setenv("MAIL_USER", "shop")
    monkeypatch.setenv("MAIL_PASSWORD", password)
    email_tool(sender=SENDER, username_env="MAIL_USER", password_env="MAIL_PASSWORD")
    with MailServer(log_dir=tmp_path, certificate=certificate) as server:
        monkeypatch.setenv("SMTP_HOST", server.address)
        stranger = email("ann@example.com").send()
        assert isinstance(stranger, Unsent)
        assert "certificate" in stranger.reason
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        outcome = email("ann@example.com").send()
        assert isinstance(outcome, kind)
        assert password not in str(outcome)
        assert len(server.taken()) == (kind is Committed)


@pytest.mark.parametrize(
    "changed",
    [
        {"to": []},
        {"to": ["ann@example.com\r\nBcc: eve@example.com"]},
        {"to": ["ann@example.com, eve@example.com"]},
        {"to": ["ann@example.com>\r\nDATA"]},
        {"to": ["Ann <ann@example.com>"]},
        {"to": ["ann@example.com\n"]},
        {"to": ["ann"]},
        {"subject": ""},
        {"subject": "Hello\r\nBcc: eve@example.com"},
        {"subject": "Hello\nBcc: eve@example.com"},
        {"subject": "Hello\u2028Bcc: eve@example.com"},
        {"text": ""},
    ],
)
def test_no_argument_can_add_a_header_or_a_recipient(
    changed: dict[str, Any], mail: MailServer
) -> None:
    with pytest.raises(InvalidArguments):
        email("ann@example.com", **changed)


@settings(max_examples=60, deadline=None)
@given(text=st.text(min_size=1, max_size=200), subject=st.text(min_size=1, max_size=80))
def test_whatever_is_written_arrives_as_one_message_with_the_headers_we_gave(
    server: MailServer, text: str, subject: str
) -> None:
    with isolated_registry(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMTP_HOST", server.address)
        email_tool(sender=SENDER, security="none")
        try:
            order = email("ann@example.com", text=text, subject=subject)
        except InvalidArguments:
            return
        assert isinstance(order.send(), Committed)
    (taken,) = server.taken(message_id(order))
    assert taken.to == ("ann@example.com",)
    assert sorted(taken.message.keys()) == [
        "Auto-Submitted",
        "Content-Transfer-Encoding",
        "Content-Type",
        "Date",
        "From",
        "MIME-Version",
        "Message-ID",
        "Subject",
        "To",
    ]
    assert "".join(taken.message["Subject"].split()) == "".join(subject.split())
    assert taken.message.get_content().split() == text.split()


def test_an_email_needs_a_signature_unless_the_project_says_otherwise(mail: MailServer) -> None:
    order = email("ann@example.com")
    spec = get_tool("send_email")
    assert spec.effect_type is EffectType.IRREVERSIBLE
    freely = email_tool(sender=SENDER, name="notify", approval_policy=Approve(when="size(to) > 1"))
    with policy_store.only():
        assert evaluate(spec, order.arguments).outcome == "require_approval"
        judged = evaluate(freely.spec, order.arguments)  # type: ignore[attr-defined]
    assert judged.outcome == "allow"


@pytest.mark.parametrize(
    "declared",
    [
        {"sender": "shop"},
        {"sender": "shop@example.com\n"},
        {"sender_name": "Shop\r\nBcc: eve@example.com"},
        {"username_env": "MAIL_USER"},
        {"username_env": "U", "password_env": "P", "security": "none"},
    ],
)
def test_a_declaration_that_could_leak_or_inject_is_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(InvalidTool):
        email_tool(**{"sender": SENDER} | declared)

"""One delivery to an SMTP server, and what its end proves.

Guarantees: the end of the message is sent on its own, last, and before the deadline, so that
whatever fails earlier is no e-mail to anybody; a server that refuses one recipient gets no
message for the others; a refusal of the message or of a party is final if the server says so
(5xx), and for now if it says that (4xx).
Does not know what became of a message whose end was sent and not answered: it raises NoReply.
"""

import smtplib
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from tools.call import Call
from tools.errors import NotSent, Rejected, ToolError
from tools.outcome import describe
from tools.redaction import bound_text

Security = Literal["starttls", "tls", "none"]
END_OF_MESSAGE = b".\r\n"
MOST_WORDS = 300


class NoReply(ToolError):
    """The whole message was sent, and nobody knows whether it was taken."""

    def __init__(self, message_id: str, *, why: str) -> None:
        self.message_id = message_id
        super().__init__(
            f"the server has the whole message and did not say whether it took it ({why}); "
            f"its log, or a recipient, may know {message_id}"
        )


@dataclass(frozen=True, kw_only=True)
class Server:
    """Where mail is handed over, and as whom."""

    host: str
    port: int
    security: Security
    login: tuple[str, str] | None = None


def deliver(
    call: Call, *, server: Server, sender: str, to: Sequence[str], message: bytes, message_id: str
) -> str:
    """The server's words when it took the message. Raises NotSent, Rejected and NoReply."""
    with _nothing_sent():
        smtp = _connect(server, seconds=call.remaining)
    try:
        with _nothing_sent():
            _introduce(smtp, server, call)
            _name_parties(smtp, call, sender=sender, to=to)
            _give(smtp, call, message)
        return _end(smtp, call, message_id)
    finally:
        # In the middle of a message a QUIT would be a line of it; the end of the connection is
        # what takes the message back.
        smtp.close()
        call.window.mark("closed")


@contextmanager
def _nothing_sent() -> Iterator[None]:
    """Before its end has left, a message is nobody's (RFC 5321, 4.1.1.10)."""
    try:
        yield
    except Rejected:
        raise
    except NotSent as error:
        # Also a deadline that passed: there was no earlier request that it could stand for.
        raise NotSent(error.reason) from error
    except Exception as error:
        raise NotSent(f"the message was not handed over: {describe(error)}") from error


def _connect(server: Server, *, seconds: float) -> smtplib.SMTP:
    # Without a name of its own it would ask the name service, which can take long.
    own_name = socket.gethostname() or "localhost"
    if server.security == "tls":
        return smtplib.SMTP_SSL(
            server.host,
            server.port,
            local_hostname=own_name,
            timeout=seconds,
            context=ssl.create_default_context(),
        )
    return smtplib.SMTP(server.host, server.port, local_hostname=own_name, timeout=seconds)


def _introduce(smtp: smtplib.SMTP, server: Server, call: Call) -> None:
    _stay_in_time(smtp, call)
    smtp.ehlo_or_helo_if_needed()
    if server.security == "starttls":
        _stay_in_time(smtp, call)
        smtp.starttls(context=ssl.create_default_context())
        smtp.ehlo_or_helo_if_needed()
    if server.login is not None:
        _stay_in_time(smtp, call)
        smtp.login(*server.login)


def _name_parties(smtp: smtplib.SMTP, call: Call, *, sender: str, to: Sequence[str]) -> None:
    _stay_in_time(smtp, call)
    _raise_if_refused(smtp, *smtp.mail(sender), what=f"the sender {sender}")
    for recipient in to:
        _stay_in_time(smtp, call)
        _raise_if_refused(smtp, *smtp.rcpt(recipient), what=f"the recipient {recipient}")


def _give(smtp: smtplib.SMTP, call: Call, message: bytes) -> None:
    """Everything but the end of the message."""
    _stay_in_time(smtp, call)
    code, said = smtp.docmd("DATA")
    _raise_if_refused(smtp, code, said, what="a message")
    if code != 354:
        raise NotSent(f"the server answered DATA with {_words(code, said)}")
    _stay_in_time(smtp, call)
    call.window.mark("first_byte")
    smtp.send(message)
    # Where a process stood still until now, it must not go on.
    _stay_in_time(smtp, call)


def _end(smtp: smtplib.SMTP, call: Call, message_id: str) -> str:
    try:
        smtp.send(END_OF_MESSAGE)
        call.window.mark("last_byte")
        code, said = smtp.getreply()
    except (OSError, smtplib.SMTPException) as error:
        raise NoReply(message_id, why=describe(error)) from error
    if not (200 <= code < 300 or 400 <= code < 600):
        raise NoReply(message_id, why=_words(code, said))
    _raise_if_refused(smtp, code, said, what="the message")
    _take_leave(smtp)
    return _words(code, said)


def _stay_in_time(smtp: smtplib.SMTP, call: Call) -> None:
    left = call.seconds_left()
    if left <= 0:
        raise NotSent("the deadline passed before the message was complete")
    if smtp.sock is not None:
        smtp.sock.settimeout(left)


def _raise_if_refused(smtp: smtplib.SMTP, code: int, said: bytes, *, what: str) -> None:
    if 200 <= code < 400:
        return
    _take_leave(smtp)
    sentence = f"the server refused {what}: {_words(code, said)}"
    raise Rejected(sentence) if 500 <= code < 600 else NotSent(sentence)


def _take_leave(smtp: smtplib.SMTP) -> None:
    with suppress(OSError, smtplib.SMTPException):
        smtp.putcmd("QUIT")


def _words(code: int, said: bytes) -> str:
    return bound_text(f"{code} {said.decode(errors='replace')}", MOST_WORDS)

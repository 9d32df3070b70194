"""E-mails, through Django's SMTP backend.

Guarantees: plain text to one person per message, under a Message-ID that is the event's; a
login never travels unless the connection is encrypted or local (a system check sees to it).
A recipient that the server refuses for good is not tried again, and holds up nobody else.

Does not learn what became of a message after the server took it.
"""

import smtplib
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend

from agentops.notifications.errors import NotDelivered
from agentops.notifications.wording import Told, message_id, subject, text

REPLY_SECONDS: Final = 10.0


class MailChannel:
    """One connection to the server, opened by the first message."""

    def __init__(self) -> None:
        security = settings.AGENTOPS_EMAIL_TLS
        self._backend = EmailBackend(
            host=settings.AGENTOPS_EMAIL_HOST,
            port=settings.AGENTOPS_EMAIL_PORT,
            username=settings.AGENTOPS_EMAIL_USER,
            password=settings.AGENTOPS_EMAIL_PASSWORD,
            use_tls=security == "starttls",
            use_ssl=security == "ssl",
            timeout=REPLY_SECONDS,
            # Later versions of Django read by it that these are all the options there are.
            alias="notifications",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError, smtplib.SMTPException):
            self._backend.close()

    def send(self, told: Told, address: str) -> None:
        """Return once the server took it. Raises NotDelivered."""
        sender = settings.AGENTOPS_EMAIL_FROM
        message = EmailMessage(
            subject=subject(told),
            body=text(told),
            from_email=sender,
            to=[address],
            headers={
                "Message-ID": message_id(told, sender=sender),
                "X-Event-ID": told.event_id,
                # Nobody's out-of-office answer is wanted.
                "Auto-Submitted": "auto-generated",
            },
        )
        try:
            self._backend.open()
            self._backend.send_messages([message])
        except smtplib.SMTPRecipientsRefused as error:
            replies = list(error.recipients.values())
            for_good = all(500 <= code < 600 for code, _ in replies)
            raise NotDelivered(
                f"recipient refused: {_words(*replies[0])}", for_good=for_good
            ) from error
        except smtplib.SMTPDataError as error:
            raise NotDelivered(
                f"message refused: {_words(error.smtp_code, error.smtp_error)}",
                for_good=500 <= error.smtp_code < 600,
            ) from error
        except OSError as error:  # smtplib's own errors are of this kind too
            raise NotDelivered(f"{type(error).__name__}: {error}", lane_is_down=True) from error
        except ValueError as error:
            raise NotDelivered(
                f"no address that mail goes to ({type(error).__name__})", for_good=True
            ) from error


def _words(code: int, said: bytes | str) -> str:
    return f"{code} {said.decode(errors='replace') if isinstance(said, bytes) else said}"

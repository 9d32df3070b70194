"""An e-mail as bytes, and the arguments that may become one.

Guarantees: no argument can add a header, a recipient or a line of protocol; the Message-ID is
made from the operation's id, so that logs, receivers and people can recognise a second copy.
Does not write addresses outside ASCII, attachments or HTML.
"""

import re
from email.generator import BytesGenerator
from email.headerregistry import Address as HeaderAddress
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from io import BytesIO
from typing import Annotated, Final

from pydantic import Field

# A part of what RFC 5321 allows: no quotes, no spaces, no literals of addresses.
ADDRESS: Final = (
    r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$"
)
LONGEST_ADDRESS: Final = 254
# Whatever a mail program may take for the end of a line is left out.
ONE_LINE: Final = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"

Address = Annotated[str, Field(pattern=ADDRESS, max_length=LONGEST_ADDRESS)]
Recipients = Annotated[list[Address], Field(min_length=1, max_length=50)]
Subject = Annotated[str, Field(pattern=ONE_LINE, max_length=500)]
Text = Annotated[str, Field(min_length=1, max_length=100_000)]


def is_address(text: str) -> bool:
    return len(text) <= LONGEST_ADDRESS and re.fullmatch(ADDRESS, text) is not None


def is_one_line(text: str) -> bool:
    return text == "" or re.fullmatch(ONE_LINE, text) is not None


def message_id(operation_id: str, *, sender: str) -> str:
    """The operation's name in the world of mail."""
    return f"<{operation_id}@{sender.rpartition('@')[2]}>"


def compose(
    *, named: str, sender: str, sender_name: str, to: list[str], subject: str, text: str
) -> bytes:
    """The message as it goes over the wire, without its end: CRLF lines, leading dots doubled."""
    message = EmailMessage(policy=SMTP)
    message["From"] = HeaderAddress(sender_name, addr_spec=sender)
    message["To"] = [HeaderAddress(addr_spec=one) for one in to]
    message["Subject"] = subject
    message["Date"] = formatdate()
    message["Message-ID"] = named
    # RFC 3834: no out-of-office note is to answer a program.
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text, cte="quoted-printable")
    written = BytesIO()
    BytesGenerator(written, policy=SMTP).flatten(message)
    lines = written.getvalue()
    return re.sub(rb"(?m)^\.", b"..", lines if lines.endswith(b"\r\n") else lines + b"\r\n")

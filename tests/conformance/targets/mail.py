"""A mail server in a process of its own; see `mail_process` for its faults.

Guarantees: a message that the server took is in its file before anything is answered.
Does not speak TLS.
"""

import json
import os
import re
from dataclasses import dataclass
from email import message_from_string
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Self

from tests.processes import Program, wait_until

MODULE = "tests.conformance.targets.mail_process"


@dataclass(frozen=True)
class Mail:
    """One message that the server took: its envelope, and what it says."""

    sender: str
    to: tuple[str, ...]
    message: EmailMessage


class MailServer:
    """Starts with a `with` block; from the main thread, like every program."""

    def __init__(self, *, log_dir: Path) -> None:
        self._mails = log_dir / "mails.jsonl"
        arguments = ("-m", MODULE, str(self._mails))
        self._program = Program(*arguments, env=os.environ, log=log_dir / "mail.log", name="mail")
        self.address = ""

    def __enter__(self) -> Self:
        wait_until(
            lambda: bool(self._find_address()) or not self._program.lives, what="mail listens"
        )
        self.address = self._find_address()
        assert self.address, self._program.said
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()

    def taken(self, message_id: str | None = None) -> list[Mail]:
        """The messages that the server took, oldest first; those of one Message-ID if given."""
        lines = self._mails.read_text().splitlines() if self._mails.exists() else []
        mails = []
        for line in lines:
            one = json.loads(line)
            message = message_from_string(one["content"], policy=default)
            mails.append(Mail(one["from"], tuple(one["to"]), message))
        return [one for one in mails if message_id in (None, one.message["Message-ID"])]

    def _find_address(self) -> str:
        found = re.search(r"Running on (127\.0\.0\.1:\d+)", self._program.said)
        return found.group(1) if found else ""

"""A mail server in a process of its own; see `mail_process` for its faults.

Guarantees: a message that the server took is in its file before anything is answered.
Given a certificate it speaks TLS, and takes mail only from shop with the password geheim.
"""

import json
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email import message_from_string
from email.message import EmailMessage
from email.policy import default
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

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

    def __init__(self, *, log_dir: Path, certificate: Path | None = None) -> None:
        self._mails = log_dir / "mails.jsonl"
        arguments = ["-m", MODULE, str(self._mails)]
        arguments += [str(certificate)] if certificate else []
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


def make_certificate(folder: Path) -> Path:
    """A key and its certificate for 127.0.0.1 in one file, trusted by nobody unless named."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mail.test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    plain = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    written = folder / "mail.pem"
    written.write_bytes(key.private_bytes(*plain) + certificate.public_bytes(Encoding.PEM))
    return written

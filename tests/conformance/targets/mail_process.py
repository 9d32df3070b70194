"""Starts PyPI's aiosmtpd on loopback, on a free port: `python -m …mail_process MAILS [PEM]`.

What it takes is a line of JSON in the file MAILS. With a file PEM (key and certificate) it offers
STARTTLS, and takes mail from nobody but shop with the password geheim.

What goes wrong is named by the last recipient. `refused@` and `later@` are no recipients for good
and for now; `gone@` ends the connection when named, `cut@` when the message is to come. The
message to `bounced@` and `busy@` is refused for good and for now; the one to `lost@`, `silent@`
and `odd@` is taken, and answered by the end of the connection, by nothing, and by nonsense.
`stop.17@` stops process 17 before it is told to give the message.
"""

import asyncio
import json
import os
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


class Handler:
    def __init__(self, mails: Path) -> None:
        self._mails = mails

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[Any]
    ) -> str:
        match address.partition("@")[0]:
            case "refused":
                return "550 5.1.1 there is nobody of that name"
            case "later":
                return "450 4.2.1 try again later"
            case "gone":
                _hang_up(server)
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        fault = envelope.rcpt_tos[-1].partition("@")[0]
        match fault:
            case "bounced":
                return "550 5.7.1 this looks like spam"
            case "busy":
                return "451 4.3.0 try again later"
        content = envelope.content
        assert isinstance(content, bytes)
        mail = {"from": envelope.mail_from, "to": envelope.rcpt_tos, "content": content.decode()}
        with self._mails.open("a") as taken:
            taken.write(json.dumps(mail) + "\n")
        match fault:
            case "lost":
                _hang_up(server)
            case "silent":
                await asyncio.Event().wait()
            case "odd":
                return "sure"
        return "250 2.0.0 OK: queued as 4711"


class Server(SMTP):
    async def smtp_DATA(self, arg: str) -> None:
        last = self.envelope.rcpt_tos[-1] if self.envelope and self.envelope.rcpt_tos else ""
        if last.startswith("cut@"):
            _hang_up(self)
            return
        if last.startswith("stop."):
            os.kill(int(last.partition("@")[0].removeprefix("stop.")), signal.SIGSTOP)
        await super().smtp_DATA(arg)


def only_shop(
    server: SMTP, session: Session, envelope: Envelope, mechanism: str, login: LoginPassword
) -> AuthResult:
    known = (login.login, login.password) == (b"shop", b"geheim")
    return AuthResult(success=known, handled=False)


def _hang_up(server: SMTP) -> None:
    assert isinstance(server.transport, asyncio.Transport)
    server.transport.abort()


async def serve(mails: Path, pem: str | None = None) -> None:
    handler = Handler(mails)
    options: dict[str, Any] = {"hostname": "mail.test"}
    if pem is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pem)
        options |= {"tls_context": context, "auth_required": True, "authenticator": only_shop}
    server = await asyncio.get_running_loop().create_server(
        lambda: Server(handler, **options), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    print(f"Running on 127.0.0.1:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), *sys.argv[2:3]))

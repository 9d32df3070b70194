"""Radicale, a CalDAV server, in a process of its own.

Guarantees: one calendar of one user, on loopback; what it holds is read from its folder.
Does not send invitations or look at what an event says.
"""

import base64
import os
from pathlib import Path
from typing import Self

import httpx2

from tests.conformance.targets.loopback import free_port, wait_until_listening
from tests.processes import Program

USER, PASSWORD = "ann", "a secret: ünd lang"


class Radicale:
    """Starts with a `with` block; from the main thread, like every program."""

    def __init__(self, *, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        users = folder / "users"
        users.write_text(f"{USER}:{PASSWORD}\n")
        settings = {
            "server-hosts": f"127.0.0.1:{self._port}",
            "storage-filesystem-folder": str(folder / "calendars"),
            "auth-type": "htpasswd",
            "auth-htpasswd-filename": str(users),
            "auth-htpasswd-encryption": "plain",
            "auth-delay": "0",
            "config": "",
        }
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        self._program = Program(
            *("-m", "radicale", *arguments),
            env=os.environ,
            log=folder / "radicale.log",
            name="radicale",
        )

    def __enter__(self) -> Self:
        wait_until_listening(self._program, self._port)
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def create_calendar(self, name: str) -> str:
        """A new calendar; its path."""
        path = f"/{USER}/{name}/"
        self.request("MKCALENDAR", path).raise_for_status()
        return path

    def events(self, name: str) -> list[str]:
        """The texts of a calendar's events, read from the disk."""
        folder = self._folder / "calendars" / "collection-root" / USER / name
        return [path.read_text() for path in sorted(folder.glob("*.ics"))]

    def request(self, method: str, path: str, content: str | None = None) -> httpx2.Response:
        """One request to the server itself, past every proxy."""
        pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        return httpx2.request(
            method,
            self.url + path,
            headers={"Authorization": f"Basic {pair}", "Content-Type": "text/calendar"},
            content=content,
        )

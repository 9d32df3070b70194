"""MCP servers for tests: two from npm, and one of ours that counts.

Guarantees: every server listens on loopback alone, and one that is started as a program ends with
the test process; on standard streams it ends with the call.
Does not change the npm packages: `server-everything` would listen everywhere, so node is told to
bind it to 127.0.0.1 and to say at which port.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any, Literal, Self

from tests.conformance.targets.loopback import free_port, wait_until_listening
from tests.conformance.targets.notes_file import notes
from tests.conformance.targets.npm import install, need_node
from tests.processes import ROOT, Program, wait_until

VERSION = "2026.8.31"
StdioFault = Literal["lose", "drop", "garble", "hang"]
_ON_LOOPBACK = """data:text/javascript,
import net from "node:net";
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ready) {
  this.once("listening", () => console.log("PORT=" + this.address().port + "."));
  return listen.call(this, { port: 0, host: "127.0.0.1" }, ready);
};
""".replace("\n", " ")


class Notes:
    """The counting server of ours; `honour` makes repeated calls under one key one effect."""

    def __init__(self, *, folder: Path, honour: bool = False) -> None:
        self._folder = folder
        self._file = folder / "notes"
        self._options = ("--honour",) if honour else ()
        self._port = 0
        self._program: Program | None = None

    def __enter__(self) -> Self:
        """Serve streamable HTTP for the time of the block."""
        self._port = free_port()
        self._program = Program(
            *("-m", "tests.conformance.targets.notes_mcp", str(self._file), str(self._port)),
            *self._options,
            env=os.environ,
            log=self._folder / "notes.log",
            name="notes",
        )
        wait_until_listening(self._program, self._port)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._program is not None
        self._program.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def command(self, *, fault: StdioFault | None = None) -> tuple[str, ...]:
        """How to start it on standard streams, behind a relay with a fault if one is named."""
        server = (sys.executable, "-m", "tests.conformance.targets.notes_mcp", str(self._file))
        return relayed((*server, "stdio", *self._options), fault)

    def forget(self) -> None:
        """Let no effect have happened."""
        self._file.unlink(missing_ok=True)

    @property
    def effects(self) -> list[dict[str, Any]]:
        return notes(self._file)


class Everything:
    """npm's `server-everything` on streamable HTTP."""

    def __init__(self, *, folder: Path) -> None:
        package = install("@modelcontextprotocol/server-everything", VERSION)
        node = need_node()
        # `Program` starts Python; this one replaces itself by node.
        start = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
        arguments = (node, "--import", _ON_LOOPBACK, str(package / "dist" / "index.js"))
        self._program = Program(
            *("-c", start, *arguments, "streamableHttp"),
            env=os.environ,
            log=folder / "everything.log",
            name="server-everything",
        )
        self._port = 0

    def __enter__(self) -> Self:
        wait_until(lambda: self._find_port() or not self._program.lives, what="it has a port")
        assert self._port, self._program.said
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def said(self) -> str:
        return self._program.said

    def _find_port(self) -> bool:
        found = re.search(r"PORT=(\d+)\.", self._program.said)
        self._port = int(found.group(1)) if found else 0
        return found is not None


def filesystem(folder: Path, *, fault: StdioFault | None = None) -> tuple[str, ...]:
    """How to start npm's `server-filesystem` on standard streams, allowed into `folder`."""
    package = install("@modelcontextprotocol/server-filesystem", VERSION)
    command = (need_node(), str(package / "dist" / "index.js"), str(folder))
    return relayed(command, fault)


def everything_command() -> tuple[str, ...]:
    """How to start npm's `server-everything` on standard streams."""
    package = install("@modelcontextprotocol/server-everything", VERSION)
    return (need_node(), str(package / "dist" / "index.js"), "stdio")


def relayed(command: tuple[str, ...], fault: StdioFault | None) -> tuple[str, ...]:
    if fault is None:
        return command
    return (sys.executable, "-m", "tests.conformance.targets.stdio_relay", fault, *command)


# Where a command must be started so that Python finds this package.
FOLDER = str(ROOT)

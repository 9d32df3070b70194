"""Start, share and stop one embedded server.

Guarantees:

- Starting is idempotent: the first caller starts the server, every other one shares it,
  and the last one out stops it. A caller that is killed counts as gone at once.
- Whatever a killed process left (pid files, sockets, a server without its keeper)
  never blocks the next start.
- Two processes that start at the same moment get one server.

The server's keeper (keeper.py) does the keeping; this module talks to it by locks only.
Does not know what kind of server it is.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from agentops.embedded.directories import make_private
from agentops.embedded.errors import ServerBusy, ServerDidNotStart
from agentops.embedded.keeper import Plan
from agentops.embedded.locks import Lock, is_free, opened, wait_until

_TURN_SECONDS = 120.0
_READY_SECONDS = 120.0
_SHUTDOWN_SECONDS = 45.0
# The kernel has told an orphaned server to shut down; then it is told more clearly.
_ORPHAN_SECONDS = 10.0
_LOG_BYTES = 8 * 1024 * 1024
_LAST_LINES = 12

_KEEPER = Path(__file__).with_name("keeper.py")


@dataclass(frozen=True)
class Server:
    """A kind of server in one home directory.

    `plan` is called when no process of the server lives, and makes its files.
    `is_ready` says whether it answers now.
    """

    name: str
    home: Path
    plan: Callable[[], Plan]
    is_ready: Callable[[], bool]

    @property
    def log(self) -> Path:
        return self.home / "server.log"


class Use:
    """One caller's use of a running server. It ends with `stop()` or with the process."""

    def __init__(self, server: Server, *, users: Lock) -> None:
        self._server = server
        self._users = users

    @property
    def pid(self) -> int:
        """The server's process id now; it changes when the keeper restarts the server."""
        return int((self._server.home / "server.pid").read_text())

    def revive(self) -> bool:
        """Start the server again if its keeper was killed; says whether that was so."""
        if not is_free(self._server.home / "keeper.lock"):
            return False
        with _turn(self._server):
            _bring_up(self._server)
        return True

    def stop(self) -> None:
        """Let go; when nobody else uses the server, return once it has ended."""
        home = self._server.home
        try:
            if not home.is_dir():
                # Somebody removed the directory: the keeper ends on its own.
                return
            with _turn(self._server):
                if self._is_last():
                    _end_keeper(home)
        finally:
            self._users.close()

    def _is_last(self) -> bool:
        """True with nobody else left; the lock is then ours alone, so nobody new comes in."""
        last = False

        def settled() -> bool:
            nonlocal last
            last = self._users.try_exclusive()
            # Neither lock can be had while the keeper shuts the server down on its own.
            return last or self._users.try_shared()

        wait_until(settled, seconds=_SHUTDOWN_SECONDS)
        return last


def use(server: Server) -> Use:
    """Start the server or join its users. Raises what `errors.py` lists."""
    make_private(server.home)
    with _turn(server):
        users = Lock(server.home / "users.lock")
        try:
            if not users.shared_within(_SHUTDOWN_SECONDS):
                raise ServerBusy(server=server.name, seconds=_SHUTDOWN_SECONDS)
            _bring_up(server)
        except BaseException:
            # Without a user the keeper, if there is one, ends the server.
            users.close()
            raise
    return Use(server, users=users)


def _bring_up(server: Server) -> None:
    keeper = server.home / "keeper.lock"
    while True:
        seen = _size(server.log)
        if is_free(keeper):
            _end_orphan(server)
            _start_keeper(server)
            # The log may have been set aside for a fresh one.
            seen = seen if _size(server.log) >= seen else 0
        _await_answer(server, log_offset=seen)
        if not is_free(keeper):
            _signal(int((server.home / "keeper.pid").read_text()), signal.SIGUSR1)
            return
        # What answered was an orphan in its last moments.


@contextmanager
def _turn(server: Server) -> Iterator[None]:
    """Hold the lock that lets one process at a time start or stop the server."""
    with opened(server.home / "start.lock") as lock:
        if not lock.exclusive_within(_TURN_SECONDS):
            raise ServerBusy(server=server.name, seconds=_TURN_SECONDS)
        yield


def _start_keeper(server: Server) -> None:
    plan = server.plan()
    if _size(server.log) > _LOG_BYTES:
        server.log.replace(server.log.with_suffix(".log.1"))
    descriptor = os.open(server.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        subprocess.run(
            [sys.executable, "-I", "-S", str(_KEEPER), str(server.home)],
            input=json.dumps(asdict(plan)).encode(),
            stdout=descriptor,
            stderr=descriptor,
            # Not in the terminal's process group: Ctrl-C is for the user of the server.
            start_new_session=True,
            check=False,
        )
    finally:
        os.close(descriptor)


def _await_answer(server: Server, *, log_offset: int) -> None:
    keeper = server.home / "keeper.lock"
    ready = False

    def settled() -> bool:
        nonlocal ready
        ready = server.is_ready()
        return ready or is_free(keeper)

    if wait_until(settled, seconds=_READY_SECONDS) and ready:
        return
    reason = "it ended" if is_free(keeper) else f"no answer within {_READY_SECONDS:.0f} s"
    raise ServerDidNotStart(
        server=server.name,
        reason=reason,
        log=server.log,
        last_lines=_last_lines(server.log, offset=log_offset),
    )


def _end_keeper(home: Path) -> None:
    if not is_free(home / "keeper.lock"):
        # The lock is held, so the process that wrote its id lives.
        _signal(int((home / "keeper.pid").read_text()), signal.SIGTERM)
    wait_until(lambda: is_free(home / "server.lock"), seconds=_SHUTDOWN_SECONDS)


def _end_orphan(server: Server) -> None:
    """End a server whose keeper was killed. Afterwards no process of it lives."""
    with opened(server.home / "server.lock") as lock:
        if lock.exclusive_within(_ORPHAN_SECONDS):
            return
        # The lock is held, so a process of the server lives, and this is its parent's id.
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            _signal(int((server.home / "server.pid").read_text()), number)
            if lock.exclusive_within(_ORPHAN_SECONDS):
                return
    raise ServerBusy(server=server.name, seconds=4 * _ORPHAN_SECONDS)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        # It ended by itself between the look at its lock and now.
        return


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _last_lines(log: Path, *, offset: int) -> tuple[str, ...]:
    if not log.exists():
        return ()
    with log.open("rb") as file:
        file.seek(max(offset, _size(log) - 16_384))
        text = file.read().decode(errors="replace")
    return tuple(text.splitlines()[-_LAST_LINES:])

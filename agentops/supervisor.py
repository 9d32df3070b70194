"""Child processes that are watched, restarted and stopped together.

    supervisor = Supervisor(processes, on_line=show)
    with supervisor:
        os.kill(supervisor.pid("worker-1"), signal.SIGKILL)
        supervisor.wait_for("worker-1", other_than=killed)

Guarantees that a child that ends is started again after a delay that grows while it keeps
failing, that `stop()` returns only when no child lives, and that the children die with this
process however it ends (on Linux, where the kernel does it).

Does not know whether a child does its work, only whether it lives. Callbacks run on the
supervisor's thread: a slow one holds up the other children's lines, and what it raises
ends the supervision.
"""

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

from agentops.embedded.identity import SHIM

_POLL_SECONDS = 0.05
_LONGEST_LINE = 64 * 1024


@dataclass(frozen=True)
class Process:
    """One program to keep running.

    `environment` is added to this process's own. Processes with a lower `stop_order` are
    stopped, and have ended, before the next ones are asked to; each gets `grace_seconds`
    between SIGTERM and SIGKILL.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_order: int = 1
    grace_seconds: float = 10.0


@dataclass(frozen=True)
class RestartPolicy:
    """How long to wait before a process that ended is started again."""

    first_delay: float = 0.5
    max_delay: float = 15.0
    # A process that lived this long has recovered: its failures are forgotten.
    healthy_seconds: float = 10.0
    restarts: bool = True

    def delay(self, *, failures: int) -> float | None:
        """Seconds before the restart after the given failure (1, 2, …); None means never."""
        if not self.restarts:
            return None
        doublings = min(failures - 1, 32)
        return float(min(self.first_delay * 2**doublings, self.max_delay))


NEVER_RESTART = RestartPolicy(restarts=False)


@dataclass(frozen=True)
class Ended:
    """A child's end: `status` is its exit code, or the negative number of the signal."""

    name: str
    pid: int
    status: int
    restart_in: float | None

    def __str__(self) -> str:
        how = f"exited with status {self.status}"
        if self.status < 0:
            how = f"was ended by {signal.Signals(-self.status).name}"
        if self.restart_in is None:
            return f"{self.name} {how}"
        return f"{self.name} {how}; starting it again in {self.restart_in:.1f} s"


class SupervisorError(Exception):
    """The supervisor cannot do what it was asked for."""


class UnknownProcess(SupervisorError):
    def __init__(self, *, name: str, known: Iterable[str]) -> None:
        super().__init__(f"No process is called {name}. There are: {', '.join(known)}.")
        self.name = name


class NotRunning(SupervisorError):
    def __init__(self, *, name: str, seconds: float = 0.0) -> None:
        waited = f" after {seconds:.0f} seconds" if seconds else ""
        super().__init__(f"The process {name} is not running{waited}.")
        self.name = name
        self.seconds = seconds


class Supervisor:
    """Keeps `processes` running from `start()` to `stop()`.

    `restart_policy` may be replaced at any time. Safe to call from several threads.
    """

    def __init__(
        self,
        processes: Iterable[Process],
        *,
        restart_policy: RestartPolicy | None = None,
        on_line: Callable[[str, str], None] = lambda name, line: None,
        on_start: Callable[[str, int], None] = lambda name, pid: None,
        on_end: Callable[[Ended], None] = lambda ended: None,
    ) -> None:
        self.restart_policy = restart_policy or RestartPolicy()
        self._on_line = on_line
        self._on_start = on_start
        self._on_end = on_end
        self._children = {process.name: _Child(process) for process in processes}
        self._selector = selectors.DefaultSelector()
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._killing = threading.Event()
        self._failure: BaseException | None = None
        # The kernel's death signal belongs to the thread that started a child, so one thread
        # starts all of them and lives until the last one has ended.
        self._thread = threading.Thread(target=self._supervise, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start every process; returns when all of them have a process id."""
        self._thread.start()
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or all(c.pid or c.ended for c in self._children.values())
            )
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """SIGTERM in order, SIGKILL after the grace; returns when no child lives."""
        self._stopping.set()
        self.wait()

    def kill(self) -> None:
        """Cut all graces short, also of a `stop()` that is under way. Returns at once."""
        self._killing.set()
        self._stopping.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of the supervision; False when the time is over first."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def pid(self, name: str) -> int:
        """The id of a running process. Raises NotRunning, UnknownProcess."""
        pid = self._child(name).pid
        if pid is None:
            raise NotRunning(name=name)
        return pid

    @property
    def pids(self) -> dict[str, int]:
        """The ids of the processes that run now, by name."""
        return {name: child.pid for name, child in self._children.items() if child.pid is not None}

    def wait_for(self, name: str, *, other_than: int | None = None, seconds: float = 30.0) -> int:
        """The id of a process once it runs, or runs again as `other_than` somebody else."""
        child = self._child(name)
        with self._changed:
            found = self._changed.wait_for(lambda: child.pid not in {None, other_than}, seconds)
            if not found or child.pid is None:
                raise NotRunning(name=name, seconds=seconds)
            return child.pid

    def __enter__(self) -> "Supervisor":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _child(self, name: str) -> "_Child":
        if name not in self._children:
            raise UnknownProcess(name=name, known=self._children)
        return self._children[name]

    def _supervise(self) -> None:
        try:
            while not self._stopping.is_set():
                self._start_due()
                self._watch()
            self._end_all()
        except BaseException as error:  # noqa: BLE001  wait() raises it again
            self._failure = error
        finally:
            for child in self._children.values():
                child.abandon()
            self._selector.close()
            self._tell()

    def _start_due(self) -> None:
        for child in self._children.values():
            if child.pid is None and child.due <= time.monotonic():
                pid = child.start()
                self._selector.register(child.output, selectors.EVENT_READ, child)
                self._tell()
                self._on_start(child.process.name, pid)

    def _watch(self) -> None:
        """Pass on what the children say, and notice the ones that ended."""
        for key, _ in self._selector.select(_POLL_SECONDS):
            child: _Child = key.data
            if not self._pass_on(child):
                # Closed, but alive: only its end will tell us more.
                self._selector.unregister(child.output)
                child.closed = True
        for child in self._children.values():
            if child.has_ended():
                self._settle(child)

    def _pass_on(self, child: "_Child") -> bool:
        for line in child.read_lines():
            self._on_line(child.process.name, line)
        return not child.at_end

    def _settle(self, child: "_Child") -> None:
        child.kill()
        while self._pass_on(child) and child.has_more:
            continue
        for line in child.take_rest():
            self._on_line(child.process.name, line)
        if not child.closed:
            self._selector.unregister(child.output)
        pid, status = child.collect(healthy_seconds=self.restart_policy.healthy_seconds)
        delay = None
        if not self._stopping.is_set():
            delay = self.restart_policy.delay(failures=child.failures)
        child.due = float("inf") if delay is None else time.monotonic() + delay
        self._tell()
        self._on_end(Ended(name=child.process.name, pid=pid, status=status, restart_in=delay))

    def _end_all(self) -> None:
        for order in sorted({child.process.stop_order for child in self._children.values()}):
            group = [c for c in self._children.values() if c.process.stop_order == order]
            for child in group:
                child.terminate()
            asked = time.monotonic()
            while any(child.pid is not None for child in group):
                for child in group:
                    if self._killing.is_set() or child.is_overdue(time.monotonic() - asked):
                        child.kill()
                self._watch()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()


class _Child:
    """One process in its successive lives."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.pid: int | None = None
        self.ended = False
        self.closed = False
        self.at_end = False
        self.has_more = False
        self.failures = 0
        self.due = 0.0
        self._popen: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._started = 0.0

    @property
    def output(self) -> int:
        """The descriptor of what the process says on both its streams."""
        if self._popen is None or self._popen.stdout is None:
            raise NotRunning(name=self.process.name)
        return self._popen.stdout.fileno()

    def start(self) -> int:
        guard = ["--parent", str(os.getpid()), "--signal", str(int(signal.SIGKILL))]
        self._popen = subprocess.Popen(
            [*SHIM, *guard, "--", *self.process.argv],
            env={**os.environ, **self.process.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # A group of its own: Ctrl-C reaches us alone, and we stop the children in order.
            start_new_session=True,
        )
        os.set_blocking(self.output, False)
        self._started = time.monotonic()
        self.ended = self.closed = self.at_end = False
        self._pending = b""
        self.pid = self._popen.pid
        return self.pid

    def has_ended(self) -> bool:
        """Whether it ended; its id, which is also its group's, stays taken until `collect()`."""
        if self.pid is None:
            return False
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is not None

    def collect(self, *, healthy_seconds: float) -> tuple[int, int]:
        """Close this life; returns its process id and status."""
        popen = self._popen
        if popen is None or popen.stdout is None:
            raise NotRunning(name=self.process.name)
        popen.stdout.close()
        healthy = time.monotonic() - self._started >= healthy_seconds
        self.failures = 1 if healthy else self.failures + 1
        self.pid, self.ended = None, True
        return popen.pid, popen.wait()

    def read_lines(self) -> Iterator[str]:
        """The lines that can be read without waiting."""
        try:
            read = os.read(self.output, _LONGEST_LINE)
        except BlockingIOError:
            self.has_more = False
            return
        self.has_more, self.at_end = bool(read), not read
        *lines, self._pending = (self._pending + read).split(b"\n")
        for line in lines:
            yield _decode(line)
        if len(self._pending) >= _LONGEST_LINE:
            yield from self.take_rest()

    def take_rest(self) -> Iterator[str]:
        """What was said without an end of line."""
        if self._pending:
            yield _decode(self._pending)
            self._pending = b""

    def is_overdue(self, seconds: float) -> bool:
        return seconds >= self.process.grace_seconds

    def terminate(self) -> None:
        if self._popen is not None and self.pid is not None:
            self._popen.terminate()

    def kill(self) -> None:
        """End the process and everything it started."""
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def abandon(self) -> None:
        """Leave nothing behind after the supervision failed."""
        if self._popen is not None and self.pid is not None:
            self.kill()
            self.collect(healthy_seconds=0)


def _decode(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")

"""Which process this is, and whether another one on the same kernel is gone.

Guarantees: `why_gone` gives a reason only where the kernel rules the process out: nobody
has its id, whoever has it was started at another time, or it has ended and only waits to
be collected. A stopped process is not gone. Facts that cannot be read, as on systems
without /proc, prove nothing.

Does not see other machines or containers. Machines woken from one memory snapshot look
alike unless their host names differ.
"""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


@dataclass(frozen=True)
class Place:
    """Where a process id, with the start time that the kernel shows, means one process.

    `boot_id` and `pid_namespace` are empty where they cannot be read.
    """

    host: str
    boot_id: str
    pid_namespace: str

    @property
    def is_known(self) -> bool:
        return bool(self.boot_id and self.pid_namespace)


def this_place() -> Place:
    """Where this process is."""
    host = socket.gethostname()
    try:
        # The /proc of another namespace would show strangers under our neighbours' ids.
        if os.readlink(_PROC / "self") != str(os.getpid()):
            return Place(host, "", "")
        boot_id = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespaces = os.readlink(_PROC / "self/ns/pid")
    except (OSError, ValueError):
        return Place(host, "", "")
    # A time namespace shifts the start times that its processes read. Kernels before 5.6
    # have none.
    with suppress(OSError):
        namespaces += " " + os.readlink(_PROC / "self/ns/time")
    return Place(host, boot_id, namespaces)


def start_of(pid: int) -> int | None:
    """When the kernel started this process, in clock ticks after boot; None if unreadable."""
    stat = _read_stat(pid)
    return None if stat is None else stat.started


def why_gone(*, pid: int, started: int | None) -> str | None:
    """What shows that a process of this place has ended; None if nothing does."""
    if pid <= 0:
        return None
    # Asked of the kernel, because /proc may hide the processes of other users.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return f"no process {pid}"
    except (PermissionError, OverflowError):
        pass
    stat = _read_stat(pid)
    if stat is None:
        return None
    if started is not None and stat.started != started:
        return f"process {pid} to be another one, started at another time"
    # The first thread may end before the others: then they go on under its id.
    if stat.state in "ZXx" and stat.threads <= 1:
        return f"process {pid} ended and not yet collected"
    return None


@dataclass(frozen=True)
class _Stat:
    state: str
    threads: int
    started: int


def _read_stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
        # The name in parentheses may hold anything; the third field follows it.
        fields = text.rpartition(")")[2].split()
        return _Stat(state=fields[0], threads=int(fields[17]), started=int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None

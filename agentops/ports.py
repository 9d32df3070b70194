"""Whether the ports that the stack wants to listen on are free.

`require_free_port` is a look, not a reservation: another program may still take the
port afterwards. `reserved_port` keeps other users of itself away, and nobody else.
"""

import errno
import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class PortUnusable(Exception):
    """Base of what is wrong with a port; `variable` is the setting to change."""

    def __init__(self, sentence: str, *, port: int, variable: str) -> None:
        super().__init__(f"{sentence} Set {variable} to another port.")
        self.port = port
        self.variable = variable


class PortBusy(PortUnusable):
    def __init__(self, *, host: str, port: int, variable: str) -> None:
        sentence = f"Port {port} on {host} is used by another program."
        super().__init__(sentence, port=port, variable=variable)


class PortForbidden(PortUnusable):
    def __init__(self, *, host: str, port: int, variable: str, reason: str) -> None:
        sentence = f"This program may not listen on {host}, port {port} ({reason})."
        super().__init__(sentence, port=port, variable=variable)


def require_free_port(port: int, *, host: str, variable: str) -> None:
    """Raise PortBusy or PortForbidden unless a server could listen there now."""
    if not 0 < port < 65536:
        raise PortForbidden(host=host, port=port, variable=variable, reason="no port number")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As servers do: connections of an earlier one that still linger are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortBusy(host=host, port=port, variable=variable) from error
            reason = error.strerror or str(error)
            raise PortForbidden(host=host, port=port, variable=variable, reason=reason) from error


@contextmanager
def reserved_port(preferred: int, *, host: str, variable: str) -> Iterator[int]:
    """A free port for the time of the block: the preferred one, or else any.

    Two that ask at one time get two ports, although neither listens yet.
    """
    for port in (preferred, *(_any_free_port(host) for _ in range(20))):
        lock = _lock(port)
        if lock is None:
            continue
        try:
            require_free_port(port, host=host, variable=variable)
        except PortBusy:
            os.close(lock)
            continue
        try:
            yield port
        finally:
            os.close(lock)
        return
    raise PortBusy(host=host, port=preferred, variable=variable)


def _lock(port: int) -> int | None:
    """An open file that holds the port's lock, or None when somebody else does."""
    path = Path(tempfile.gettempdir()) / f"agentops-{os.getuid()}-port-{port}.lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _any_free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port

"""A network that refuses, hangs or swallows answers, below whatever client a tool uses.

The faults of `between.py` are raised around a tool's function; how the function itself
reads a broken connection, and whether its client tries again by itself, shows only here.

Guarantees: every connection that is made by Python's own sockets is met, TLS included, and
noted by its address; what is sent is really sent. For a process of its own: nothing is
put back.
Does not meet clients that bypass Python's sockets (libpq, gRPC) nor pipes: then nothing is
noted, and nothing may be concluded.
"""

import errno
import os
import select
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from tools.testing.diary import Diary

LONGEST_WAIT_SECONDS: Final = 10.0
_TLS_HANDSHAKE: Final = b"\x16\x03"


def refuse_connections(diary: Diary) -> None:
    """From now on nobody takes a connection; each try is noted as "connect"."""

    def refuse(self: socket.socket, address: Any) -> None:
        diary.note("connect", to=str(address))
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    _replace(socket.socket, "connect", lambda _: refuse)


def hang_connections(diary: Diary) -> None:
    """From now on every connection is made, and nobody is at its other end."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    host, port = listening.getsockname()
    nowhere = {socket.AF_INET: (host, port), socket.AF_INET6: (f"::ffff:{host}", port)}

    def hanging(original: Callable[..., Any]) -> Callable[..., Any]:
        def connect(self: socket.socket, address: Any) -> Any:
            diary.note("connect", to=str(address))
            if self.family == socket.AF_INET6:
                self.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            return original(self, nowhere.get(self.family, address))

        # It listens for as long as this does.
        connect.listening = listening  # type: ignore[attr-defined]
        return connect

    _replace(socket.socket, "connect", hanging)


def swallow_answers(diary: Diary) -> None:
    """From now on requests arrive, and what should be read of an answer is a reset instead.

    Notes "connect" and "cut". The reset comes once there is something to read, so that
    the provider has done its part by then.
    """
    made: WeakSet[socket.socket] = WeakSet()
    # Where TLS is spoken above a plain socket (asyncio does), its handshake must get through.
    secret: WeakSet[socket.socket] = WeakSet()

    def connecting(original: Callable[..., Any]) -> Callable[..., Any]:
        def connect(self: socket.socket, address: Any) -> Any:
            made.add(self)
            diary.note("connect", to=str(address))
            return original(self, address)

        return connect

    def sending(original: Callable[..., Any]) -> Callable[..., Any]:
        def send(self: socket.socket, data: Any, *rest: Any) -> Any:
            if _first_bytes(data) == _TLS_HANDSHAKE:
                secret.add(self)
            return original(self, data, *rest)

        return send

    def receiving(original: Callable[..., Any]) -> Callable[..., Any]:
        def receive(self: socket.socket, *rest: Any) -> Any:
            if self not in made or self in secret or isinstance(self, ssl.SSLSocket):
                return original(self, *rest)
            return _cut(diary, self)

        return receive

    def reading(_: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *rest: _cut(diary, self)

    _replace(socket.socket, "connect", connecting)
    for name in ("send", "sendall", "sendmsg"):
        _replace(socket.socket, name, sending)
    for name in ("recv", "recv_into"):
        _replace(socket.socket, name, receiving)
        _replace(ssl.SSLSocket, name, reading)
    # Above a connection that TLS runs on, only the tool's own bytes pass through these.
    _replace(ssl.SSLSocket, "read", reading)
    _replace(ssl.SSLObject, "read", reading)


def _first_bytes(data: Any) -> bytes:
    """Of one buffer, or of the first of several."""
    return bytes(
        (data if isinstance(data, bytes | bytearray | memoryview) else next(iter(data)))[:2]
    )


def _cut(diary: Diary, connection: Any) -> Any:
    if isinstance(connection, socket.socket):
        seconds = connection.gettimeout()
        wait = LONGEST_WAIT_SECONDS if seconds is None else min(seconds, LONGEST_WAIT_SECONDS)
        select.select([connection], [], [], wait)
    diary.note("cut")
    raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


def _replace(
    kind: type, name: str, build: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    setattr(kind, name, build(getattr(kind, name)))

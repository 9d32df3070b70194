"""A network that refuses, hangs, or takes answers away, below whatever client a tool uses.

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
from weakref import WeakKeyDictionary, WeakSet

from tools.testing.diary import Diary

LONGEST_WAIT_SECONDS: Final = 10.0
UNAVAILABLE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
_TLS_HANDSHAKE: Final = b"\x16\x03"

# What is read of an answer instead: of a connection, by the arguments of the method called.
Instead = Callable[..., Any]


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

    def reset(*_: Any) -> Any:
        raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    _replace_answers(diary, reset)


def answer_unavailable(diary: Diary) -> None:
    """From now on requests arrive, and what is read as their answer is an HTTP 503.

    Notes what `swallow_answers` does. A client of another protocol reads nonsense.
    """
    left: WeakKeyDictionary[Any, bytearray] = WeakKeyDictionary()

    def unavailable(connection: Any, *rest: Any) -> Any:
        return _hand_over(left.setdefault(connection, bytearray(UNAVAILABLE)), *rest)

    _replace_answers(diary, unavailable)


def _replace_answers(diary: Diary, instead: Instead) -> None:
    made: WeakSet[socket.socket] = WeakSet()
    # Where TLS is spoken above a plain socket (asyncio does), its handshake must get through.
    secret: WeakSet[socket.socket] = WeakSet()

    def cut(connection: Any, *rest: Any) -> Any:
        _await_answer(connection)
        diary.note("cut")
        return instead(connection, *rest)

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
            return cut(self, *rest)

        return receive

    def reading(_: Callable[..., Any]) -> Callable[..., Any]:
        return cut

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


def _await_answer(connection: Any) -> None:
    if isinstance(connection, socket.socket):
        seconds = connection.gettimeout()
        wait = LONGEST_WAIT_SECONDS if seconds is None else min(seconds, LONGEST_WAIT_SECONDS)
        select.select([connection], [], [], wait)


def _hand_over(answer: bytearray, *rest: Any) -> Any:
    """The next bytes, as `recv(size)`, `recv_into(buffer, size)` or `read(size, buffer)` would."""
    size = next((one for one in rest if isinstance(one, int)), 0) or len(answer)
    buffer = next((one for one in rest if not isinstance(one, int | None)), None)
    part = bytes(answer[: size if buffer is None else min(size, len(buffer))])
    del answer[: len(part)]
    if buffer is None:
        return part
    memoryview(buffer)[: len(part)] = part
    return len(part)


def _replace(
    kind: type, name: str, build: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    setattr(kind, name, build(getattr(kind, name)))

"""The send window: what is marked is when it happened, and what nobody marked is not known."""

import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import httpx
import httpx2
import pytest

from tests.unit.tools.conftest import MakeCall, Serve, Server
from tools import Call
from tools.window import SendWindow, trace

ZERO = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
CLIENTS = pytest.mark.parametrize("library", [httpx2, httpx], ids=["httpx2", "httpx"])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A monotonic clock that stands at 0 and is moved on by hand."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def pass_by(seconds: float) -> None:
        now[0] += seconds

    return pass_by


def _window() -> SendWindow:
    """One that is opened at ZERO, with ten seconds to go."""
    return SendWindow(deadline=ZERO + timedelta(seconds=10), expires_at_monotonic=10.0)


def test_nothing_is_known_before_it_is_marked() -> None:
    assert _window().marks == {}


def test_a_mark_is_a_time_on_the_clock_of_the_deadline(clock: Callable[[float], None]) -> None:
    window = _window()
    clock(3.0)
    window.mark("first_byte")
    clock(9.0)
    window.mark("closed")
    # Past the deadline too: the wall clock of this machine has no say in it.
    assert window.marks == {
        "first_byte": ZERO + timedelta(seconds=3),
        "closed": ZERO + timedelta(seconds=12),
    }


def test_the_first_of_the_first_bytes_and_the_newest_of_the_others_are_kept(
    clock: Callable[[float], None],
) -> None:
    window = _window()
    for _ in range(3):
        clock(1.0)
        window.mark("first_byte")
        window.mark("last_byte")
        window.mark("closed")
    assert window.marks == {
        "first_byte": ZERO + timedelta(seconds=1),
        "last_byte": ZERO + timedelta(seconds=3),
        "closed": ZERO + timedelta(seconds=3),
    }


def test_marks_that_were_read_do_not_change_and_cannot_be_changed(
    clock: Callable[[float], None],
) -> None:
    window = _window()
    seen = window.marks
    window.mark("closed")
    assert seen == {}
    assert set(window.marks) == {"closed"}


def test_every_call_has_a_window_of_its_own_on_its_own_deadline(make_call: MakeCall) -> None:
    one, other = make_call(), make_call()
    one.window.mark("closed")
    assert (set(one.window.marks), other.window.marks) == ({"closed"}, {})
    assert one.window.deadline == one.deadline
    # It says nothing about what the call is.
    assert "window" not in repr(one)


# -- The trace of a client ----------------------------------------------------------------------


@CLIENTS
def test_a_request_marks_its_first_byte_its_last_and_its_close(
    library: type, serve: Serve, make_call: MakeCall
) -> None:
    call = make_call()
    url = serve(_answer).url
    began = _now_by(call)
    with library.Client() as client:
        client.post(url, content=b"x" * 10, extensions={"trace": trace(call)}, timeout=5)
    marks = call.window.marks
    assert list(marks) == ["first_byte", "last_byte", "closed"]
    assert began <= marks["first_byte"] <= marks["last_byte"] <= marks["closed"] <= _now_by(call)


@CLIENTS
def test_a_connection_that_is_refused_marks_nothing(
    library: type, closed_port: int, make_call: MakeCall
) -> None:
    call = make_call()
    with library.Client() as client, pytest.raises(library.ConnectError):
        client.post(
            f"http://127.0.0.1:{closed_port}/", extensions={"trace": trace(call)}, timeout=5
        )
    assert call.window.marks == {}


@CLIENTS
def test_an_answer_that_never_comes_leaves_the_bytes_marked(
    library: type, serve: Serve, make_call: MakeCall
) -> None:
    call = make_call()
    url = serve(_read_and_hold).url
    with library.Client() as client, pytest.raises(library.ReadTimeout):
        client.post(url, content=b"x", extensions={"trace": trace(call)}, timeout=0.2)
    assert {"first_byte", "last_byte"} <= set(call.window.marks)


@CLIENTS
def test_two_requests_of_one_call_are_one_window(
    library: type, serve: Serve, make_call: MakeCall
) -> None:
    call = make_call()
    url = serve(_answer).url
    with library.Client() as client:
        client.post(url, content=b"1", extensions={"trace": trace(call)}, timeout=5)
        first = call.window.marks
        client.post(url, content=b"2", extensions={"trace": trace(call)}, timeout=5)
    both = call.window.marks
    assert both["first_byte"] == first["first_byte"]
    assert both["last_byte"] > first["last_byte"]


def _answer(server: Server, connection: socket.socket) -> None:
    server.read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")


def _read_and_hold(server: Server, connection: socket.socket) -> None:
    server.read_request(connection)
    server.stopping.wait(10)


def _now_by(call: Call) -> datetime:
    return call.deadline - timedelta(seconds=call.seconds_left())

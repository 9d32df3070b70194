"""A table beside the kernel's, and a TRANSACTIONAL tool that writes to it."""

from collections.abc import Callable
from typing import Any

from runs.models import AgentRun
from tests.database.kit import Script, another_connection, call_once, change, scripted_tool
from tools import Call, EffectType

Start = Callable[..., AgentRun]


def book(call: Call) -> str:
    """Write one row, on the connection that the kernel lends to the function."""
    change("INSERT INTO till VALUES (%s, %s)", call.operation_id, call.attempt)
    return "booked"


def booking(*answers: Any, **declared: Any) -> Script:
    """A TRANSACTIONAL tool that books, or does what `answers` say."""
    given = answers or (book,) * 9
    declared = {"effect": EffectType.TRANSACTIONAL, "provider": None} | declared
    return scripted_tool(*given, **declared)


def start_booking(start: Start, *answers: Any, **declared: Any) -> tuple[AgentRun, Script]:
    """A run that books once, and the script of its tool."""
    script = booking(*answers, **declared)
    return start(decider=call_once(), tools=("pay",)), script


def booked() -> list[str]:
    """The operations that are booked, as another connection sees them."""
    with another_connection() as other:
        return [row[0] for row in other.execute("SELECT operation FROM till ORDER BY 1").fetchall()]


def end_backend(pid: int) -> None:
    """End the server's side of a connection."""
    with another_connection() as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

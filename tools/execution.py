"""Runs tool functions and look-ups under a deadline that holds even if they do not.

Guarantees: `execute` and `look_up` come back by the call's deadline; a function that is
still running then is reported as unknown, stays listed by `in_flight`, and its answer is
handed to `on_late` when it comes; a blocked function delays no other call; a function is
not started after the deadline.
Does not stop a running function, and does not know of requests that outlive it.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tools.call import Call
from tools.errors import InvalidArguments, NoAnswer, NoThread, NotSent, UnreadableResult, readable
from tools.jobs import Job, abandoned, in_flight, wait_until_back
from tools.outcome import Committed, Outcome, Unknown, Unsent, classify, describe
from tools.reconciled import Reconciled
from tools.results import encode_result, noting_references, read_reference
from tools.spec import ToolSpec

__all__ = [
    "Execution",
    "abandoned",
    "begin",
    "execute",
    "execute_here",
    "in_flight",
    "look_up",
    "run_within",
    "wait_until_back",
]

T = TypeVar("T")
logger = logging.getLogger(__name__)

TOO_LATE = Unsent("the deadline had passed before the call was started")


def execute(*, spec: ToolSpec, call: Call, on_late: Callable[[Outcome], None]) -> Outcome:
    """Call the tool in another thread and wait for it no longer than the deadline allows.

    `on_late` is called from that thread, at most once, if the outcome came after this
    function had returned or was interrupted. Raises only what interrupts the waiting
    thread itself.
    """
    with begin(spec=spec, call=call, on_late=on_late) as execution:
        return execution.wait()


def begin(*, spec: ToolSpec, call: Call, on_late: Callable[[Outcome], None]) -> "Execution":
    """Call the tool in another thread, and go on. `on_late` as in `execute`.

    Use it as a context: whoever leaves it before the outcome came hears of it late.
    """
    seconds = call.seconds_left()
    if seconds <= 0:
        return Execution.ended(call, TOO_LATE)
    try:
        bound = spec.bind(call.arguments)
    except InvalidArguments as error:
        unfit = Unsent(f"the stored arguments no longer fit the tool: {error}")
        return Execution.ended(call, unfit)
    job = Job(
        work=lambda: _perform(spec=spec, call=call, bound=bound),
        on_crash=lambda error: Unknown(describe(error), "crash"),
        on_late=on_late,
        on_end=_close_connections,
        operation_id=call.operation_id,
    )
    try:
        job.start()
    except NoThread as error:
        return Execution.ended(call, Unsent(str(error)))
    return Execution(call=call, job=job, seconds=seconds, outcome=None)


class Execution:
    """One call on its way: `wait` for its outcome inside its context."""

    def __init__(
        self, *, call: Call, job: "Job[Outcome] | None", seconds: float, outcome: Outcome | None
    ) -> None:
        self._call = call
        self._job = job
        self._seconds = seconds
        self._outcome = outcome

    @classmethod
    def ended(cls, call: Call, outcome: Outcome) -> "Execution":
        """One that was not begun."""
        return cls(call=call, job=None, seconds=0, outcome=outcome)

    def wait(self) -> Outcome:
        """Its outcome, at the call's deadline at the latest."""
        if self._outcome is None and self._job is not None:
            self._outcome = self._job.wait(max(self._call.seconds_left(), 0))
        if self._outcome is None:
            why = f"no answer within {self._seconds:.1f} s; the call is still running"
            self._outcome = Unknown(why, "deadline")
        return self._outcome

    def __enter__(self) -> "Execution":
        return self

    def __exit__(self, *_: object) -> None:
        if self._outcome is None and self._job is not None:
            self._job.abandon()


def execute_here(*, spec: ToolSpec, call: Call) -> Outcome:
    """Call a TRANSACTIONAL tool in this thread, on the transaction that is open here.

    Its deadline is not enforced: it asks nobody outside, and its statements have the
    database's own time-outs.
    """
    try:
        bound = spec.bind(call.arguments)
    except InvalidArguments as error:
        return Unsent(f"the stored arguments no longer fit the tool: {error}")
    return _run_tool(spec=spec, call=call, bound=bound)


def look_up(*, spec: ToolSpec, call: Call) -> Reconciled[Any]:
    """Ask the tool's `reconcile_handler` what became of the operation, by the deadline.

    An error, a time-out, a missing handler or an unreadable answer is an indeterminate
    verdict with `failed` set: no look-up took place. The result is encoded like a tool's.
    """
    handler = spec.reconcile_handler
    if handler is None:
        return _failed(f"{spec.name} has no reconcile_handler")
    seconds = call.seconds_left()
    if seconds <= 0:
        return _failed("the deadline had passed before it was started")
    job = Job(
        work=lambda: _ask(handler=handler, call=call),
        on_crash=lambda error: _failed(describe(error)),
        on_late=_forget,
        operation_id=None,
    )
    try:
        found = job.finish_within(seconds)
    except NoThread as error:
        return _failed(str(error))
    return found if found is not None else _failed(f"no answer within {seconds:.1f} s")


def run_within(work: Callable[[], T], *, seconds: float) -> T:
    """What `work` returns, called in another thread; raises what it raised.

    Raises NoAnswer when it is not back in time (its thread is then counted by `abandoned`)
    or raised what is no Exception, and NoThread when it could not be started.
    """
    job = Job(
        work=lambda: _answer(work),
        on_crash=_Raised,
        on_late=_forget,
        operation_id=None,
    )
    match job.finish_within(seconds):
        case None:
            raise NoAnswer(f"no answer within {seconds:.1f} s")
        case _Raised(error=Exception() as error):
            raise error
        case _Raised(error=error):
            raise NoAnswer(describe(error)) from error
        case _Returned(value=value):
            return value


def _perform(*, spec: ToolSpec, call: Call, bound: dict[str, Any]) -> Outcome:
    _use_own_connections()
    try:
        # A process that was stopped after the check above may only now come to this line.
        return (
            TOO_LATE if call.seconds_left() <= 0 else _run_tool(spec=spec, call=call, bound=bound)
        )
    finally:
        _close_connections()


def _run_tool(*, spec: ToolSpec, call: Call, bound: dict[str, Any]) -> Outcome:
    with noting_references():
        try:
            result, reference = encode_result(_finish(spec.function(call, **bound)))
        except UnreadableResult as error:
            return Unknown(describe(error), "body")
        except BaseException as error:  # noqa: BLE001 (classified, never lost)
            return _read_failure(error, call=call)
    return Committed(result, reference)


def _read_failure(error: BaseException, *, call: Call) -> Outcome:
    outcome = classify(error)
    guessed = isinstance(outcome, Unsent) and not isinstance(error, NotSent)
    if guessed and call.timeouts_given != 1:
        # One request could not be sent, but there may have been another: `remaining` was
        # asked for twice, or never, so how many there were is not known.
        return Unknown(
            f"{outcome.reason}; an earlier request of this call may have left", "connect"
        )
    return outcome


def _use_own_connections() -> None:
    """Keep what this thread opens out of the kernel's connection pools.

    A function that never comes back must not take a seat with it that claims, renewals and
    sweeps need; nor may what it did to its session reach them.
    """
    if getattr(_thread, "has_own_connections", False) or "django.db" not in sys.modules:
        return
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        return
    for alias in connections:
        # The wrapper is this thread's alone; the dictionaries in it are everybody's.
        own = connections[alias]
        options = {**own.settings_dict.get("OPTIONS", {})}
        options.pop("pool", None)
        own.settings_dict = {**own.settings_dict, "OPTIONS": options}
    _thread.has_own_connections = True


def _ask(*, handler: Callable[..., Any], call: Call) -> Reconciled[Any]:
    try:
        with noting_references():
            found = _finish(handler(call))
            if not isinstance(found, Reconciled):
                return _failed(f"the handler returned {type(found).__qualname__}, not Reconciled")
            verdict: str = found.verdict  # whatever the handler put there
            match verdict:
                case "committed":
                    result, reference = encode_result(found.result)
                    said = read_reference(found.external_ref)
                    # Each is a duplicate to be counted, with a name or without.
                    also = [
                        read_reference(one) or f"further effect {number}"
                        for number, one in enumerate(found.also, start=1)
                    ]
                    return Reconciled.committed(result, external_ref=said or reference, also=also)
                case "not_found":
                    return Reconciled.not_found()
                case "indeterminate":
                    return Reconciled.indeterminate(found.why, failed=found.failed)
            return _failed(f"the handler's verdict was {readable(verdict)[:80]!r}")
    except BaseException as error:  # noqa: BLE001 (a look-up that failed is a verdict)
        return _failed(describe(error))
    finally:
        _close_connections()


def _failed(why: str) -> Reconciled[Any]:
    return Reconciled.indeterminate(f"look-up failed: {why}", failed=True)


def _forget(_: object) -> None:
    """What comes too late has been reported as missing; the next try asks again."""


@dataclass(frozen=True)
class _Returned(Generic[T]):
    value: T


@dataclass(frozen=True)
class _Raised:
    error: BaseException


def _answer(work: Callable[[], T]) -> _Returned[T] | _Raised:
    _use_own_connections()
    try:
        return _Returned(work())
    except BaseException as error:  # noqa: BLE001 (handed to the waiting thread)
        return _Raised(error)
    finally:
        _close_connections()


def _finish(value: Any) -> Any:
    return asyncio.run(value) if asyncio.iscoroutine(value) else value


def _close_connections() -> None:
    """Give back what the function opened: a reused thread would keep it, unseen by Django."""
    if "django.db" not in sys.modules:
        return
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        return
    for connection in connections.all(initialized_only=True):
        try:
            connection.close()
        except Exception:
            # Broken already; the outcome must not be lost over it.
            logger.warning("a tool's database connection did not close", exc_info=True)
        if connection.in_atomic_block:
            # A transaction that was begun and never left: the next call gets a new wrapper.
            del connections[connection.alias]
            _thread.has_own_connections = False


_thread = threading.local()

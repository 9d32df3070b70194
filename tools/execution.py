"""Runs tool functions and look-ups under a deadline that holds even if they do not.

Guarantees: `execute` and `look_up` come back by the call's deadline; a function that is
still running then is reported as unknown, stays listed by `in_flight`, and its answer is
handed to `on_late` when it comes; a blocked function delays no other call; a function is
not started after the deadline.
Does not stop a running function, and does not know of requests that outlive it.
"""

import asyncio
import contextvars
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tools.call import Call
from tools.errors import InvalidArguments, NoAnswer, NoThread, NotSent, UnreadableResult, readable
from tools.outcome import Committed, Outcome, Unknown, Unsent, classify, describe
from tools.reconciled import Reconciled
from tools.results import encode_result, noting_references, read_reference
from tools.spec import ToolSpec
from tools.threads import GrowingPool, reset_after_fork

T = TypeVar("T")
logger = logging.getLogger(__name__)

TOO_LATE = Unsent("the deadline had passed before the call was started")


def execute(*, spec: ToolSpec, call: Call, on_late: Callable[[Outcome], None]) -> Outcome:
    """Call the tool in another thread and wait for it no longer than the deadline allows.

    `on_late` is called from that thread, at most once, if the outcome came after this
    function had returned or was interrupted. Raises only what interrupts the waiting
    thread itself.
    """
    seconds = call.seconds_left()
    if seconds <= 0:
        return TOO_LATE
    try:
        bound = spec.bind(call.arguments)
    except InvalidArguments as error:
        return Unsent(f"the stored arguments no longer fit the tool: {error}")
    job = _Job(
        work=lambda: _perform(spec=spec, call=call, bound=bound),
        on_crash=lambda error: Unknown(describe(error), "crash"),
        on_late=on_late,
        operation_id=call.operation_id,
    )
    try:
        outcome = job.finish_within(seconds)
    except NoThread as error:
        return Unsent(str(error))
    if outcome is None:
        return Unknown(f"no answer within {seconds:.1f} s; the call is still running", "deadline")
    return outcome


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
    job = _Job(
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
    job = _Job(
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


def abandoned() -> int:
    """How many functions of this process are past their deadline and not back."""
    with _running_lock:
        return len(_overdue)


def in_flight() -> frozenset[str]:
    """Operation ids whose function has not returned yet in this process, deadline or not."""
    with _running_lock:
        return frozenset(_running)


def wait_until_back(*, seconds: float) -> bool:
    """Wait for the functions that are still out, so that their answers are heard; False if some
    are not back in time. For a process that is about to end."""
    until = time.monotonic() + seconds
    while in_flight():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


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


class _Job(Generic[T]):
    """One function on its way: exactly one of waiter and `on_late` gets what it returns."""

    def __init__(
        self,
        *,
        work: Callable[[], T],
        on_crash: Callable[[BaseException], T],
        on_late: Callable[[T], None],
        operation_id: str | None,
    ) -> None:
        self._work = work
        self._on_crash = on_crash
        self._on_late = on_late
        self._operation_id = operation_id
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._result: T | None = None
        self._abandoned = False

    def finish_within(self, seconds: float) -> T | None:
        """The result, or None if it did not come in time; then `on_late` will get it.

        Raises NoThread if nothing was started, and whatever interrupts this thread.
        """
        try:
            _mark_running(self._operation_id)
            _pool.start(self._run)
            self._done.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
        except NoThread:
            _mark_returned(self._operation_id)
            raise
        except BaseException:
            with self._lock:
                self._abandoned, result = True, self._result
            if result is not None:
                self._tell_late(result)
            raise
        with self._lock:
            self._abandoned = self._result is None
            if self._abandoned:
                _mark_overdue(self)
            return self._result

    def _run(self, free_thread: Callable[[], None]) -> None:
        try:
            result = self._context.run(self._work)
        except BaseException as error:  # noqa: BLE001 (a waiter must never be left waiting)
            result = self._on_crash(error)
        with self._lock:
            late = self._abandoned
            if not late:
                _mark_returned(self._operation_id)
                free_thread()
                self._result = result
        if not late:
            self._done.release()
            return
        # Still listed as in flight: nobody may conclude before this evidence is written.
        self._tell_late(result)
        _unmark_overdue(self)
        _close_connections()
        _mark_returned(self._operation_id)

    def _tell_late(self, result: T) -> None:
        try:
            self._context.run(self._on_late, result)
        except Exception:
            logger.exception("late outcome of %s was not recorded", self._operation_id)


_thread = threading.local()
_overdue: set[object] = set()
_running: Counter[str] = Counter()
_running_lock = threading.Lock()
_pool = GrowingPool()


def _mark_overdue(job: object) -> None:
    with _running_lock:
        _overdue.add(job)


def _unmark_overdue(job: object) -> None:
    with _running_lock:
        _overdue.discard(job)


def _mark_running(operation_id: str | None) -> None:
    if operation_id is not None:
        with _running_lock:
            _running[operation_id] += 1


def _mark_returned(operation_id: str | None) -> None:
    if operation_id is not None:
        with _running_lock:
            _running[operation_id] -= 1
            if _running[operation_id] <= 0:
                del _running[operation_id]


def _reset() -> None:
    global _pool, _running_lock
    _pool, _running_lock = GrowingPool(), threading.Lock()
    _running.clear()
    _overdue.clear()


reset_after_fork(_reset)

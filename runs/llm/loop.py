"""The event loop of this process on which llms are asked.

Guarantees: whoever waits has an answer, an error or `TimeoutError` by the deadline, and the
request is then given up: its connection is closed. A forked child starts with a loop of its own.

One loop for all requests, because the clients of providers keep connections open that belong to
the loop they were opened on: asked from a new loop each time, a client that somebody built
themselves fails at the second request.

Does not free a request whose client blocks the loop's thread itself: those of Pydantic AI do not.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loops: Final[list[asyncio.AbstractEventLoop]] = []


def run_on_loop(begin: Callable[[], Coroutine[Any, Any, T]], *, seconds: float) -> T:
    """What the coroutine that `begin` makes comes to; raises what it raised, or TimeoutError."""
    asked: Future[T] = asyncio.run_coroutine_threadsafe(begin(), _open_loop())
    try:
        return asked.result(seconds)
    except BaseException:
        asked.cancel()
        raise


def _open_loop() -> asyncio.AbstractEventLoop:
    with _lock:
        if not _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="llm", daemon=True).start()
            _loops.append(loop)
        return _loops[0]


def _forget_after_fork() -> None:
    """The parent's loop has no thread here, and its lock may have been held."""
    global _lock
    _lock = threading.Lock()
    _loops.clear()


os.register_at_fork(after_in_child=_forget_after_fork)

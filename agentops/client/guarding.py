"""Plain functions that are carried out by the gateway.

Guarantees: within a thread the n-th call of a tool is the same operation each time the program
runs, so a program that is started again with the same thread is answered with what is recorded
until it comes to what was not done yet.

Does not run the function's body: its signature says what the arguments are, and its return
annotation what the result is.
"""

import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast, get_type_hints

from pydantic import TypeAdapter

from agentops.client.clients import AsyncClient, Client
from agentops.client.places import Flow, NoPlace, Place, flow, refuse_side_by_side
from agentops.client.results import Operation

F = TypeVar("F", bound=Callable[..., Any])
KeyOf = str | Callable[..., str]


class Thread:
    """One job or conversation, and how often it has called each tool."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._flows: dict[str, Flow] = {}

    def next_place(self, tool: str) -> Place:
        with self._lock:
            this = flow()
            refuse_side_by_side(tool, self._flows.setdefault(tool, this), this)
            self._calls[tool] += 1
            return Place(self.name, 0, f"{tool}#{self._calls[tool]}")


_current: ContextVar[Thread | None] = ContextVar("agentops_thread", default=None)


@contextmanager
def thread(name: str) -> Iterator[Thread]:
    """The calls of guarded functions in here belong to this job or conversation.

    `name` stays the same when the program is started again, and is new for a new job. Calls of
    one tool that run side by side have no order: without keys they raise NoPlace.
    """
    if not name:
        raise ValueError("thread: it has no name; give one that the job keeps, as in 'import-7'")
    made = Thread(name)
    token = _current.set(made)
    try:
        yield made
    finally:
        _current.reset(token)


def guarded(
    client: Client | AsyncClient,
    *,
    tool: str | None = None,
    key: KeyOf | None = None,
    wait: float | None = None,
) -> Callable[[F], F]:
    """Have calls of the function carried out by the gateway, as calls of `tool` (its name).

    With `key`, a text such as "refund-{order_id}" or a function of the arguments, that names the
    call; without, the call's place in the `thread` does. The result is validated by the return
    annotation. Raises StillPending, OutcomeUncertain or CallDenied where there is no result, and
    what `Client.operation` raises.
    """

    def guard(function: F) -> F:
        call = _Guarded(function, tool=tool or function.__name__, key=key)
        made: Callable[..., Any]
        if isinstance(client, AsyncClient):
            if not inspect.iscoroutinefunction(function):
                raise TypeError(f"{function.__name__} is no coroutine function; use a Client")

            async def call_async(*args: Any, **kwargs: Any) -> Any:
                return call.read(await client.operation(**call.bind(args, kwargs), wait=wait))

            made = call_async
        else:
            if inspect.iscoroutinefunction(function):
                raise TypeError(f"{function.__name__} is a coroutine function; use an AsyncClient")

            def call_plain(*args: Any, **kwargs: Any) -> Any:
                return call.read(client.operation(**call.bind(args, kwargs), wait=wait))

            made = call_plain
        return cast(F, functools.wraps(function)(made))

    return guard


class _Guarded:
    def __init__(self, function: Callable[..., Any], *, tool: str, key: KeyOf | None) -> None:
        self._tool, self._key = tool, key
        self._signature = inspect.signature(function)
        for one in self._signature.parameters.values():
            if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
                raise TypeError(f"{function.__name__}: *{one.name} names no argument of a tool")
        returned = get_type_hints(function).get("return", Any)
        self._result: TypeAdapter[Any] = TypeAdapter(returned)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What the client is called with."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        asked: dict[str, Any] = {"tool": self._tool, "arguments": arguments}
        current = _current.get()
        if self._key is not None:
            asked["key"] = (
                self._key.format(**arguments)
                if isinstance(self._key, str)
                else self._key(**arguments)
            )
            return asked | ({"thread": current.name} if current else {})
        if current is None:
            raise NoPlace(
                f"{self._tool}: nothing names the call after a crash; call it within "
                "`with thread(…)`, or give guarded a key"
            )
        place = current.next_place(self._tool)
        return asked | {
            "key": place.key(arguments),
            "thread": place.thread,
            "step": place.step,
            "action": place.action,
        }

    def read(self, operation: Operation) -> Any:
        return self._result.validate_python(operation.value())

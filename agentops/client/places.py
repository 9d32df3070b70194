"""Where in an agent's own history a call stands: what its key is made of.

Guarantees: the same place is the same operation, whatever key comes with it; a place says nothing
of the arguments, so a decision that was made anew after a crash meets what the first one did.
Where it is not certain that a place is the same after a crash, and another one for another call,
there is none, and nothing is called: NoPlace.

Does not use an llm's call id: a step that is decided again has another one, and some servers give
one id to every call. Calls that are alike in all they say are numbered as they start, since it
makes no difference which of them is which.
"""

import asyncio
import hashlib
import itertools
import json
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock, get_ident
from typing import Any, Final, TypeAlias

from pydantic_core import to_jsonable_python

from agentops.client.errors import ClientError
from agentops.client.plain import to_plain

LONGEST_THREAD: Final = 200
LONGEST_ACTION: Final = 100
LAST_STEP: Final = 2**31 - 1
# Of the threads that began in this process.
MOST_BEGINNINGS: Final = 10_000


class NoPlace(ClientError):
    """The framework does not say where the call stands, so nothing could name it after a crash."""


@dataclass(frozen=True)
class Place:
    """The call `action` of step `step` of the conversation or job `thread`."""

    thread: str
    step: int
    action: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "thread", _short(self.thread, LONGEST_THREAD))
        object.__setattr__(self, "action", _short(self.action, LONGEST_ACTION))
        if not 0 <= self.step <= LAST_STEP:
            raise ValueError(f"step: {self.step} is not possible; give 0 to {LAST_STEP}")

    def key(self, arguments: Mapping[str, Any]) -> str:
        """The idempotency key of the call with these arguments.

        They are part of it so that the gateway finds the place, and with it what was done there,
        where a decision that was made anew has other arguments.
        """
        said = [self.thread, self.step, self.action, to_plain(dict(arguments))]
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return f"place:{hashlib.sha256(text.encode()).hexdigest()}"


Flow: TypeAlias = tuple[int, object]


def flow() -> Flow:
    """The thread and the task of asyncio that the caller runs in: what has one order."""
    try:
        return get_ident(), asyncio.current_task()
    except RuntimeError:
        return get_ident(), None


def refuse_side_by_side(tool: str, first: Flow, this: Flow) -> None:
    """Raises NoPlace for calls that are numbered as they start, and have no order."""
    if first != this:
        raise NoPlace(
            f"{tool}: calls of it are made side by side, in threads or tasks, so another one may "
            "be the first after a crash; make them one by one, or give them keys"
        )


class Numbers:
    """Counts the calls of one execution of a step, for as long as that execution lives."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[int, dict[Hashable, tuple[itertools.count[int], Flow | None]]] = {}

    def next(self, execution: object, what: Hashable, *, within: Flow | None = None) -> int:
        """0 for the first call of `what` in this execution, then 1, …

        Raises NoPlace where they are not all made `within` one flow, if it is given.
        """
        with self._lock:
            counts = self._counts.get(id(execution))
            if counts is None:
                counts = self._counts[id(execution)] = {}
                # Before another object may come to have its id.
                weakref.finalize(execution, self._counts.pop, id(execution), None)
            count, first = counts.setdefault(what, (itertools.count(), within))
            if within is not None and first is not None:
                refuse_side_by_side(str(what), first, within)
            return next(count)


class Beginnings:
    """What the threads of this process began with, as far as it is remembered."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seen: OrderedDict[str, str] = OrderedDict()

    def check(self, thread: str, beginning: Any) -> None:
        """Raises NoPlace where the thread began with something else before."""
        text = json.dumps(
            to_jsonable_python(beginning, bytes_mode="base64", fallback=repr), sort_keys=True
        )
        digest = hashlib.sha256(text.encode()).hexdigest()
        with self._lock:
            known = self._seen.setdefault(thread, digest)
            self._seen.move_to_end(thread)
            if len(self._seen) > MOST_BEGINNINGS:
                self._seen.popitem(last=False)
        if known != digest:
            raise NoPlace(
                f"{thread[:LONGEST_THREAD]!r} began before with another prompt, so its calls would "
                "be answered with what was done there; give a new job or an agent within an agent "
                "a name of its own, and a conversation that goes on the messages it had"
            )


@dataclass(frozen=True)
class Asked:
    """A call, as the decision has it: the name that the llm knows the tool by, id, arguments."""

    tool: str
    call_id: str | None
    arguments: Any


def ordinal(calls: Sequence[Asked], *, call: Asked, started: Callable[[Hashable], int]) -> int:
    """Which of the decision's calls of its tool `call` is: 0 for the first.

    The id finds the call within its own decision, and goes no further. Among those that share it
    the arguments do; only those that are alike in all of it are numbered by `started`. Raises
    NoPlace where the decision does not have the call.
    """
    ours = [one for one in calls if one.tool == call.tool]
    found = [number for number, one in enumerate(ours) if one.call_id == call.call_id]
    if len(found) == 1:
        return found[0]
    alike = [number for number in found if ours[number].arguments == call.arguments]
    if len(alike) == 1:
        return alike[0]
    if alike:
        count = started((call.tool, call.call_id, alike[0]))
        if count < len(alike):
            return alike[count]
    raise NoPlace(
        f"{call.tool}: the llm's answer has no such call (id {str(call.call_id)[:64]!r}), so "
        "nothing names it after a crash; have the tool called as the llm asked for it, or call "
        "it by `agentops.client.Client` with a key"
    )


def _short(text: str, longest: int) -> str:
    """The text, or as much of it as there is room for beside a digest of the whole."""
    if len(text) <= longest:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:40]
    return f"{text[: longest - len(digest) - 1]}~{digest}"

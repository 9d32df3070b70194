"""Where in an agent's own history a call stands: what its key is made of.

Guarantees: the same place is the same operation, whatever key comes with it; a place says nothing
of the arguments, so a decision that was made anew after a crash meets what the first one did.

Does not use an llm's call id: a step that is decided again has another one, and some servers give
one id to every call.
"""

import hashlib
import itertools
import json
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from pydantic_core import to_jsonable_python

from agentops.client.errors import ClientError

LONGEST_THREAD: Final = 200
LONGEST_ACTION: Final = 100
LAST_STEP: Final = 2**31 - 1


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
        said = [self.thread, self.step, self.action, to_jsonable_python(dict(arguments))]
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return f"place:{hashlib.sha256(text.encode()).hexdigest()}"


class Numbers:
    """Counts the calls of one execution of a step, for as long as that execution lives."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[int, dict[Hashable, itertools.count[int]]] = {}

    def next(self, execution: object, what: Hashable) -> int:
        """0 for the first call of `what` in this execution, then 1, …"""
        with self._lock:
            counts = self._counts.get(id(execution))
            if counts is None:
                counts = self._counts[id(execution)] = {}
                # Before another object may come to have its id.
                weakref.finalize(execution, self._counts.pop, id(execution), None)
            return next(counts.setdefault(what, itertools.count()))


def ordinal(
    calls: Sequence[tuple[str, str | None]],
    *,
    tool: str,
    call_id: str | None,
    started: Callable[[Hashable], int],
) -> int:
    """Which of the decision's calls of `tool` this is: 0 for the first.

    `calls` are the decision's, as (tool, id); none where there was no decision. The id finds the
    call within its own decision, and goes no further. Where it does not tell two calls apart,
    `started` says how many like it were started before.
    """
    ours = [one for name, one in calls if name == tool]
    alike = [number for number, one in enumerate(ours) if one == call_id]
    if len(alike) == 1:
        return alike[0]
    count = started((tool, call_id if alike else None))
    return alike[count] if count < len(alike) else len(ours) + count


def _short(text: str, longest: int) -> str:
    """The text, or as much of it as there is room for beside a digest of the whole."""
    if len(text) <= longest:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:40]
    return f"{text[: longest - len(digest) - 1]}~{digest}"

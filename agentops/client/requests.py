"""A call as requests and pauses, without a socket: what both clients have in common.

Guarantees: whatever is sent again is sent with the same key and the same body; it is sent again
where nobody answered, where the gateway asked for later, and while the first request is being
answered; nothing is taken for an answer that is none.

Does not send: `clients` does, with or without async.
"""

import json
import random
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

import httpx2
from pydantic_core import PydanticSerializationError

from agentops.client.errors import (
    ActionReused,
    KeyForgotten,
    KeyReused,
    NotAGateway,
    NotAllowed,
    Refused,
    RunEnded,
    Unreachable,
)
from agentops.client.plain import to_plain
from agentops.client.results import Operation, read_operation

LONGEST_KEY: Final = 255
# What the gateway waits at the most within one request.
LONGEST_WAIT: Final = 60.0
# How long the gateway waits for whoever does not say; then it answers what it knows.
PATIENCE_OF_GATEWAY: Final = 30.0
# Over the wait itself: for the network, and for a gateway that is busy.
MARGIN_SECONDS: Final = 15.0
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0

# A gateway, or what stands before it, that cannot answer at this moment.
_LATER: Final = frozenset({429, 500, 502, 503, 504})
_REFUSALS: Final[Mapping[str, type[Refused]]] = {
    "key-reused": KeyReused,
    "action-reused": ActionReused,
    "key-forgotten": KeyForgotten,
    "wrong-state": RunEnded,
}


@dataclass(frozen=True, kw_only=True)
class Send:
    """A request that is to be made. `path` is below the API's address."""

    method: str
    path: str
    seconds: float
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None


@dataclass(frozen=True)
class Pause:
    seconds: float


Answer: TypeAlias = httpx2.Response | httpx2.RequestError | None
T = TypeVar("T")
Steps: TypeAlias = Generator[Send | Pause, Answer, T]


def call(
    body: Mapping[str, Any], *, key: str, wait: float | None, patience: float
) -> Steps[Operation]:
    """Have a tool called once.

    Waits for `wait` seconds for it to be settled; with None until it is settled or known to take
    long. Nobody answering is put up with for `patience` seconds. Raises one of `errors`, and
    ValueError where there is nothing that could be sent.
    """
    _check_key(key)
    ends = None if wait is None else time.monotonic() + wait
    said = {name: value for name, value in body.items() if value not in (None, "")}
    if ends is not None:
        said["wait_seconds"] = min(_left(ends), LONGEST_WAIT)
    send = Send(
        method="POST",
        path="operations/",
        headers={"Idempotency-Key": key},
        content=_encode(said),
        seconds=_seconds(wait),
    )
    answer = yield from _insist(send, key=key, patience=patience)
    if (known := _known_operation(answer)) is not None:
        # Being answered, or refused after it was accepted: its own address says everything.
        ends = time.monotonic() + PATIENCE_OF_GATEWAY if ends is None else ends
        operation = yield from look(known, wait=_left(ends), patience=patience, key=key)
        return read_operation(operation.everything, status=200, replayed=True)
    _raise_if_refused(answer)
    replayed = answer.headers.get("Idempotent-Replayed") == "true"
    operation = read_operation(_read(answer), status=answer.status_code, replayed=replayed)
    if operation.is_settled or ends is None or _left(ends) <= 0:
        return operation
    later = yield from look(operation.operation_id, wait=_left(ends), patience=patience, key=key)
    return read_operation(later.everything, status=200, replayed=replayed)


def look(
    operation_id: str, *, wait: float, patience: float, key: str | None = None
) -> Steps[Operation]:
    """What is known of an operation, at once or after `wait` seconds for it to be settled."""
    ends = time.monotonic() + wait
    pause = FIRST_PAUSE
    while True:
        left = min(_left(ends), LONGEST_WAIT)
        asked_at = time.monotonic()
        send = Send(
            method="GET",
            path=f"operations/{quote(operation_id, safe='')}/",
            params={"wait_seconds": f"{left:.3f}"} if left > 0 else {},
            seconds=_seconds(left),
        )
        answer = yield from _insist(send, key=key, patience=patience)
        _raise_if_refused(answer)
        operation = read_operation(_read(answer), status=answer.status_code)
        if operation.is_settled or _left(ends) <= 0:
            return operation
        if time.monotonic() - asked_at < left / 2:
            # A full gateway holds no request: asking at once again would keep it full.
            yield Pause(min(pause, _left(ends)))
            pause = min(pause * 2, LONGEST_PAUSE)


def finish(run: str, *, result: Any, error: str, patience: float) -> Steps[None]:
    """Say that a run has reached its goal, or why it will not."""
    send = Send(
        method="POST",
        path=f"runs/{quote(run, safe='')}/finish/",
        content=_encode({"result": result, "error": error}),
        seconds=MARGIN_SECONDS,
    )
    _raise_if_refused((yield from _insist(send, key=None, patience=patience)))


def _insist(send: Send, *, key: str | None, patience: float) -> Steps[httpx2.Response]:
    """The first answer that is one."""
    ends = time.monotonic() + patience
    pause = FIRST_PAUSE
    while True:
        answer = yield send
        if isinstance(answer, httpx2.Response) and not _means_later(answer):
            return answer
        if isinstance(answer, httpx2.Response):
            why, asked = f"HTTP {answer.status_code}", _retry_after(answer)
        else:
            why, asked = f"{type(answer).__name__}: {answer}"[:200], 0.0
        # Not all at once, where many callers met the same thing.
        rest = max(asked, pause * random.uniform(0.5, 1.0))  # noqa: S311  spreads, hides nothing
        if _left(ends) <= rest:
            cause = answer if isinstance(answer, Exception) else None
            raise Unreachable(why=why, key=key, seconds=patience) from cause
        yield Pause(rest)
        pause = min(pause * 2, LONGEST_PAUSE)


def _means_later(answer: httpx2.Response) -> bool:
    if answer.status_code in _LATER:
        return True
    return answer.status_code == 409 and _kind(answer) in ("key-in-use", "run-held")


def _known_operation(answer: httpx2.Response) -> str | None:
    """The operation that the gateway points at instead of describing it."""
    if _kind(answer) in ("call-in-flight", "policy-refuses", "call-invalid"):
        return str(_problem(answer).get("value") or "") or None
    return None


def _raise_if_refused(answer: httpx2.Response) -> None:
    if answer.is_success:
        return
    if not _kind(answer):
        raise NotAGateway(status=answer.status_code, why=answer.text[:200])
    refusal = _REFUSALS.get(_kind(answer), Refused)
    if answer.status_code in (401, 403):
        refusal = NotAllowed
    raise refusal(status=answer.status_code, problem=_problem(answer))


def _kind(answer: httpx2.Response) -> str:
    kind = str(_problem(answer).get("type", ""))
    return kind.removeprefix("urn:agentops:problem:") if kind.startswith("urn:agentops:") else ""


def _problem(answer: httpx2.Response) -> Mapping[str, Any]:
    if not answer.headers.get("Content-Type", "").startswith("application/problem+json"):
        return {}
    try:
        said = answer.json()
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _read(answer: httpx2.Response) -> Any:
    try:
        return answer.json()
    except ValueError as error:
        raise NotAGateway(status=answer.status_code, why="no JSON") from error


def _retry_after(answer: httpx2.Response) -> float:
    said = answer.headers.get("Retry-After", "")
    return float(said) if said.isdigit() else 0.0


def _check_key(key: str) -> None:
    if not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise ValueError(
            f"key: {key!r:.80} is not possible; give 1 to {LONGEST_KEY} printable ASCII characters"
        )


def _encode(said: Any) -> bytes:
    try:
        plain = to_plain(said)
        # What lets two requests under one key be the same bytes.
        return json.dumps(plain, ensure_ascii=False, allow_nan=False, sort_keys=True).encode()
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise ValueError(f"arguments: they are no JSON: {error}") from error


def _seconds(wait: float | None) -> float:
    longest = PATIENCE_OF_GATEWAY if wait is None else min(max(wait, 0.0), LONGEST_WAIT)
    return longest + MARGIN_SECONDS


def _left(ends: float) -> float:
    return max(0.0, ends - time.monotonic())

"""The rows behind `idempotent`: every reading and every write of an idempotency key.

Guarantees: a write names the row, its attempt and that it is still open, and says whether it
found it so; a sighting of a settled key moves the end of its tombstone on before anything
else is said about it.
Does not decide anything, and holds no lock: `idempotency.py` does.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pydantic_core
from django.db import IntegrityError, connection
from django.db.models import F
from django.db.models.functions import Coalesce, Greatest, Now

from tools.canonical import JsonValue, check_json, digest
from tools.errors import (
    InvalidPayload,
    KeyExpired,
    KeyMismatch,
    OutcomeUnknown,
    RejectedBefore,
)
from tools.models import OPEN, IdempotencyKey, KeyStatus
from tools.names import check_name

RETENTION: Final = timedelta(hours=24)
SHORTEST_MEMORY: Final = timedelta(days=30)
LONGEST_MEMORY: Final = timedelta(days=3650)
# A sighting is written only where it moves the tombstone's end by a tenth, so that a caller
# who polls does not cost a write each time.
_FADING: Final = 0.9


@dataclass(frozen=True)
class Answer:
    """An effect's result as JSON; `replayed` if an earlier call had it."""

    result: JsonValue
    replayed: bool

    @property
    def headers(self) -> dict[str, str]:
        """What the HTTP response says of it."""
        return {"Idempotent-Replayed": "true"} if self.replayed else {}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call under a key, as the rows know it."""

    scope: str
    key_digest: str
    arguments_digest: str
    retention: timedelta
    remember: timedelta

    @property
    def lock(self) -> int:
        return lock_of(self.key_digest)


def read_request(
    *,
    scope: str,
    key: str | None,
    arguments: Any,
    retention: timedelta,
    remember: timedelta | None,
) -> Request:
    """Raises InvalidPayload for what a caller sent, ValueError for what the endpoint declares."""
    if remember is None:
        remember = max(10 * retention, SHORTEST_MEMORY)
    if not timedelta(0) < retention <= remember <= LONGEST_MEMORY:
        raise ValueError(
            f"retention={retention} and remember={remember}: the result is kept for longer than "
            f"nothing, the key for at least as long, and for {LONGEST_MEMORY} at most"
        )
    check_name(scope, field="scope")
    check_name(key, field="Idempotency-Key")
    return Request(
        scope=scope,
        key_digest=digest([scope, key]),
        arguments_digest=digest(_as_json(arguments)),
        retention=retention,
        remember=remember,
    )


def lock_of(key_digest: str) -> int:
    """The advisory lock of a key, a signed 64-bit number. Two keys that share one (by a chance
    of 1 in 2^64) only keep each other waiting."""
    return int.from_bytes(bytes.fromhex(key_digest[:16]), signed=True)


def find(request: Request) -> IdempotencyKey | None:
    """The key's row. Raises KeyExpired, or KeyMismatch, after it has counted the sighting."""
    rows = IdempotencyKey.objects.filter(key_digest=request.key_digest)
    row = rows.annotate(read_at=Now()).first()
    if row is None:
        return None
    end = row.remember_until
    if end is not None and end < row.read_at + _FADING * request.remember:
        longer = Greatest(F("remember_until"), Now() + request.remember)
        if not rows.filter(id=row.id).update(remember_until=longer):
            return find(request)  # forgotten since it was read
    kept = row.is_open or (row.keep_until is not None and row.keep_until > row.read_at)
    if not kept:
        raise KeyExpired(scope=request.scope)
    if row.arguments_digest != request.arguments_digest:
        raise KeyMismatch(scope=request.scope)
    return row


def replay(row: IdempotencyKey) -> Answer:
    """The recorded answer of a settled key. Raises RejectedBefore."""
    if row.status == KeyStatus.REJECTED:
        raise RejectedBefore(row.reason)
    return Answer(result=result_of(row), replayed=True)


def record_in_flight(request: Request) -> IdempotencyKey:
    """The row of a call that is about to be carried out. Raises IntegrityError if there is one."""
    row = IdempotencyKey(
        scope=request.scope,
        key_digest=request.key_digest,
        arguments_digest=request.arguments_digest,
        status=KeyStatus.RUNNING,
    )
    row.save(force_insert=True)
    return row


def record_settled(
    request: Request, *, status: KeyStatus, result: JsonValue = None, reason: str = ""
) -> None:
    """The row of a call that has just been carried out. Raises IntegrityError if there is one."""
    IdempotencyKey(
        scope=request.scope,
        key_digest=request.key_digest,
        arguments_digest=request.arguments_digest,
        status=status,
        reason=reason,
        result=_as_text(result) if status is KeyStatus.FINISHED else None,
        **_dates(retention=request.retention, remember=request.remember),
    ).save(force_insert=True)


def settle(
    row: IdempotencyKey,
    *,
    status: KeyStatus,
    result: JsonValue = None,
    reason: str = "",
    evidence: str = "",
    retention: timedelta = RETENTION,
    remember: timedelta = SHORTEST_MEMORY,
) -> bool:
    """Record how the row's attempt ended; False if that is recorded already."""
    settled: int = _open(row).update(
        status=status,
        reason=reason,
        evidence=evidence,
        result=_as_text(result) if status is KeyStatus.FINISHED else None,
        **_dates(retention=retention, remember=remember),
    )
    return settled == 1


def mark_unknown(row: IdempotencyKey, *, reason: str) -> None:
    """Say since when, and why, the outcome is unknown; what was said first stays."""
    _open(row).filter(status=KeyStatus.RUNNING).update(
        status=KeyStatus.UNKNOWN, reason=reason, unknown_since=Coalesce("unknown_since", Now())
    )


def take_over(row: IdempotencyKey, *, unknown_for: timedelta) -> bool:
    """Begin the next attempt of a row that has been unknown for so long; False if it has not."""
    long_enough = _open(row).filter(
        status=KeyStatus.UNKNOWN, unknown_since__lte=Now() - unknown_for
    )
    taken: int = long_enough.update(
        status=KeyStatus.RUNNING,
        attempt=F("attempt") + 1,
        reason="",
        started_at=Now(),
        unknown_since=None,
    )
    if taken:
        row.attempt += 1
    return taken == 1


def free(row: IdempotencyKey) -> bool:
    """Forget a call that is known not to have been executed; its key is as new."""
    deleted: int = _open(row).delete()[0]
    return deleted == 1


def count_late(row: IdempotencyKey) -> None:
    """Note that an execution ended after a later one had begun."""
    IdempotencyKey.objects.filter(id=row.id).update(late_results=F("late_results") + 1)


def result_of(row: IdempotencyKey) -> JsonValue:
    """The recorded result of a finished call."""
    result: JsonValue = json.loads(row.result or "null")
    return result


def say_unknown(row: IdempotencyKey, why: str) -> OutcomeUnknown:
    return OutcomeUnknown(scope=row.scope, key_id=row.id, why=why)


def violated(error: IntegrityError) -> str | None:
    """The name of the constraint."""
    return getattr(getattr(error.__cause__, "diag", None), "constraint_name", None)


@contextmanager
def leaving_the_connection_as_found() -> Iterator[None]:
    """A thread that no request owns (an MCP server's) would keep one of the pool's for ever."""
    was_open = connection.connection is not None
    try:
        yield
    finally:
        if not was_open and not connection.in_atomic_block:
            connection.close()


def _open(row: IdempotencyKey) -> Any:
    return IdempotencyKey.objects.filter(id=row.id, attempt=row.attempt, status__in=OPEN)


def _dates(*, retention: timedelta, remember: timedelta) -> dict[str, Any]:
    return {
        "settled_at": Now(),
        "keep_until": Now() + retention,
        "remember_until": Now() + remember,
    }


def _as_text(result: JsonValue) -> str:
    return json.dumps(result, ensure_ascii=False, separators=(",", ":"))


def _as_json(arguments: Any) -> Any:
    try:
        plain = pydantic_core.to_jsonable_python(arguments, inf_nan_mode="constants")
    except Exception as error:
        # A serializer may be the endpoint's own code, so anything may come out of it.
        raise InvalidPayload(field="arguments", value=arguments, fix="send JSON") from error
    check_json(plain, field="arguments")
    return plain

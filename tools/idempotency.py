"""Receives a call once: what stands between an endpoint and callers that send again.

    key seen, settled            the recorded answer, marked as replayed
    key seen, being carried out  KeyInFlight
    key seen, other arguments    KeyMismatch
    key seen, outcome unknown    what `recover` finds out, or OutcomeUnknown
    key seen, too long ago       KeyExpired
    key new                      the effect

Guarantees: of all calls of one scope under one key at most one takes effect in our own
database, whatever crashes: effect and answer are one transaction. For an effect elsewhere
see `elsewhere.py`.

Does not remember for ever: a caller that was silent for longer than `remember` is carried
out anew. Does not cover an effect in another database than the default one, nor a sighting
inside a transaction that the caller rolls back.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from django.db import IntegrityError, connection, transaction

from tools.canonical import JsonValue
from tools.elsewhere import Recover, carry_out_elsewhere, settle_unknown
from tools.errors import KeyInFlight, Rejected
from tools.models import KEY_IS_UNIQUE, KeyStatus
from tools.receiving import (
    RETENTION,
    Answer,
    Request,
    find,
    leaving_the_connection_as_found,
    read_request,
    record_settled,
    replay,
    say_unknown,
    violated,
)
from tools.results import encode_result

__all__ = ["Answer", "idempotent", "settle_unknown"]

SETTLE_WINDOW: Final = timedelta(minutes=15)


def idempotent(
    *,
    scope: str,
    key: str | None,
    arguments: Any,
    effect: Callable[[], Any],
    transactional: bool = True,
    recover: Recover | None = None,
    retention: timedelta = RETENTION,
    remember: timedelta | None = None,
    settle_window: timedelta = SETTLE_WINDOW,
) -> Answer:
    """Carry out `effect()` unless a call under this key was seen before; the answer in any case.

    `scope` says whose keys these are ("user 17: refunds"); `key` is what the caller sent;
    `arguments`, as JSON, is what makes two calls the same. What `effect` returns is kept as
    JSON for `retention`; what it raises leaves the key free. If it raises Rejected, its writes
    are undone and the refusal is the answer: a repeat raises RejectedBefore.

    `remember` is how long a key stays known after it was last seen: ten times the retention,
    and at least 30 days, if it is left out.

    `transactional=False` is for an effect outside of our database, and must be called outside
    of any transaction. What `effect` raises then leaves the outcome unknown, except Rejected,
    and NotSent, which frees the key. `recover` is asked by the next call; its
    `Reconciled.not_found()` is believed once the outcome was unknown for `settle_window`.

    Raises KeyInFlight, KeyMismatch, KeyExpired, OutcomeUnknown (all of them KeyRefused),
    InvalidPayload, TransactionOpen, and what `effect` raises.
    """
    request = read_request(
        scope=scope, key=key, arguments=arguments, retention=retention, remember=remember
    )
    if transactional and recover is not None:
        raise ValueError("recover is for transactional=False: a row of ours needs no finding out")
    with leaving_the_connection_as_found():
        if transactional:
            return _carry_out_here(request, effect)
        return carry_out_elsewhere(request, effect, recover=recover, settle_window=settle_window)


def _carry_out_here(request: Request, effect: Callable[[], Any]) -> Answer:
    if (row := find(request)) is not None and not row.is_open:
        return replay(row)
    try:
        with transaction.atomic():
            _lock_until_the_end(request)
            if (row := find(request)) is not None:
                if row.is_open:
                    raise say_unknown(row, "it was begun as an effect elsewhere")
                return replay(row)
            result, rejected = _in_a_savepoint(effect)
            if rejected is None:
                record_settled(request, status=KeyStatus.FINISHED, result=result)
            else:
                record_settled(request, status=KeyStatus.REJECTED, reason=rejected.reason)
    except IntegrityError as error:
        if violated(error) != KEY_IS_UNIQUE:
            raise
        raise KeyInFlight(scope=request.scope) from error
    if rejected is not None:
        raise rejected
    return Answer(result=result, replayed=False)


def _lock_until_the_end(request: Request) -> None:
    # Without it the loser of a race would wait for the winner, and do its own effect in vain.
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [request.lock])
        if not cursor.fetchone()[0]:
            raise KeyInFlight(scope=request.scope)


def _in_a_savepoint(effect: Callable[[], Any]) -> tuple[JsonValue, Rejected | None]:
    try:
        with transaction.atomic():
            return encode_result(effect())[0], None
    except Rejected as error:
        return None, error

"""An effect outside of our database, carried out once per key.

Guarantees: the call is recorded as in flight, and committed, before it is begun. While it is
out no transaction is open, and none of the pool's connections is held that the caller did
not hold before. If its process dies the outcome is unknown at once, and the effect is not
begun again unless a look-up, or a person, says that it did not happen. A call that is only
slow stays in flight (`liveness.py` says at what price).

Does not know more than the look-up: where that says "not found" of an effect that lands
after the settle window, there are two. What comes back after another execution was begun
is counted on the row (`late_results`) and raised, never hidden.
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, assert_never

from django.db import Error, IntegrityError, InterfaceError, OperationalError, connection

from tools import receiving
from tools.canonical import JsonValue
from tools.errors import (
    DeadlinePassed,
    InvalidPayload,
    KeyInFlight,
    NotSent,
    Rejected,
    TransactionOpen,
)
from tools.liveness import holding
from tools.models import KEY_IS_UNIQUE, OPEN, IdempotencyKey, KeyStatus
from tools.receiving import (
    Answer,
    Request,
    find,
    leaving_the_connection_as_found,
    replay,
    say_unknown,
)
from tools.reconciled import Reconciled
from tools.redaction import bound_text
from tools.results import encode_result

T = TypeVar("T")
Recover = Callable[[], Reconciled[Any]]

logger = logging.getLogger(__name__)


def carry_out_elsewhere(
    request: Request,
    effect: Callable[[], Any],
    *,
    recover: Recover | None,
    settle_window: timedelta,
) -> Answer:
    """See `idempotent`."""
    with leaving_the_connection_as_found():
        if not connection.get_autocommit():
            raise TransactionOpen("idempotent(transactional=False)")
        if (row := find(request)) is not None and not row.is_open:
            return replay(row)
    with holding(request.lock) as alone:
        if not alone:
            raise KeyInFlight(scope=request.scope)
        with leaving_the_connection_as_found():
            row, is_new = _find_or_begin(request)
        if not row.is_open:
            return replay(row)
        if not is_new:
            answer = _find_out(row, request, recover, settle_window)
            if answer is not None:
                return answer
        return _carry_out(row, request, effect)


def settle_unknown(*, key_id: int, found: Reconciled[Any], evidence: str) -> None:
    """A person's word on an unknown outcome: `Reconciled.committed(result)` or `.not_found()`.

    The first is the answer from now on, the second frees the key: the next call is carried
    out. `evidence` says how it is known. Raises InvalidPayload, or KeyInFlight while the call
    is being carried out.
    """
    row = IdempotencyKey.objects.filter(id=key_id, status__in=OPEN).first()
    if row is None:
        raise InvalidPayload(field="key_id", value=key_id, fix="give the number of an unknown key")
    if not evidence.strip():
        raise InvalidPayload(field="evidence", value=evidence, fix="say how it is known")
    with holding(receiving.lock_of(row.key_digest)) as alone:
        if not alone:
            raise KeyInFlight(scope=row.scope)
        match found.verdict:
            case "committed":
                done = receiving.settle(
                    row,
                    status=KeyStatus.FINISHED,
                    result=encode_result(found.result)[0],
                    evidence=bound_text(evidence),
                )
            case "not_found":
                done = receiving.free(row)
            case "indeterminate":
                raise InvalidPayload(
                    field="found", value=found.why, fix="say committed or not_found"
                )
            case _:
                assert_never(found.verdict)
    if not done:
        raise InvalidPayload(field="key_id", value=key_id, fix="look again: it has been settled")
    logger.warning("key %s of %s was settled by hand: %s", key_id, row.scope, found.verdict)


def _find_or_begin(request: Request) -> tuple[IdempotencyKey, bool]:
    """The key's row, committed, and whether it was made just now."""
    row = find(request)
    if row is None:
        try:
            return receiving.record_in_flight(request), True
        except IntegrityError as error:
            if receiving.violated(error) != KEY_IS_UNIQUE:
                raise
            raise KeyInFlight(scope=request.scope) from error
    if row.is_open:
        # Its lock was free: whoever was at it is gone.
        receiving.mark_unknown(row, reason="its process ended before it said what happened")
        row.refresh_from_db()
    return row, False


def _find_out(
    row: IdempotencyKey, request: Request, recover: Recover | None, settle_window: timedelta
) -> Answer | None:
    """The answer, or None if the row is ours to carry out again. Raises OutcomeUnknown."""
    if recover is None:
        raise say_unknown(row, row.reason)
    try:
        found = recover()
    except Exception as error:
        raise say_unknown(row, f"the look-up failed: {type(error).__name__}") from error
    match found.verdict:
        case "committed":
            result = encode_result(found.result)[0]
            return _finish(row, request, result, replayed=True)
        case "not_found":
            if receiving.take_over(row, unknown_for=settle_window):
                return None
            raise say_unknown(row, f"not found, which is believed after {settle_window}")
        case "indeterminate":
            raise say_unknown(row, found.why or "the look-up cannot say")
    assert_never(found.verdict)


def _carry_out(row: IdempotencyKey, request: Request, effect: Callable[[], Any]) -> Answer:
    try:
        result = encode_result(effect())[0]
    except BaseException as error:
        try:
            _even_on_a_new_session(partial(_note_failure, row, request, error))
        except Error:
            # The row stays in flight while its lock is given back, which means unknown too.
            logger.warning("key %s: its failure was not recorded", row.id, exc_info=True)
        raise
    return _finish(row, request, result, replayed=False)


def _note_failure(row: IdempotencyKey, request: Request, error: BaseException) -> None:
    match error:
        case Rejected(reason=reason):
            receiving.settle(
                row,
                status=KeyStatus.REJECTED,
                reason=reason,
                retention=request.retention,
                remember=request.remember,
            )
        case NotSent() if not isinstance(error, DeadlinePassed):
            receiving.free(row)
        case _:
            # The class alone: an error's words may quote what the caller sent.
            receiving.mark_unknown(row, reason=f"it ended with {type(error).__name__}")


def _finish(row: IdempotencyKey, request: Request, result: JsonValue, *, replayed: bool) -> Answer:
    settled = _even_on_a_new_session(
        lambda: receiving.settle(
            row,
            status=KeyStatus.FINISHED,
            result=result,
            retention=request.retention,
            remember=request.remember,
        )
    )
    if settled:
        return Answer(result=result, replayed=replayed)
    now = IdempotencyKey.objects.filter(id=row.id).first()
    if now is not None and now.attempt == row.attempt and now.status == KeyStatus.FINISHED:
        # By us, on a session that broke at the commit; or by a look-up, which saw our effect.
        return Answer(result=receiving.result_of(now), replayed=replayed)
    receiving.count_late(row)
    raise say_unknown(row, "it took effect after its process had been taken for dead")


def _even_on_a_new_session(write: Callable[[], T]) -> T:
    """The session may have been lost while the effect was out. A write may be tried twice, as it
    finds the attempt open only once."""
    try:
        return write()
    except (OperationalError, InterfaceError):
        connection.close()
        return write()

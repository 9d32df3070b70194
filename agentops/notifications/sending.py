"""The sweep: hands notices on, then sends what is due.

Guarantees: a delivery is claimed by compare-and-set under a short lease, sent with no
transaction open, and recorded by whoever still has the claim; a sender that dies in between
leaves a delivery that is due again when its lease is over, so it is sent at least once, and
under the same id. Each receiver is a lane of its own (every webhook address; all e-mail): in a
lane one delivery is under way at a time, whoever sweeps, so a slow receiver holds up neither
the others nor more than one thread; a receiver that is down is tried once per sweep. A sweep
ends within the longest call after `LANE_SECONDS`.

Does not keep an order across tries, and does not promise one delivery only.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Final, Protocol
from zlib import crc32

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from agentops.models import Delivery
from agentops.notifications import handing_on
from agentops.notifications.errors import NotDelivered
from agentops.notifications.mails import MailChannel
from agentops.notifications.receivers import find_due_addresses
from agentops.notifications.schedule import MOST_TRIES, delay_after
from agentops.notifications.webhooks import WebhookChannel
from agentops.notifications.wording import Told, read_told

log = structlog.get_logger(__name__)
# For tracebacks: it shows no values, and those of a sender hold its secrets.
logger = logging.getLogger(__name__)

LANE_SECONDS: Final = 15.0
# Longer than any call may take, name look-up included.
LEASE_SECONDS: Final = 60.0
_LOCK: Final = 7_301_102
Channel, Status = Delivery.Channel, Delivery.Status

# While a delivery is leased, its date is the end of its lease. `{lane}` is one of two constants.
_CLAIM: Final = """
    UPDATE agentops_delivery
    SET attempts = attempts + 1,
        leased_until = statement_timestamp() + make_interval(secs => %(lease)s),
        next_try_at = statement_timestamp() + make_interval(secs => %(lease)s)
    WHERE id = (
        SELECT id FROM agentops_delivery
        WHERE status = 'pending' AND {lane} AND next_try_at <= statement_timestamp()
        ORDER BY next_try_at LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED)
      AND NOT EXISTS (
        SELECT 1 FROM agentops_delivery
        WHERE {lane} AND leased_until > statement_timestamp())
    RETURNING id, notice_id, address, attempts, last_error, give_up_at <= statement_timestamp()
"""
_CLAIM_IN: Final = {
    Channel.WEBHOOK: _CLAIM.format(lane="channel = 'webhook' AND address = %(address)s"),
    Channel.EMAIL: _CLAIM.format(lane="channel = 'email'"),
}


class Sender(Protocol):
    """Sends one notification, or raises NotDelivered."""

    def send(self, told: Told, address: str) -> None: ...


@dataclass(frozen=True)
class Lane:
    """One receiver. All e-mail goes through one server, so its address is empty."""

    channel: Delivery.Channel
    address: str = ""

    def open(self) -> AbstractContextManager[Sender]:
        return WebhookChannel(self.address) if self.channel is Channel.WEBHOOK else MailChannel()


@dataclass(frozen=True)
class Claim:
    """A delivery that is ours to send. `attempt` is what the record is compared with."""

    id: int
    notice_id: int
    address: str
    attempt: int
    last_error: str
    is_over: bool


@dataclass(frozen=True)
class Swept:
    """What one sweep did. `to_be_tried_again` are failures that are not the last word."""

    handed_on: int = 0
    sent: int = 0
    to_be_tried_again: int = 0
    failed: int = 0
    dropped: int = 0

    def __add__(self, other: "Swept") -> "Swept":
        return Swept(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def run_once() -> Swept:
    """One sweep. Call it outside of a transaction."""
    assert not connection.in_atomic_block, "nothing is sent inside a transaction"
    swept = Swept(handed_on=handing_on.run_once().notices)
    claimed = {lane: claim for lane in lanes() if (claim := _claim(lane)) is not None}
    if not claimed:
        return swept
    # Calls may take long: meanwhile the connections of this process are for its runs.
    connection.close()
    with ThreadPoolExecutor(len(claimed), thread_name_prefix="notify") as pool:
        driven: list[Future[Swept]] = [
            pool.submit(_in_thread, _drive, lane, claim) for lane, claim in claimed.items()
        ]
    return sum((one.result() for one in driven), swept)


def lanes() -> list[Lane]:
    """The receivers that the settings name, and of those that tokens name the ones that
    something is due for. What is addressed to another one waits."""
    urls = (*settings.AGENTOPS_WEBHOOK_URLS, *find_due_addresses())
    found = [Lane(Channel.WEBHOOK, url) for url in urls]
    return [*found, Lane(Channel.EMAIL)] if settings.AGENTOPS_EMAIL_HOST else found


def _in_thread(act: Callable[[Lane, Claim], Swept], lane: Lane, claim: Claim) -> Swept:
    try:
        return act(lane, claim)
    finally:
        # Each thread has a connection of its own.
        connection.close()


def _drive(lane: Lane, first: Claim) -> Swept:
    """Send what is due in one lane, until nothing is, its time is over, or it is down."""
    ends = time.monotonic() + LANE_SECONDS
    swept, claim = Swept(), first
    with lane.open() as sender:
        while True:
            done, goes_on = _deliver(claim, lane, sender)
            swept += done
            if not goes_on or time.monotonic() > ends:
                return swept
            following = _claim(lane)
            if following is None:
                return swept
            claim = following


def _deliver(claim: Claim, lane: Lane, sender: Sender) -> tuple[Swept, bool]:
    """Try one, and record what came of it. Returns also whether the lane goes on."""
    if claim.is_over or claim.attempt > MOST_TRIES:
        why = claim.last_error or "its time was over before anybody could say what came of it"
        _record(claim, status=Status.FAILED, next_try_at=None, last_error=why)
        return Swept(failed=1), True
    told = read_told(claim.notice_id)
    if told is None:
        return Swept(), True
    if told.is_moot and lane.channel is Channel.EMAIL:
        # A program keeps a history; a person is asked only what is still open.
        _record(claim, status=Status.DROPPED, next_try_at=None, last_error="")
        return Swept(dropped=1), True
    connection.close()
    try:
        sender.send(told, claim.address)
    except NotDelivered as error:
        return _record_failure(claim, error), not error.lane_is_down
    except Exception as error:
        # A fault of ours must not be tried for ever without a word, nor end the other lanes.
        logger.exception("delivery %s: a fault of ours", claim.id)
        return _record_failure(claim, NotDelivered(f"fault: {type(error).__name__}")), True
    _record(claim, status=Status.SENT, next_try_at=None, sent_at=Now(), last_error="")
    return Swept(sent=1), True


def _record_failure(claim: Claim, error: NotDelivered) -> Swept:
    delay = None if error.for_good else delay_after(claim.attempt)
    log.warning(
        "notification_not_delivered", delivery=claim.id, attempt=claim.attempt, last=delay is None
    )
    if delay is None:
        _record(claim, status=Status.FAILED, next_try_at=None, last_error=error.why)
        return Swept(failed=1)
    _record(claim, next_try_at=Now() + timedelta(seconds=delay), last_error=error.why)
    return Swept(to_be_tried_again=1)


def _record(claim: Claim, **values: object) -> None:
    """Write what came of it, unless somebody else has claimed it since."""
    mine = Delivery.objects.filter(id=claim.id, attempts=claim.attempt, status=Status.PENDING)
    if not mine.update(leased_until=None, **values):
        log.warning("notification_taken_over", delivery=claim.id, attempt=claim.attempt)


def _claim(lane: Lane) -> Claim | None:
    """The longest due delivery of a lane in which nothing is under way."""
    with transaction.atomic(), connection.cursor() as cursor:
        # Of two that claim at one time, both would find nothing under way.
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [_LOCK, _number(lane)])
        if not cursor.fetchone()[0]:
            return None
        cursor.execute(_CLAIM_IN[lane.channel], {"lease": LEASE_SECONDS, "address": lane.address})
        row = cursor.fetchone()
    return None if row is None else Claim(*row)


def _number(lane: Lane) -> int:
    """A lane as the signed number that a lock takes. Two of one number only take turns."""
    return crc32(f"{lane.channel} {lane.address}".encode()) - 2**31

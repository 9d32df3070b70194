"""The outbox: each notice is given to everybody who is to hear of it.

Guarantees: a notice and its deliveries are one transaction, so a crash leaves it in the outbox
whole; one delivery per channel and address, however many sweeps run; a bounded batch, found
by an index over what is not handed on yet.

Does not send. Does not go back: a receiver that is named later hears of later notices.
"""

from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from agentops.models import ADDRESS, Delivery
from agentops.notifications.receivers import find_receivers
from agentops.notifications.recipients import find_addresses
from agentops.notifications.schedule import GIVE_UP_AFTER
from runs.models import Notice, Sweep

BATCH: Final = 100
ROWS_PER_INSERT: Final = 500
SWEEP: Final = "notifications"
_LOCK: Final = 7_301_101

# What telling who is to hear of it takes; the rest of a run may be large.
_COLUMNS: Final = (
    "kind",
    "operation_id",
    "run__created_by",
    "run__created_by_user_id",
    "approval__groups",
    "approval__escalate_to",
    "approval__escalated_at",
    "approval__requester",
    "approval__requester_user_id",
    "question__groups",
    "question__escalate_to",
    "question__escalated_at",
    "question__answered_by_user_id",
)


@dataclass(frozen=True)
class HandedOn:
    notices: int
    deliveries: int


def run_once() -> HandedOn:
    """One batch, oldest first. Nothing while another one is at it."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
            if not cursor.fetchone()[0]:
                return HandedOn(notices=0, deliveries=0)
        notices = list(
            Notice.objects.filter(handed_on_at__isnull=True)
            .select_related("run", "approval", "question")
            .only(*_COLUMNS)
            .select_for_update(skip_locked=True, no_key=True, of=("self",))
            .order_by("id")[:BATCH]
        )
        deliveries = _deliveries(notices)
        Delivery.objects.bulk_create(deliveries, batch_size=ROWS_PER_INSERT, ignore_conflicts=True)
        Notice.objects.filter(id__in=[one.pk for one in notices]).update(handed_on_at=Now())
        Sweep.objects.update_or_create(
            name=SWEEP, defaults={"last_run_at": Now(), "found": len(notices)}
        )
    return HandedOn(notices=len(notices), deliveries=len(deliveries))


def _deliveries(notices: list[Notice]) -> list[Delivery]:
    receivers = find_receivers(notices)
    found = [
        _delivery(notice, Delivery.Channel.WEBHOOK, url)
        for notice in notices
        for url in dict.fromkeys((*settings.AGENTOPS_WEBHOOK_URLS, *receivers.get(notice.pk, ())))
    ]
    if not settings.AGENTOPS_EMAIL_HOST:
        return found
    addresses = find_addresses(notices)
    return found + [
        _delivery(notice, Delivery.Channel.EMAIL, address)
        for notice in notices
        for address in addresses[notice.pk]
        if len(address) <= ADDRESS
    ]


def _delivery(notice: Notice, channel: Delivery.Channel, address: str) -> Delivery:
    return Delivery(
        notice=notice,
        channel=channel,
        address=address,
        next_try_at=Now(),
        give_up_at=Now() + GIVE_UP_AFTER,
    )

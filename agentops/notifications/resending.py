"""Sending again what was given up, or what its receiver lost.

Guarantees: the same delivery under the same event id, with all its tries anew; one that is on
its way, or was dropped because it was decided meanwhile, is left alone.
"""

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from agentops.models import Delivery
from agentops.notifications.schedule import GIVE_UP_AFTER

_ENDED = (Delivery.Status.FAILED, Delivery.Status.SENT)


def can_be_resent(delivery: Delivery) -> bool:
    """Whether `resend` would do something."""
    return delivery.status in _ENDED


def resend(deliveries: QuerySet[Delivery]) -> int:
    """Make these due now. Returns how many are."""
    idle = Q(leased_until__isnull=True) | Q(leased_until__lte=Now())
    return deliveries.filter(idle, status__in=_ENDED).update(
        status=Delivery.Status.PENDING,
        attempts=0,
        next_try_at=Now(),
        give_up_at=Now() + GIVE_UP_AFTER,
    )

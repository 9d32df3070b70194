"""What policies count: how often, and for how much, a tool was called lately.

Guarantees: the call that is judged is counted once, with those that were sent before it in
the window and may have taken effect. Judged again after its own intent is committed, a call
sees every other that was committed earlier, so of calls that race over a limit at least as
many are held as are too many.

Does not count reads, and does not count what was refused, rejected or never sent.
"""

from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Final

from django.db.models import Count, DecimalField, Sum
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Now

from runs.models import ToolOperation
from runs.state import OperationStatus
from runs.work import Work
from tools import EffectType
from tools.policy import Window, WindowQuery

# May have taken effect: whoever is uncertain counts.
COUNTED: Final = (OperationStatus.RUNNING, OperationStatus.UNKNOWN, OperationStatus.COMMITTED)


def read_window(work: Work, operation: ToolOperation, query: WindowQuery) -> Window:
    """The window that ends now, the call itself included. Raises ValueError for no amount."""
    sent = ToolOperation.objects.filter(
        tool=query.tool,
        first_sent_at__gte=Now() - timedelta(seconds=query.seconds),
        status__in=COUNTED,
    ).exclude(effect_type=EffectType.READ)
    match query.by:
        case "agent":
            sent = sent.filter(run__agent=work.agent)
        case "requester":
            sent = sent.filter(run__created_by=work.requester)
        case "all":
            pass
    sent = sent.exclude(id=operation.id)
    if not query.money:
        return Window(count=sent.count() + 1, total=Decimal(0))
    amount = Cast(
        KeyTextTransform(query.money, "arguments"), DecimalField(max_digits=30, decimal_places=9)
    )
    found = sent.aggregate(count=Count("id"), total=Sum(amount))
    return Window(
        count=found["count"] + 1,
        total=(found["total"] or Decimal(0)) + _amount(operation, query.money),
    )


def _amount(operation: ToolOperation, name: str) -> Decimal:
    value = operation.arguments.get(name)
    try:
        amount = Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(f"{name} is no amount") from error
    if not amount.is_finite():
        raise ValueError(f"{name} is no amount")
    return amount

"""What policies count: how often, and for how much, a tool was called lately.

Guarantees: the call that is judged is counted once, with those that were sent before it in
the window and may have taken effect. Judged again after its own intent is committed, a call
sees every other that was committed earlier, so of calls that race over a limit at least as
many are held as are too many.

Does not count reads, nor what was refused, rejected or never sent. A negative amount makes
no room for another one.
"""

from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from django.db.models import Case, Count, DecimalField, Q, Sum, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Greatest, Now

from runs.models import ToolOperation
from runs.state import OperationStatus
from runs.work import Work
from tools import EffectType
from tools.policy import Window, WindowQuery

# As validated decimals and whole numbers are stored.
AMOUNT: Final = r"^-?[0-9]{1,100}([.][0-9]{1,100})?$"
# May have taken effect: whoever is uncertain counts.
COUNTED: Final = (OperationStatus.RUNNING, OperationStatus.UNKNOWN, OperationStatus.COMMITTED)


def read_window(work: Work, operation: ToolOperation, query: WindowQuery) -> Window:
    """The window that ends now, the call itself included. Raises ValueError for no amount."""
    # A transactional call commits nothing but its try before it takes effect.
    begun = Q(status=OperationStatus.PREPARED, effect_type=EffectType.TRANSACTIONAL)
    sent = ToolOperation.objects.filter(
        begun | Q(status__in=COUNTED),
        tool=query.tool,
        last_sent_at__gte=Now() - timedelta(seconds=query.seconds),
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
    text = KeyTextTransform(query.money, "arguments")
    positive = Greatest(Cast("text", _Numeric()), Decimal(0))
    found = sent.annotate(text=text).aggregate(
        count=Count("id"),
        amounts=Count("id", filter=Q(text__regex=AMOUNT)),
        total=Sum(Case(When(text__regex=AMOUNT, then=positive))),
    )
    if found["amounts"] < found["count"]:
        raise ValueError(f"{query.money} of a call in the window is no amount")
    return Window(
        count=found["count"] + 1,
        total=(found["total"] or Decimal(0)) + _amount(operation, query.money),
    )


class _Numeric(DecimalField):  # type: ignore[type-arg]  # not generic at run time
    """A number of any size: one of a declared size would refuse or round."""

    def __init__(self) -> None:
        super().__init__(max_digits=1000, decimal_places=500)

    def db_type(self, connection: Any) -> str:
        return "numeric"

    cast_db_type = db_type


def _amount(operation: ToolOperation, name: str) -> Decimal:
    value = operation.arguments.get(name)
    try:
        amount = Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(f"{name} is no amount") from error
    if not amount.is_finite():
        raise ValueError(f"{name} is no amount")
    return max(amount, Decimal(0))

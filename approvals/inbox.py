"""The inbox: operations that wait for a signature.

Guarantees: oldest first, read from the operations themselves, so what is listed
is what is held. Does not decide anything.
"""

from django.db.models import QuerySet

from runs.models import ToolOperation
from runs.state import OperationStatus


def held_operations() -> QuerySet[ToolOperation]:
    """Operations awaiting approval, with their runs."""
    return (
        ToolOperation.objects.filter(status=OperationStatus.AWAITING_APPROVAL)
        .select_related("run")
        .order_by("created_at")
    )

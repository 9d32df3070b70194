"""Reading rollups: sums over a span of time, by agent, version or tool.

Guarantees: one statement, so that a slice which is replaced or folded meanwhile counts once; a
span begins at a slice that is kept for so long (`slices.py`), and is never shorter than asked.

Does not read runs or the journal.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal

from django.db.models import Q, QuerySet
from django.db.models import Sum as Total

from runs.models import Rollup
from runs.slo.measures import Measure
from runs.slo.slices import FOLDS

Label = Literal["agent", "agent_version", "tool"]
_KEPT: Final = [int(fold.shorter.total_seconds()) for fold in FOLDS]
LABELS: Final[tuple[Label, ...]] = ("agent", "agent_version", "tool")


@dataclass(frozen=True)
class Sum:
    """One measure over a span of time. A label is empty where nothing is grouped by it."""

    measure: Measure
    agent: str
    agent_version: str
    tool: str
    le: float
    count: int
    total: Decimal


def sum_measures(
    *,
    since: datetime | None,
    until: datetime | None = None,
    by: Collection[Label] = (),
    measures: Collection[Measure] | None = None,
    agent: str | None = None,
    tool: str | None = None,
) -> list[Sum]:
    """The sums of the slices that begin in the span, one per measure, labels and bucket.

    `since` None is from the beginning of all time.
    """
    labels = [label for label in LABELS if label in by]
    rows = (
        select_rollups(since=since, until=until, measures=measures, agent=agent, tool=tool)
        .values("measure", "le", *labels)
        .annotate(counted=Total("count"), summed=Total("total"))
        .order_by("measure", *labels, "le")
    )
    known = {str(measure) for measure in Measure}
    return [_sum(row) for row in rows if row["measure"] in known]


def select_rollups(
    *,
    since: datetime | None,
    until: datetime | None = None,
    measures: Collection[Measure] | None = None,
    agent: str | None = None,
    tool: str | None = None,
) -> QuerySet[Rollup]:
    """The rows behind such sums."""
    wanted = Q()
    if since is not None:
        # Named, so that the index finds the beginning in the slices of each length.
        wanted &= Q(seconds__in=_KEPT, starts_at__gte=since)
    if until is not None:
        wanted &= Q(starts_at__lt=until)
    if measures is not None:
        wanted &= Q(measure__in=[str(measure) for measure in measures])
    if agent is not None:
        wanted &= Q(agent=agent)
    if tool is not None:
        wanted &= Q(tool=tool)
    return Rollup.objects.filter(wanted)


def _sum(row: dict[str, Any]) -> Sum:
    return Sum(
        measure=Measure(row["measure"]),
        agent=row.get("agent", ""),
        agent_version=row.get("agent_version", ""),
        tool=row.get("tool", ""),
        le=row["le"],
        count=int(row["counted"]),
        total=Decimal(row["summed"]),
    )

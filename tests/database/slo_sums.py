"""What the tests of service levels share: counting what just happened, and what happened before."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from django.db import connection

from runs.models import AgentRun
from runs.slo.measures import DISTRIBUTIONS, SUMS, Measure
from runs.slo.reading import Sum, sum_measures
from runs.slo.rolling import run_once
from tests.database.kit import ask

Start = Callable[..., AgentRun]

# Told of by every run, whatever it does.
_OF_EVERY_RUN: Final = {*DISTRIBUTIONS, *SUMS, Measure.RUNS_STARTED}


def sums(*measures: Measure) -> list[Sum]:
    """Everything, or these, with all labels, counted until now."""
    run_once()
    return sum_measures(
        since=None, by=("agent", "agent_version", "tool"), measures=measures or None
    )


def counts() -> dict[str, int]:
    """How often each plain thing happened, by name; what never did is left out."""
    found: Counter[str] = Counter()
    for one in sums():
        if one.measure not in _OF_EVERY_RUN:
            found[one.measure.value] += one.count
    return dict(found)


def buckets(measure: Measure) -> dict[float, int]:
    """How many values each bucket holds."""
    found: Counter[float] = Counter()
    for one in sums(measure):
        found[one.le] += one.count
    return dict(found)


def total(measure: Measure) -> float:
    """The sum of the values."""
    return float(sum(one.total for one in sums(measure)))


def tools(measure: Measure) -> dict[str, int]:
    """How often, by tool."""
    found: Counter[str] = Counter()
    for one in sums(measure):
        found[one.tool] += one.count
    return dict(found)


def clock() -> Any:
    """The database's."""
    return ask("SELECT statement_timestamp()")


def grow_older(**duration: float) -> None:
    """Let time go by for every row of the kernel, those that are evidence too."""
    older = f"interval '{timedelta(**duration).total_seconds()} s'"
    with connection.cursor() as cursor:
        cursor.execute(_DATES)
        moved = "".join(
            f"UPDATE {table} SET {', '.join(f'{name} = {name} - {older}' for name in names)};"
            for table, names in cursor.fetchall()
        )
        # The triggers that keep evidence look away.
        cursor.execute(
            f"SET session_replication_role = replica; {moved}SET session_replication_role = origin;"
        )


_DATES: Final = r"""
    SELECT table_name::text, array_agg('"' || column_name || '"')
    FROM information_schema.columns
    WHERE table_name LIKE 'runs\_%' AND data_type = 'timestamp with time zone'
      AND table_name NOT IN ('runs_rollup', 'runs_sweep')
    GROUP BY table_name"""

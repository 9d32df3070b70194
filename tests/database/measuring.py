"""What each statement reads, as the server counts it while the statement runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction


@dataclass(frozen=True)
class Measured:
    """One statement: its plan as text, the pages it touched, the rows its scans looked at."""

    sql: str
    plan: str
    pages: int
    rows: float
    whole_tables: tuple[str, ...]


@dataclass
class Meter:
    statements: list[Measured] = field(default_factory=list)

    @property
    def pages(self) -> int:
        return sum(one.pages for one in self.statements)

    @property
    def rows(self) -> float:
        return sum(one.rows for one in self.statements)

    @property
    def whole_tables(self) -> set[str]:
        """The tables that were read from end to end."""
        return {table for one in self.statements for table in one.whole_tables}


@contextmanager
def measured() -> Iterator[Meter]:
    """EXPLAIN ANALYZE of every statement inside the block, right before it runs for real."""
    meter = Meter()

    def explain(execute: Any, sql: str, values: Any, many: bool, context: Any) -> Any:
        settings, _, statement = sql.rpartition(";\n")
        if statement.lstrip().startswith(("SELECT", "UPDATE", "WITH")) and "runs_" in sql:
            meter.statements.append(_explain(execute, settings, statement, values, context))
        return execute(sql, values, many, context)

    with connection.execute_wrapper(explain):
        yield meter


def _explain(execute: Any, settings: str, sql: str, values: Any, context: Any) -> Measured:
    asked = f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, FORMAT JSON) {sql}"
    with transaction.atomic():
        if settings:
            execute(settings, None, False, context)
        execute(asked, values, False, context)
        (found,) = context["cursor"].fetchone()
        transaction.set_rollback(True)
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    nodes = list(_nodes(plan))
    return Measured(
        sql=sql,
        plan=json.dumps(plan, indent=1),
        pages=plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
        rows=sum(_rows_read(node) for node in nodes if "Relation Name" in node),
        whole_tables=tuple(
            node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"
        ),
    )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


def _rows_read(node: dict[str, Any]) -> float:
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])

"""The runs below a run: those that it started, those that they started, and so on.

Guarantees: one query, however deep they go; at most `MOST` of them, in the order of a tree:
each one stands under the run that started it, oldest first.
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import connection

MOST: Final = 50

_DESCENDANTS: Final = """
    WITH RECURSIVE family AS (
        SELECT id, agent, state, 1 AS level, ARRAY[id] AS path
        FROM runs_agentrun WHERE parent_id = %(run)s
        UNION ALL
        SELECT child.id, child.agent, child.state, above.level + 1, above.path || child.id
        FROM runs_agentrun child JOIN family above ON child.parent_id = above.id
    )
    SELECT id, agent, state, level FROM family ORDER BY path LIMIT %(most)s
"""


@dataclass(frozen=True)
class Descendant:
    """One run below another; `level` is 1 for those that it started itself."""

    run_id: UUID
    agent: str
    state: str
    level: int


def find_descendants(run_id: UUID, *, most: int = MOST) -> list[Descendant]:
    """The tree below a run, without the run itself."""
    with connection.cursor() as cursor:
        cursor.execute(_DESCENDANTS, {"run": run_id, "most": most})
        return [Descendant(*row) for row in cursor.fetchall()]

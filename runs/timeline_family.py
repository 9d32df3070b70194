"""The runs around a run: what started it, what it was forked from, its forks, and all below it.

Guarantees: one query, however deep the tree is; at most `MOST` runs below and `MOST` forks.
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import connection

from runs.models import AgentRun

MOST: Final = 50

_FAMILY: Final = """
    WITH RECURSIVE below AS (
        SELECT id, agent, state, 1 AS level, ARRAY[id] AS path
        FROM runs_agentrun WHERE parent_id = %(run)s
        UNION ALL
        SELECT child.id, child.agent, child.state, above.level + 1, above.path || child.id
        FROM runs_agentrun child JOIN below above ON child.parent_id = above.id
    )
    (SELECT 'parent', id, agent, state, 0, NULL::int FROM runs_agentrun WHERE id = %(parent)s)
    UNION ALL
    (SELECT 'origin', id, agent, state, 0, %(step)s FROM runs_agentrun WHERE id = %(origin)s)
    UNION ALL
    (SELECT 'child', id, agent, state, level, NULL FROM below ORDER BY path LIMIT %(most)s)
    UNION ALL
    (SELECT 'fork', id, agent, state, 0, forked_at_step FROM runs_agentrun
     WHERE forked_from_id = %(run)s ORDER BY id DESC LIMIT %(most)s)
"""


@dataclass(frozen=True)
class Relative:
    """A run around another: its `parent`, its `origin`, a `child` at any `level` below it, from 1,
    or a `fork`. `step` is the last one that a fork inherits."""

    kind: str
    run_id: UUID
    agent: str
    state: str
    level: int
    step: int | None


def find_family(run: AgentRun) -> list[Relative]:
    """The parent, the origin, the tree below in its own order, and the newest forks."""
    about = {
        "run": run.pk,
        "parent": run.parent_id,
        "origin": run.forked_from_id,
        "step": run.forked_at_step,
        "most": MOST,
    }
    with connection.cursor() as cursor:
        cursor.execute(_FAMILY, about)
        return [Relative(*row) for row in cursor.fetchall()]

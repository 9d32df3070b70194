"""The runs around a run: what started it, what it was forked from, its forks, and all below it.

Guarantees: one query, however deep the tree is (`runs/delegation.py` bounds its size); at most
`MOST` runs below and `MOST` forks, and how many are left out. Those below whose effect is uncertain
are found wherever they stand in the tree, also among those that are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import connection

from runs.models import AgentRun
from runs.state import UNCERTAIN_STATES

MOST: Final = 50
MOST_UNCERTAIN: Final = 5

_FAMILY: Final = """
    WITH RECURSIVE below AS (
        SELECT id, agent, state, 1 AS level, ARRAY[id] AS path
        FROM runs_agentrun WHERE parent_id = %(run)s
        UNION ALL
        SELECT child.id, child.agent, child.state, above.level + 1, above.path || child.id
        FROM runs_agentrun child JOIN below above ON child.parent_id = above.id
    )
    (SELECT 'parent', id, agent, state, 0, NULL::int, 1 FROM runs_agentrun WHERE id = %(parent)s)
    UNION ALL
    (SELECT 'origin', id, agent, state, 0, %(step)s, 1 FROM runs_agentrun WHERE id = %(origin)s)
    UNION ALL
    (SELECT 'child', id, agent, state, level, NULL, count(*) OVER ()
     FROM below ORDER BY path LIMIT %(most)s)
    UNION ALL
    (SELECT 'uncertain', id, agent, state, level, NULL, count(*) OVER ()
     FROM below WHERE state = ANY (%(uncertain)s::text[]) ORDER BY path LIMIT %(most_uncertain)s)
    UNION ALL
    (SELECT 'fork', id, agent, state, 0, forked_at_step, count(*) OVER () FROM runs_agentrun
     WHERE forked_from_id = %(run)s ORDER BY id DESC LIMIT %(most)s)
"""


@dataclass(frozen=True)
class Relative:
    """A run around another: its `parent`, its `origin`, a `child` at any `level` below it, from 1,
    an `uncertain` one of those, or a `fork`. `step` is the last one that a fork inherits; `among`
    says how many of its kind there are."""

    kind: str
    run_id: UUID
    agent: str
    state: str
    level: int
    step: int | None
    among: int


@dataclass(frozen=True)
class Family:
    """The parent, the origin, the tree below in its own order, and the newest forks; and the first
    of those below whose effect is uncertain."""

    around: Sequence[Relative]
    uncertain: Sequence[Relative]

    @property
    def left_out(self) -> int:
        """How many below, and how many forks, are not among them."""
        return sum({one.kind: one.among for one in self.around}.values()) - len(self.around)


def find_family(run: AgentRun) -> Family:
    """The runs around this one."""
    about = {
        "run": run.pk,
        "parent": run.parent_id,
        "origin": run.forked_from_id,
        "step": run.forked_at_step,
        "most": MOST,
        "uncertain": sorted(UNCERTAIN_STATES),
        "most_uncertain": MOST_UNCERTAIN,
    }
    with connection.cursor() as cursor:
        cursor.execute(_FAMILY, about)
        found = [Relative(*row) for row in cursor.fetchall()]
    return Family(
        around=[one for one in found if one.kind != "uncertain"],
        uncertain=[one for one in found if one.kind == "uncertain"],
    )

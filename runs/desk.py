"""What waits, for whom, and since when: the figures of the start page and of `/metrics`.

Guarantees: each function is one statement through a small index of what is open, however many
runs there have been; a count looks at no more than `MOST_COUNTED` rows. Times are the
database's. What was promised of a tool (its objective, how long a key is kept) is today's
declaration; of a tool that is not registered here there is none.

Does not say who may see what, and links to nothing: the page does. Changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from django.db import connection

from runs.concurrency import FREE, fetch_by_index
from runs.lease import lease_seconds
from runs.turns import PAIRS
from runs.versions import ALIVE_LEASES
from tools.registry import all_tools

# Beyond this many of one kind the exact number helps nobody.
MOST_COUNTED: Final = 10_000
# A key that ends this soon, or in a tenth of the time that it is kept, is about to.
KEY_ENDS_SOON: Final = timedelta(hours=1)
_PART_OF_RETENTION: Final = 10


class What(StrEnum):
    """What a person is waited for with."""

    APPROVAL = "approval"
    QUESTION = "question"
    OPERATION = "operation"
    PAUSE = "pause"


@dataclass(frozen=True)
class Unknown:
    """An operation that may or may not have happened, at the moment `now`.

    `objective` is how long its provider is asked before a person is; None where its tool is not
    registered here. `key_ends_at` is when a repeat is a new effect to the provider, if ever.
    """

    operation_id: str
    run_id: UUID
    agent: str
    tool: str
    since: datetime
    now: datetime
    objective: timedelta | None
    next_asked_at: datetime | None
    needs_person_since: datetime | None
    key_ends_at: datetime | None
    key_is_ending: bool

    @property
    def age(self) -> timedelta:
        return self.now - self.since

    @property
    def is_overdue(self) -> bool:
        return self.objective is not None and self.age > self.objective


@dataclass(frozen=True)
class UnknownOfTool:
    """The unknown operations of one tool: how many are `overdue`, of how many the key ends."""

    tool: str
    count: int
    overdue: int
    key_ending: int
    oldest_seconds: float


@dataclass(frozen=True)
class Uncertain:
    """All unknown operations: how many there are, in how many runs, and the oldest of them."""

    runs: int
    operations: int
    oldest: Sequence[Unknown]


@dataclass(frozen=True)
class Headlines:
    """Runs with an uncertain effect, and what is open of signatures and questions."""

    uncertain: int
    approvals: int
    questions: int


@dataclass(frozen=True)
class Waiting:
    """So many wait for people, the first of them since so long; 0 where none does."""

    count: int = 0
    oldest_seconds: float = 0.0


@dataclass(frozen=True)
class OfGroup:
    """What waits for one group of people: "" is anybody. `until` is when the first runs out."""

    what: What
    group: str
    count: int
    oldest: datetime
    until: datetime | None
    now: datetime


@dataclass(frozen=True)
class Paused:
    """A run that goes on when somebody lets it."""

    run_id: UUID
    agent: str
    since: datetime
    reason: str


@dataclass(frozen=True)
class Due:
    """So many runs are due and held by nobody, the first of them since so long; and the workers
    that take runs up: seen lately, or not, so that they may have vanished."""

    count: int
    oldest_seconds: float
    alive: int
    silent: int


@dataclass(frozen=True)
class SweepAge:
    """How long ago a sweep ran last, whoever ran it."""

    name: str
    seconds: float


def count_headlines(*, most: int = MOST_COUNTED) -> Headlines:
    """What everybody is told on every page, each counted up to so many."""
    [counts] = _fetch(_HEADLINES, {"counted": most})
    return Headlines(*counts)


def count_uncertain() -> int:
    """Runs with an external effect that may or may not have happened."""
    return count_headlines().uncertain


def read_uncertain(*, most: int) -> Uncertain:
    """Those that are unknown longest, at most so many, and how many runs all of them belong to."""
    bounds = {"most": most, "counted": MOST_COUNTED}
    rows = _fetch(_UNKNOWN, _promises() | bounds)
    return Uncertain(
        runs=rows[0][-2] if rows else 0,
        operations=rows[0][-1] if rows else 0,
        oldest=[Unknown(*row[:-2]) for row in rows],
    )


def count_unknown() -> list[UnknownOfTool]:
    """By tool, those that have any."""
    rows = _fetch(_COUNT_UNKNOWN, _promises() | {"most": MOST_COUNTED})
    return [UnknownOfTool(*row) for row in rows]


def count_waiting() -> dict[What, Waiting]:
    """What a person is waited for with, each kind, also those of which there is none."""
    rows = _fetch(_COUNT_WAITING, {"most": MOST_COUNTED})
    return {What(what): Waiting(count, seconds) for what, count, seconds in rows}


def count_by_group() -> list[OfGroup]:
    """Open approvals and questions, by who is asked; what several groups must sign is in each."""
    rows = _fetch(_BY_GROUP, {"most": MOST_COUNTED})
    return [OfGroup(What(what), *row) for what, *row in rows]


def find_paused(*, most: int) -> list[Paused]:
    """The runs that are paused longest, at most so many."""
    return [Paused(*row) for row in _fetch(_PAUSED, {"most": most})]


def count_due() -> Due:
    """The runs that a worker could take now, and the workers that are not known to have ended."""
    lately = ALIVE_LEASES * lease_seconds()
    [due] = _fetch(_DUE, {"most": MOST_COUNTED, "lately": lately})
    return Due(*due)


def read_sweeps() -> list[SweepAge]:
    """Every sweep that ever ran, the one that has not run for longest first."""
    return [SweepAge(*row) for row in _fetch(_SWEEPS, {})]


def _promises() -> dict[str, Any]:
    """What each tool that is known here promises of the time in which it is settled."""
    tools = all_tools()
    return {
        "tools": [tool.name for tool in tools],
        "objectives": [tool.reconcile_within for tool in tools],
        "warnings": [
            max(KEY_ENDS_SOON, (tool.idempotency_retention or timedelta(0)) / _PART_OF_RETENTION)
            for tool in tools
        ],
        "soon": KEY_ENDS_SOON,
    }


_SECONDS: Final = "EXTRACT(EPOCH FROM statement_timestamp() - {since})::float8"

_FIRST_UNKNOWN: Final = """
    (SELECT run_id FROM runs_tooloperation WHERE status = 'UNKNOWN'
     ORDER BY unknown_since LIMIT %(counted)s) AS first
"""

_HEADLINES: Final = f"""
    SELECT (SELECT count(DISTINCT run_id) FROM {_FIRST_UNKNOWN}),
           (SELECT count(*) FROM (SELECT FROM runs_approval WHERE status = 'pending'
                                  ORDER BY approve_by LIMIT %(counted)s) AS first),
           (SELECT count(*) FROM (SELECT FROM runs_question WHERE status = 'open'
                                  ORDER BY asked_at, id LIMIT %(counted)s) AS first)
"""  # noqa: S608  ours

_PROMISED: Final = """
    LEFT JOIN unnest(%(tools)s::text[], %(objectives)s::interval[], %(warnings)s::interval[])
         AS promised (tool, objective, warning) USING (tool)
"""
_KEY_IS_ENDING: Final = """
    COALESCE(key_expires_at <= statement_timestamp() + COALESCE(warning, %(soon)s::interval), false)
"""

_UNKNOWN: Final = f"""
    SELECT one.id, run_id, run.agent, tool, unknown_since, statement_timestamp(),
           promised.objective,
           next_reconcile_at, needs_person_since, key_expires_at, {_KEY_IS_ENDING},
           counted.runs, counted.operations
    FROM (SELECT * FROM runs_tooloperation WHERE status = 'UNKNOWN'
          ORDER BY unknown_since, id LIMIT %(most)s) AS one
    JOIN runs_agentrun run ON run.id = run_id
    CROSS JOIN (SELECT count(DISTINCT run_id) AS runs, count(*) AS operations
                FROM {_FIRST_UNKNOWN}) AS counted {_PROMISED}
    ORDER BY unknown_since, one.id
"""  # noqa: S608  ours

_COUNT_UNKNOWN: Final = f"""
    SELECT tool, count(*),
           count(*) FILTER (WHERE statement_timestamp() - unknown_since > objective),
           count(*) FILTER (WHERE {_KEY_IS_ENDING}),
           {_SECONDS.format(since="min(unknown_since)")}
    FROM (SELECT tool, unknown_since, key_expires_at FROM runs_tooloperation
          WHERE status = 'UNKNOWN' ORDER BY unknown_since LIMIT %(most)s) AS one {_PROMISED}
    GROUP BY tool ORDER BY tool
"""  # noqa: S608  ours

# Each read from its oldest on, by the index of what is open.
_COUNT_WAITING: Final = " UNION ALL ".join(
    f"""
    (SELECT '{what}', count(*), COALESCE({_SECONDS.format(since="min(since)")}, 0)
     FROM (SELECT {since} AS since FROM {table} WHERE {condition}
           ORDER BY {by} LIMIT %(most)s) AS one)"""  # noqa: S608  ours
    for what, table, condition, since, by in (
        (What.APPROVAL, "runs_approval", "status = 'pending'", "requested_at", "requested_at, id"),
        (What.QUESTION, "runs_question", "status = 'open'", "asked_at", "asked_at, id"),
        (
            What.OPERATION,
            "runs_tooloperation",
            "status = 'UNKNOWN' AND needs_person_since IS NOT NULL",
            "needs_person_since",
            "unknown_since",
        ),
        (
            What.PAUSE,
            "runs_agentrun",
            "paused_at IS NOT NULL AND finished_at IS NULL",
            "paused_at",
            "paused_at",
        ),
    )
)

# Whoever may act once escalated is asked beside those who were asked first.
_ASKED: Final = """
    jsonb_array_elements_text(
        CASE WHEN escalated_at IS NULL THEN groups ELSE groups || escalate_to END
        || CASE WHEN groups = '[]' THEN '[""]'::jsonb ELSE '[]' END) AS asked
"""

_BY_GROUP: Final = f"""
    SELECT '{What.APPROVAL}' AS what, asked, count(*), min(requested_at), min(approve_by) AS until,
           statement_timestamp()
    FROM (SELECT * FROM runs_approval WHERE status = 'pending'
          ORDER BY requested_at, id LIMIT %(most)s) AS one, {_ASKED}
    GROUP BY asked
    UNION ALL
    SELECT '{What.QUESTION}', asked, count(*), min(asked_at), min(answer_by), statement_timestamp()
    FROM (SELECT * FROM runs_question WHERE status = 'open'
          ORDER BY asked_at, id LIMIT %(most)s) AS one, {_ASKED}
    GROUP BY asked
    ORDER BY what, until, asked
"""  # noqa: S608  ours

_PAUSED: Final = """
    SELECT id, agent, paused_at, pause_reason FROM runs_agentrun
    WHERE paused_at IS NOT NULL AND finished_at IS NULL ORDER BY paused_at, id LIMIT %(most)s
"""

# A web process that carries calls out has a row too, and no release: it takes nothing else up.
_WORKERS: Final = (
    "SELECT count(*) FROM runs_worker WHERE ended_at IS NULL AND release_id IS NOT NULL"
)
_SEEN: Final = "statement_timestamp() - make_interval(secs => %(lately)s::float8)"

_DUE: Final = f"""{PAIRS}
    SELECT COALESCE(sum(due.count), 0)::int,
           COALESCE({_SECONDS.format(since="min(due.first)")}, 0),
           ({_WORKERS} AND last_seen_at > {_SEEN}),
           ({_WORKERS} AND last_seen_at <= {_SEEN})
    FROM pair, LATERAL (
        SELECT count(*) AS count, min(wake_at) AS first FROM (
            SELECT wake_at FROM runs_agentrun
            WHERE agent = pair.agent AND priority = pair.priority
              AND wake_at <= statement_timestamp() AND {FREE}
            ORDER BY wake_at, id LIMIT %(most)s) AS one) AS due
"""  # noqa: S608  ours

_SWEEPS: Final = f"""
    SELECT name, {_SECONDS.format(since="last_run_at")} FROM runs_sweep ORDER BY last_run_at, name
"""  # noqa: S608  ours


def _fetch(statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        return fetch_by_index(cursor, statement, values)

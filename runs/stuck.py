"""Stuck runs: active, with nothing that moves them on and nobody who is due to.

Every active run has a date at which a worker comes to it, or is paused and waits for whoever
resumes it, or is in one of the states that may go without a date because somebody else makes
it due: a signature, a person's word on an unknown operation, or what its step waits for. Here
are the runs of which the rows say none of that, by why.

Guarantees: one statement, and so one moment: what one transaction writes is seen whole. It
reads runs without a date, those that are held, and the first that are due, each by an index of
its own, and no run that sleeps. A run that somebody holds is not stuck before the lease is over.

Does not say that nobody serves a run (`unserved.py`), or that its date is long past (`desk.py`):
there somebody is due. Changes nothing.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from django.db import connection

from runs.concurrency import FREE, fetch_by_index
from runs.state import FINAL_STATES, PERSON_STATES, RunState
from runs.turns import PAIRS
from tools.checks import LONGEST_TIMEOUT


class Why(StrEnum):
    """Short enough for a label; `WORDS` has the sentence."""

    NOBODY_ASKED = "nobody_asked"
    NOTHING_UNKNOWN = "nothing_unknown"
    NO_WAIT = "no_wait"
    TIMER_UNDATED = "timer_undated"
    SIGNAL_UNHEARD = "signal_unheard"
    QUESTION_ENDED = "question_ended"
    CHILDREN_ENDED = "children_ended"
    CANCEL_UNHEARD = "cancel_unheard"
    UNDATED = "undated"
    UNFINISHED = "unfinished"
    NO_SUCH_STATE = "no_such_state"
    HELD_TOO_LONG = "held_too_long"


WORDS: Final = {
    Why.NOBODY_ASKED: "waits for a signature that nobody is asked for",
    Why.NOTHING_UNKNOWN: "waits for a person to settle an operation, and none is unknown",
    Why.NO_WAIT: "waits, and no row says what for",
    Why.TIMER_UNDATED: "waits until a time at which nobody looks",
    Why.SIGNAL_UNHEARD: "its signal has come, and nobody looks",
    Why.QUESTION_ENDED: "waits for an answer to a question that is not open",
    Why.CHILDREN_ENDED: "waits for runs that it started, and all of them have ended",
    Why.CANCEL_UNHEARD: "is to be cancelled, and nobody looks",
    Why.UNDATED: "is in a state that only a worker moves on, and has no date",
    Why.UNFINISHED: "is in a final state, and was never finished",
    Why.NO_SUCH_STATE: "is in a state that the table does not know",
    Why.HELD_TOO_LONG: "is held for longer than any call may take",
}


@dataclass(frozen=True)
class Stuck:
    """A run that is stuck. `why` is a sentence about it."""

    run_id: UUID
    agent: str
    state: str
    why: str


def find_stuck(*, most: int) -> list[Stuck]:
    """Those that have stood still longest, at most so many."""
    rows = _fetch(_LIST, {"most": most})
    return [Stuck(run_id, agent, state, WORDS[Why(why)]) for run_id, agent, state, why in rows]


def count_stuck() -> dict[str, int]:
    """By `Why`, each of them, also those of which there is none."""
    counted = dict(_fetch(_COUNT, {}))
    return {str(why): counted.get(why, 0) for why in Why}


# A lease is as long as the longest call, and as its margins, which are a part of the lease of
# whoever claimed it: at most an hour (`AGENTOPS_LEASE_SECONDS`).
_LONGEST_LEASE: Final = LONGEST_TIMEOUT + timedelta(hours=1)
# Of the due runs of one agent and priority, so many are looked at: an unknown state stays due
# while those behind it are driven, so it comes to the front.
_FIRST_DUE: Final = 100

_STUCK: Final = f"""{PAIRS},
    undated AS (
        SELECT id, state, step_number, cancel_requested_at FROM runs_agentrun
        WHERE finished_at IS NULL AND wake_at IS NULL AND paused_at IS NULL AND {FREE}
    ), first_due AS (
        SELECT first.id, first.state FROM pair, LATERAL (
            SELECT id, state FROM runs_agentrun
            WHERE agent = pair.agent AND priority = pair.priority
              AND wake_at <= statement_timestamp()
            ORDER BY wake_at, id LIMIT {_FIRST_DUE}) AS first
    ), judged AS (
        SELECT undated.id, CASE
            WHEN state <> ALL (%(known)s) THEN '{Why.NO_SUCH_STATE}'
            WHEN state = ANY (%(final)s) THEN '{Why.UNFINISHED}'
            WHEN state <> ALL (%(undated)s) THEN '{Why.UNDATED}'
            WHEN state = 'WAITING_FOR_RESOLUTION' THEN CASE WHEN NOT EXISTS (
                SELECT FROM runs_tooloperation
                WHERE run_id = undated.id AND status = 'UNKNOWN'
            ) THEN '{Why.NOTHING_UNKNOWN}' END
            WHEN cancel_requested_at IS NOT NULL AND wait.kind IS DISTINCT FROM 'child'
                THEN '{Why.CANCEL_UNHEARD}'
            WHEN state = 'WAITING_FOR_APPROVAL' THEN CASE WHEN NOT EXISTS (
                SELECT FROM runs_approval WHERE run_id = undated.id AND status = 'pending'
            ) THEN '{Why.NOBODY_ASKED}' END
            WHEN wait.kind IS NULL THEN '{Why.NO_WAIT}'
            WHEN wait.kind = 'timer' OR wait.until IS NOT NULL THEN '{Why.TIMER_UNDATED}'
            WHEN wait.kind = 'signal' THEN CASE WHEN EXISTS (
                SELECT FROM runs_signal
                WHERE run_id = undated.id AND name = wait.name AND delivered_at IS NULL
            ) THEN '{Why.SIGNAL_UNHEARD}' END
            WHEN wait.kind = 'question' THEN CASE WHEN NOT EXISTS (
                SELECT FROM runs_question WHERE step_id = wait.step_id AND status = 'open'
            ) THEN '{Why.QUESTION_ENDED}' END
            WHEN NOT EXISTS (
                SELECT FROM runs_agentrun child
                WHERE parent_id = undated.id
                  AND (finished_at IS NULL OR parent_told_at IS NULL)
                  AND child.id::text IN (
                    SELECT external_ref FROM runs_tooloperation
                    WHERE run_id = undated.id AND step_number = undated.step_number)
            ) THEN '{Why.CHILDREN_ENDED}'
        END AS why
        FROM undated LEFT JOIN runs_wait wait
          ON wait.run_id = undated.id AND wait.step_number = undated.step_number
         AND wait.ended_at IS NULL
        UNION ALL
        SELECT id, '{Why.NO_SUCH_STATE}' FROM first_due WHERE state <> ALL (%(known)s)
        UNION ALL
        SELECT id, '{Why.HELD_TOO_LONG}' FROM runs_agentrun
        WHERE lease_owner <> '' AND finished_at IS NULL
          AND lease_expires_at > statement_timestamp() + %(longest_lease)s
    ), stuck AS (SELECT id, min(why) AS why FROM judged WHERE why IS NOT NULL GROUP BY id)
"""  # noqa: S608  ours

_COUNT: Final = f"{_STUCK} SELECT why, count(*) FROM stuck GROUP BY why"  # noqa: S608  ours

_LIST: Final = f"""{_STUCK}
    SELECT run.id, run.agent, run.state, stuck.why FROM stuck JOIN runs_agentrun run USING (id)
    ORDER BY run.updated_at, run.id LIMIT %(most)s
"""  # noqa: S608  ours


def _fetch(statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    ours = {
        "longest_lease": _LONGEST_LEASE,
        "known": [str(state) for state in RunState],
        "final": [str(state) for state in FINAL_STATES],
        "undated": [str(state) for state in PERSON_STATES | {RunState.WAITING}],
    }
    with connection.cursor() as cursor:
        return fetch_by_index(cursor, statement, values | ours)

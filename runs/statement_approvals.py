"""The parts of a change's statement that ask for, spend and end approvals, and that tell people.

Guarantees: an approval is spent by the very statement that opens the send it allows, and the
statement writes nothing unless every approval that it spends is signed, unspent and in time
by the database's clock.

Does not decide that one is needed: `gate.py` does.
"""

from functools import cache
from typing import Any, Final

from runs.change import NEARLY_OVER, NewApproval, SettledCall
from runs.models import Notice
from runs.statement_values import encode_json

# What was asked for, written once.
_ASKED: Final = {
    "id": "uuid",
    "operation_id": "text",
    "status": "text",
    "fingerprint": "text",
    "covered": "jsonb",
    "rule": "text",
    "asked_because": "text",
    "policy_version": "text",
    "resource_version": "text",
    "requester": "text",
    "requester_user_id": "bigint",
    "groups": "jsonb",
    "quorum": "int",
    "escalate_to": "jsonb",
    "execute_within": "interval",
    "supersedes_id": "uuid",
}
# By the database's clock: column, and how many seconds from now.
_DATES: Final = {
    "approve_by": "decide_in",
    "remind_at": "remind_in",
    "escalate_at": "escalate_in",
}


def add_approval(n: int, asked: NewApproval, parts: list[str], values: dict[str, Any]) -> None:
    approval = asked.approval
    for name, kind in _ASKED.items():
        value = getattr(approval, name)
        values[f"asked{n}_{name}"] = encode_json(value) if kind == "jsonb" else value
    for name in _DATES.values():
        values[f"asked{n}_{name}"] = getattr(asked, name)
    parts.append(_new_approval_part(n))


@cache
def _new_approval_part(n: int) -> str:
    fields = ", ".join(f"%(asked{n}_{name})s::{kind}" for name, kind in _ASKED.items())
    dates = ", ".join(
        f"statement_timestamp() + make_interval(secs => %(asked{n}_{name})s::float8)"
        for name in _DATES.values()
    )
    return f"""asked{n} AS (
        INSERT INTO runs_approval
            (run_id, {", ".join(_ASKED)}, {", ".join(_DATES)}, reason, decided_by,
             proposed_by)
        SELECT held.id, {fields}, {dates}, '', '', '' FROM held)"""


@cache
def ended_approval_part(n: int, is_returned: bool) -> str:
    """End what still has force, and tell of it; a row is written by one part of a statement.

    Not one that is spent, unless the same change gives it back.
    """
    force = "runs_approval.status = 'approved'"
    if not is_returned:
        force += " AND runs_approval.spent_at IS NULL"
    return f"""ended{n} AS (
        UPDATE runs_approval SET status = %(ended{n}_status)s::text,
               decided_at = COALESCE(decided_at, statement_timestamp()),
               spent_at = NULL, spent_under = NULL
        FROM held
        WHERE runs_approval.id = %(ended{n}_id)s::uuid
          AND (runs_approval.status = 'pending' OR {force})
        RETURNING runs_approval.id, runs_approval.operation_id, runs_approval.run_id),
    told_end{n} AS (
        INSERT INTO runs_notice (event_id, kind, run_id, operation_id, approval_id, status)
        SELECT 'approval.decided:' || id || ':' || %(ended{n}_status)s::text, 'approval.decided',
               run_id, operation_id, id, %(ended{n}_status)s::text
        FROM ended{n}
        ON CONFLICT (event_id) DO NOTHING)"""


MAY_BE_SPENT: Final = """
          AND NOT EXISTS (
              SELECT 1 FROM unnest(%(spent)s::uuid[]) AS wanted (approval)
              LEFT JOIN runs_approval ON runs_approval.id = wanted.approval
                   AND runs_approval.run_id = %(run)s::uuid
                   AND runs_approval.status = 'approved' AND runs_approval.spent_at IS NULL
                   AND runs_approval.execute_by > statement_timestamp()
              WHERE runs_approval.id IS NULL)"""

SPEND_APPROVALS: Final = """spent AS (
    UPDATE runs_approval SET spent_at = statement_timestamp(), spent_under = held.fence_token
    FROM held WHERE runs_approval.id = ANY (%(spent)s::uuid[]))"""

RETURN_APPROVALS: Final = """returned AS (
    UPDATE runs_approval SET spent_at = NULL, spent_under = NULL
    FROM held WHERE runs_approval.id = ANY (%(returned)s::uuid[])
                AND runs_approval.spent_under = held.fence_token)"""


def add_notice(n: int, notice: Notice, parts: list[str], values: dict[str, Any]) -> None:
    for name in ("event_id", "kind", "operation_id", "approval_id", "question_id", "status"):
        values[f"notice{n}_{name}"] = getattr(notice, name)
    parts.append(f"""notice{n} AS (
        INSERT INTO runs_notice
            (event_id, kind, run_id, operation_id, approval_id, question_id, status)
        SELECT %(notice{n}_event_id)s::text, %(notice{n}_kind)s::text, held.id,
               %(notice{n}_operation_id)s::text, %(notice{n}_approval_id)s::uuid,
               %(notice{n}_question_id)s::uuid, %(notice{n}_status)s::text
        FROM held
        ON CONFLICT (event_id) DO NOTHING)""")


def tell_caller(n: int, call: SettledCall, parts: list[str], values: dict[str, Any]) -> None:
    """Tell of the end of a call that its caller does not wait for any more."""
    for name in ("operation_id", "status", "is_late"):
        values[f"settled{n}_{name}"] = getattr(call, name)
    values["nearly"] = NEARLY_OVER.total_seconds()
    parts.append(f"""settled{n} AS (
        INSERT INTO runs_notice (event_id, kind, run_id, operation_id, status)
        SELECT 'operation.settled:' || asked.operation_id, 'operation.settled', held.id,
               asked.operation_id, %(settled{n}_status)s::text
        FROM held, runs_gatewaycall AS asked
        WHERE asked.operation_id = %(settled{n}_operation_id)s::text
          AND (%(settled{n}_is_late)s::boolean OR asked.answer_by
               <= statement_timestamp() + make_interval(secs => %(nearly)s::float8))
        ON CONFLICT (event_id) DO NOTHING)""")

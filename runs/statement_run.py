"""The part of a change's statement that everything else hangs on: the run's own row.

Guarantees: the row is found only under the version and the token that the change was planned
under; whoever made the run due, or paused it, since the claim is heeded.

Does not execute anything; `commit.py` does.
"""

from typing import Any, Final

from runs.change import Change, Release
from runs.models import TEXT_LIMIT
from runs.statement_approvals import MAY_BE_SPENT
from runs.statement_values import encode_json, text_array


def run_part(change: Change, values: dict[str, Any]) -> str:
    sets = ["version = version + 1", "updated_at = statement_timestamp()"]
    for name, value in change.run.items():
        values[f"run_{name}"] = encode_json(value) if name == "result" else value
        given = f"%(run_{name})s::{_RUN_TYPES[name]}"
        sets.append(f"{name} = {_MERGED.get(name, '{given}').format(given=given)}")
    match change.release:
        case Release(wake_in=wake_in, can_cancel=can_cancel, held_since=held_since):
            due = "NULL"
            if wake_in is not None:
                values["wake_in"] = wake_in
                due = "statement_timestamp() + make_interval(secs => %(wake_in)s::float8)"
            if held_since is not None:
                values["held_since"] = held_since
                due = f"""CASE WHEN wake_at > %(held_since)s::timestamptz
                               THEN LEAST(wake_at, {due}) ELSE {due} END"""
            if can_cancel:
                due = f"""CASE WHEN cancel_requested_at IS NULL THEN {due}
                               ELSE statement_timestamp() END"""
            sets += ["lease_owner = ''", "lease_expires_at = NULL"]
            sets += [f"wake_at = {due}", f"sweep_at = {due}"]
        case None if change.lease_seconds is not None:
            # Only ever longer; unchanged most of the time, which keeps the update heap-only.
            values["lease_seconds"] = change.lease_seconds
            until = "statement_timestamp() + make_interval(secs => %(lease_seconds)s::float8)"
            sets += [
                f"lease_expires_at = GREATEST(lease_expires_at, {until})",
                f"sweep_at = GREATEST(sweep_at, {until})",
            ]
        case None:
            pass
    guard = ""
    if change.spent_approvals:
        values["spent"] = text_array(str(one) for one in change.spent_approvals)
        guard = MAY_BE_SPENT
    return f"""held AS (
        UPDATE runs_agentrun SET {", ".join(sets)}
        WHERE id = %(run)s::uuid AND version = %(version)s::bigint
          AND fence_token = %(fence)s::bigint{guard}
        RETURNING id, version, fence_token, lease_expires_at,
                  cancel_requested_at, cancel_requested_by, cancel_compensates, paused_at)"""


# A pause that a person asked for meanwhile stands, with its reason.
_MERGED: Final = {
    "paused_at": "COALESCE(paused_at, {given})",
    "pause_reason": (
        "CASE WHEN paused_at IS NULL THEN {given} "
        f"ELSE left(pause_reason || '; ' || {{given}}, {TEXT_LIMIT}) END"
    ),
}

_RUN_TYPES: Final = {
    "state": "text",
    "agent_version": "text",
    "step_number": "int",
    "failures": "int",
    "setbacks": "int",
    "result": "jsonb",
    "error": "text",
    "finished_at": "timestamptz",
    "paused_at": "timestamptz",
    "pause_reason": "text",
    "compensating_since": "timestamptz",
    "compensation_reason": "text",
    "compensation_ending": "text",
    "spent_steps": "int",
    "spent_tokens": "bigint",
    "spent_cost_usd": "numeric",
    "newest_action": "text",
    "repeats": "int",
}

"""The parts of a change's statement about waiting: waits, signals, questions and child runs.

Guarantees: a wait is over at the very moment at which its run is due again, by one clock; a
signal is marked as delivered by the statement that hands it over; a child run exists exactly
if the operation that starts it says so.

Does not decide anything: `waiting.py` and `delegation.py` do.
"""

from typing import Any, Final

from runs.change import EndedWait, NewQuestion, NewWait
from runs.models import AgentRun, Wait
from runs.statement_values import encode_json


def in_seconds(name: str) -> str:
    """The moment that many seconds from the commit; null for null."""
    return f"statement_timestamp() + make_interval(secs => %({name})s::float8)"


def add_wait(
    wait: NewWait, ended: EndedWait | None, parts: list[str], values: dict[str, Any]
) -> None:
    """A new wait. One that is over as it begins is written so: a statement writes a row once."""
    values |= {
        "wait_kind": wait.kind.value,
        "wait_name": wait.name,
        # Not the run's, which may be the next one's by this very change.
        "wait_step": wait.step_number,
        "wait_in": wait.seconds,
    }
    values |= _ending(ended)
    until = in_seconds("wait_in")
    parts.append(f"""waits AS (
        INSERT INTO runs_wait (step_id, run_id, step_number, kind, name, until,
                               ended_at, outcome, result, author)
        SELECT %(step)s::bigint, held.id, %(wait_step)s::int, %(wait_kind)s::text,
               %(wait_name)s::text, {until},
               CASE WHEN %(wait_outcome)s::text <> '' THEN statement_timestamp() END,
               %(wait_outcome)s::text, %(wait_result)s::jsonb, %(wait_author)s::text
        FROM held)""")
    if ended is not None:
        _deliver(ended, parts, values)


def end_wait(ended: EndedWait, parts: list[str], values: dict[str, Any]) -> None:
    values |= _ending(ended)
    parts.append("""wait_ended AS (
        UPDATE runs_wait
        SET ended_at = statement_timestamp(), outcome = %(wait_outcome)s::text,
            result = %(wait_result)s::jsonb, author = %(wait_author)s::text
        FROM held WHERE runs_wait.step_id = %(step)s::bigint AND runs_wait.ended_at IS NULL)""")
    _deliver(ended, parts, values)
    if ended.outcome == Wait.Outcome.CANCELLED:
        parts.append("""question_ended AS (
            UPDATE runs_question SET status = 'cancelled', ended_at = statement_timestamp()
            FROM held
            WHERE runs_question.step_id = %(step)s::bigint AND runs_question.status = 'open')""")


def _ending(ended: EndedWait | None) -> dict[str, Any]:
    if ended is None:
        return {"wait_outcome": "", "wait_result": None, "wait_author": ""}
    return {
        "wait_outcome": ended.outcome.value,
        "wait_result": encode_json(ended.result),
        "wait_author": ended.author,
    }


def _deliver(ended: EndedWait, parts: list[str], values: dict[str, Any]) -> None:
    if ended.signal_id is not None:
        values |= {"signal": ended.signal_id, "signal_step": ended.step_number}
        parts.append("""delivered AS (
            UPDATE runs_signal
            SET delivered_at = statement_timestamp(), delivered_step = %(signal_step)s::int
            FROM held
            WHERE runs_signal.id = %(signal)s::bigint AND runs_signal.run_id = held.id)""")


def add_question(asked: NewQuestion, parts: list[str], values: dict[str, Any]) -> None:
    question = asked.question
    values |= {
        "question_id": question.id,
        "question_step": question.step_number,
        "question_text": question.text,
        "question_schema": encode_json(question.schema),
        "question_groups": encode_json(question.groups),
        "question_escalate_to": encode_json(question.escalate_to),
        "question_answer_in": asked.answer_in,
        "question_remind_in": asked.remind_in,
        "question_escalate_in": asked.escalate_in,
    }
    dates = ", ".join(
        in_seconds(f"question_{name}_in") for name in ("answer", "remind", "escalate")
    )
    parts.append(f"""asks AS (
        INSERT INTO runs_question
            (id, run_id, step_id, step_number, text, schema, groups, escalate_to, status,
             answer_by, remind_at, escalate_at, answered_by, event_id)
        SELECT %(question_id)s::uuid, held.id, %(step)s::bigint, %(question_step)s::int,
               %(question_text)s::text, %(question_schema)s::jsonb, %(question_groups)s::jsonb,
               %(question_escalate_to)s::jsonb, 'open', {dates}, '', ''
        FROM held)""")


# What a child is, given by its parent; the rest is as for every new run.
_CHILD: Final = {
    "id": "uuid",
    "agent": "text",
    "agent_version": "text",
    "objective": "text",
    "input": "jsonb",
    "labels": "jsonb",
    "created_by": "text",
    "created_by_user_id": "bigint",
    "request_digest": "text",
    "priority": "smallint",
    "parent_operation": "text",
    "depth": "smallint",
    "root": "uuid",
    "lineage": "uuid",
    "budget": "jsonb",
    "traceparent": "text",
}


def add_child(n: int, child: AgentRun, parts: list[str], values: dict[str, Any]) -> None:
    for name, kind in _CHILD.items():
        value = getattr(child, name)
        values[f"child{n}_{name}"] = encode_json(value) if kind == "jsonb" else value
    given = ", ".join(f"%(child{n}_{name})s::{kind}" for name, kind in _CHILD.items())
    parts.append(f"""child{n} AS (
        INSERT INTO runs_agentrun
            (parent_id, {", ".join(_CHILD)}, state, version, step_number, failures, fence_token,
             error, lease_owner, cancel_requested_by, pause_reason, wake_at, sweep_at)
        SELECT held.id, {given}, 'READY', 1, 0, 0, 0, '', '', '', '',
               statement_timestamp(), statement_timestamp()
        FROM held RETURNING id)""")
    parts.append(f"""child{n}_journal AS (
        INSERT INTO runs_transition
            (run_id, version, event, from_state, to_state, reason, actor, fence_token,
             step_number, attempt)
        SELECT child{n}.id, 1, 'CREATE', '', 'READY', 'started by run ' || held.id, %(actor)s::text,
               0, 0, 0
        FROM child{n}, held)""")

"""What the database itself refuses to do to a question, whoever writes.

Guarantees: what was asked, and of whom, never changes; a question ends once, and what it came
to never changes afterwards; the one exception is a user who is deleted, whose name stays.

Does not say who may answer, nor whether an answer fits: `approvals.questions` does.
"""

from typing import Final

import pgtrigger

_ASKED: Final = (
    "id",
    "run_id",
    "step_id",
    "step_number",
    "text",
    "schema",
    "groups",
    "escalate_to",
    "asked_at",
    "answer_by",
)
_CAME_TO: Final = ("status", "answer", "answered_by", "ended_at", "event_id")


def _changed(columns: tuple[str, ...]) -> str:
    return " OR ".join(f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in columns)


def _refusal(
    name: str, operation: pgtrigger.Operation, *, condition: str, message: str
) -> pgtrigger.Trigger:
    return pgtrigger.Trigger(
        name=name,
        when=pgtrigger.Before,
        operation=operation,
        condition=pgtrigger.Condition(condition),
        func=f"RAISE EXCEPTION 'question %: {message}', NEW.id USING ERRCODE = 'check_violation';",
    )


QUESTION_TRIGGERS: Final = [
    _refusal(
        "question_keeps_what_was_asked",
        pgtrigger.UpdateOf(*_ASKED),  # type: ignore[no-untyped-call]
        condition=_changed(_ASKED),
        message="what was asked cannot change",
    ),
    _refusal(
        "question_ends_once",
        pgtrigger.Update,
        condition=f"OLD.status <> 'open' AND ({_changed(_CAME_TO)} OR (NEW.answered_by_user_id "
        "IS NOT NULL AND NEW.answered_by_user_id IS DISTINCT FROM OLD.answered_by_user_id))",
        message="it has ended, and what it came to cannot change",
    ),
    _refusal(
        "question_begins_open",
        pgtrigger.Insert,
        condition="NEW.status <> 'open'",
        message="it is asked before it ends",
    ),
]

"""Questions for a terminal.

Guarantees: text that came from outside is shown as text.

Does not fetch anything and knows no commands.
"""

import json
from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from approvals.question_shapes import Question
from runs.tables import printable, show_time
from tools.redaction import bound_text

_MOODS: Final = {"open": "cyan", "answered": "green", "expired": "yellow"}
LONGEST: Final = 200


def questions_table(questions: Sequence[Question]) -> Table:
    """One row per question."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("question", "status", "asks", "of", "run", "answer by", "answer"):
        table.add_column(name, overflow="fold")
    for one in questions:
        table.add_row(
            _text(one.id),
            Text(one.status, style=_MOODS.get(one.status, "")),
            _text(one.question),
            _text(", ".join(one.groups) or "anybody"),
            _text(one.run),
            _text(show_time(one.answer_by) if one.answer_by else "at any time"),
            _text(say_answer(one)),
        )
    return table


def say_status(question: Question) -> str:
    """The status with what was answered, in one line."""
    answered = say_answer(question)
    return f"{question.status}: {answered}" if answered else question.status


def say_answer(question: Question) -> str:
    """Who answered what; empty while nobody has."""
    if question.status != "answered":
        return ""
    return f"{json.dumps(question.answer)} by {question.answered_by}"


def _text(value: object) -> Text:
    return Text(printable(bound_text(str(value), LONGEST)))

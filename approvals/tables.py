"""Approvals for a terminal.

Guarantees: text that came from outside is shown as text, and an action that is to be signed is
shown complete: arguments are never cut, and stand apart from every text that describes them.

Does not fetch anything and knows no commands.
"""

import json
from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from approvals.shapes import Approval
from runs.tables import printable, show_time

_MOODS: Final = {"pending": "cyan", "approved": "green", "denied": "red", "expired": "yellow"}


def approvals_table(approvals: Sequence[Approval]) -> Table:
    """One row per approval."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("approval", "status", "tool", "run", "asks", "decide by", "note"):
        table.add_column(name, overflow="fold")
    for approval in approvals:
        table.add_row(
            _text(approval.id),
            Text(approval.status, style=_MOODS.get(approval.status, "")),
            _text(approval.tool),
            _text(approval.run),
            _text(approval.requester),
            _text(show_time(approval.approve_by)),
            _text(say_note(approval)),
        )
    return table


def action_table(approval: Approval) -> Table:
    """What exactly would be signed."""
    facts: list[tuple[str, object]] = [
        ("approval", approval.id),
        ("status", say_status(approval)),
        ("tool", approval.tool),
        ("asked by", approval.requester),
        ("why", approval.rule),
        ("resource", approval.resource_version or "no version"),
        ("decide by", show_time(approval.approve_by)),
        ("fingerprint", approval.fingerprint),
    ]
    if approval.description:
        facts.insert(3, ("in words", approval.description))
    # Whole, however long and narrow: nobody signs what they cannot see.
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, fact in facts:
        table.add_row(Text(name, style="dim"), _text(fact))
    for name, value in sorted(approval.arguments.items()):
        # In ASCII, which shows letters that only look alike as what they are.
        table.add_row(
            Text(f"argument {printable(name)}", style="bold"), Text(json.dumps(value, indent=2))
        )
    return table


def say_status(approval: Approval) -> str:
    """The status with who or what it came from, in one line."""
    note = say_note(approval)
    return f"{approval.status}: {note}" if note else approval.status


def say_note(approval: Approval) -> str:
    """What there is to know besides the status."""
    if approval.missing:
        signed = [one.user for one in approval.verdicts if one.verdict == "approve"]
        note = f"still needs {approval.missing}"
        return f"{note}; signed by {', '.join(signed)}" if signed else note
    notes = [f"by {approval.decided_by}"] if approval.decided_by else []
    if approval.reason:
        notes.append(approval.reason)
    if approval.superseded_by is not None:
        notes.append(f"replaced by {approval.superseded_by}")
    return "; ".join(notes)


def _text(value: object) -> Text:
    return Text(printable(str(value)))

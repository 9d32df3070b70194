"""`audit_effects`: compare what providers list as their effects with what is recorded here."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.core.management.base import CommandParser
from rich.table import Table

from runs.access import OPERATIONS_RECONCILE
from runs.audit_sweeps import DAY, audited_tools
from runs.auditing import audit_tool
from runs.errors import InvalidInput
from runs.management.base import KernelCommand
from runs.models import EffectAudit
from runs.tables import facts_table, printable, show_time
from tools.redaction import bound_text
from tools.registry import get_tool
from tools.spec import ToolSpec

LONGEST: Final = timedelta(days=366)
COUNTS: Final = ("effects", "matched", "duplicates", "late", "unaccounted", "missing")


class Command(KernelCommand):
    help = (
        "Ask the providers of the tools that have an audit_handler for every effect of a span, and "
        "compare it with what is recorded. Exits 1 if anything does not match, or could not be "
        "asked. A second or a late effect is an incident; see list_incidents."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "tools", nargs="*", metavar="TOOL", help="every tool with an audit_handler if left out"
        )
        when = "as 2031-05-01T00:00:00Z, or how long ago: 90m, 36h, 7d"
        parser.add_argument("--since", default="24h", help=f"{when} (default 24h)")
        parser.add_argument("--until", help=f"{when} (default now)")

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(OPERATIONS_RECONCILE)
        specs = _choose(options["tools"])
        now = datetime.now(UTC)
        since = _read_moment("--since", options["since"], now=now)
        until = _read_moment("--until", options["until"] or "0m", now=now)
        if not since < until or until - since > LONGEST:
            raise InvalidInput(
                field="--since",
                value=since.isoformat(),
                fix=f"Give a moment before --until, at most {LONGEST.days} days.",
            )
        audits = [
            audit_tool(spec=spec, since=start, until=end)
            for spec in specs
            for start, end in _by_days(since, until)
        ]
        self._show(audits)
        if any(one.error or one.matched != one.effects or one.missing for one in audits):
            sys.exit(1)

    def _show(self, audits: Sequence[EffectAudit]) -> None:
        if self.as_json:
            self.show_json({"audits": [_as_json(one) for one in audits]})
            return
        if not audits:
            self.say("No tool has an audit_handler.")
            return
        self.show_table(_as_table(audits))
        for audit in audits:
            if audit.error:
                self.say(audit.error)
            if audit.findings:
                self.say(f"{audit.tool}, what does not match:")
                self.show_table(facts_table([_say(one) for one in audit.findings]))


def _choose(names: Sequence[str]) -> list[ToolSpec]:
    if not names:
        return audited_tools()
    specs = [get_tool(name) for name in dict.fromkeys(names)]
    for spec in specs:
        if spec.audit_handler is None:
            raise InvalidInput(
                field="TOOL",
                value=repr(bound_text(spec.name, 80)),
                fix="It has no audit_handler; list_tools shows which tools have one.",
            )
    return specs


_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}


def _read_moment(field: str, text: str, *, now: datetime) -> datetime:
    """A moment with a zone, or one so long before `now`. Raises InvalidInput."""
    try:
        if text[-1:] in _UNITS and text[:-1].isdecimal():
            return now - timedelta(**{_UNITS[text[-1]]: int(text[:-1])})
        moment = datetime.fromisoformat(text)
        if moment.utcoffset() is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidInput(
        field=field,
        value=ascii(text[:80]),
        fix="Give a moment with its zone, like 2031-05-01T00:00:00Z, or how long ago: 36h, 7d.",
    )


def _by_days(since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    spans = []
    while since < until:
        end = min(since + DAY, until)
        spans.append((since, end))
        since = end
    return spans


def _as_table(audits: Sequence[EffectAudit]) -> Table:
    """One row per asking: a provider's words are in none of its cells."""
    table = Table("tool", "since", "until", *COUNTS)
    for audit in audits:
        counts = (str(getattr(audit, name)) for name in COUNTS)
        span = (show_time(audit.since), show_time(audit.until))
        table.add_row(printable(audit.tool), *span, *counts)
    return table


def _say(finding: dict[str, str]) -> tuple[str, str]:
    named = finding["operation_id"] or "without an operation id"
    return finding["what"], f"{finding['external_ref'] or '-'}  {named}  {finding['at']}"


def _as_json(audit: EffectAudit) -> dict[str, Any]:
    return {
        "tool": audit.tool,
        "since": audit.since.isoformat(),
        "until": audit.until.isoformat(),
        **{name: getattr(audit, name) for name in COUNTS},
        "findings": audit.findings,
        "error": audit.error or None,
    }

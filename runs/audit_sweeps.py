"""Audits by the clock: every tool whose provider can list its effects, by turns.

Guarantees: each moment is counted once per tool, in spans of a day at most, also after a time in
which nothing ran or the provider did not answer: how far it is done is a row, moved on by the
transaction that keeps the audit. Two sweeps at one time may both ask, and one of them counts.
A span is as long as the last one lets expect to be comparable, and halved where it was not. No
tool holds up another: who was not asked for longest is asked first, each has its share of the
time, and what is left over is the next sweep's.

Does not audit the newest moments, which may yet change at the provider.
"""

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import structlog
from django.db import transaction

from runs.auditing import ask_provider, find_margin
from runs.models import EffectAudit
from runs.watermarks import move_if_there, read_watermark
from tools.auditing import MOST_EFFECTS
from tools.registry import all_tools
from tools.spec import ToolSpec

DAY: Final = timedelta(days=1)
# What holds more than an audit compares is asked for in halves, down to this.
SHORTEST: Final = timedelta(minutes=1)
# So many of one tool in one sweep: a provider that answers slowly is caught up with by the next.
MOST_AUDITS: Final = 12
# After it none is begun. The last one may take minutes, and a message is not kept for an hour.
SECONDS: Final = 240.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Audited:
    """`audits` were made, of which `failed` could not ask."""

    audits: int = 0
    failed: int = 0


def run_once(*, seconds: float = SECONDS) -> Audited:
    """One sweep over the tools with an `audit_handler`, as far as the time allows."""
    began = time.monotonic()
    audits: list[EffectAudit] = []
    turns = sorted(((_find_newest(spec), spec) for spec in audited_tools()), key=_last_asked)
    for place, (newest, spec) in enumerate(turns, 1):
        if place > 1 and time.monotonic() >= began + seconds:
            break
        try:
            deadline = began + seconds * place / len(turns)
            audits += _catch_up(spec, newest=newest, deadline=deadline)
        except Exception:
            # A span that is not done is the next sweep's again.
            log.exception("audit_failed", tool=spec.name)
    return Audited(audits=len(audits), failed=sum(1 for one in audits if one.error))


def audited_tools() -> list[ToolSpec]:
    """The tools whose providers can be asked for all their effects."""
    return [spec for spec in all_tools() if spec.audit_handler is not None]


def sweep_name(spec: ToolSpec) -> str:
    """The name under which it is kept how far the tool is audited."""
    return f"audit {spec.name}"


def _find_newest(spec: ToolSpec) -> EffectAudit | None:
    return EffectAudit.objects.filter(tool=spec.name).order_by("-id").first()


def _last_asked(turn: tuple[EffectAudit | None, ToolSpec]) -> int:
    newest, _ = turn
    return 0 if newest is None else newest.pk


def _catch_up(spec: ToolSpec, *, newest: EffectAudit | None, deadline: float) -> list[EffectAudit]:
    """Audit on from where the tool is done; at least one span, also past the deadline."""
    margin = find_margin(spec)
    now, since = read_watermark(sweep_name(spec), first=DAY + margin)
    until, length = now - margin, _choose_length(newest)
    audits: list[EffectAudit] = []
    while since < until and len(audits) < MOST_AUDITS:
        if audits and time.monotonic() >= deadline:
            break
        end = min(since + length, until)
        audit = ask_provider(spec=spec, since=since, until=end)
        if not _keep(audit, name=sweep_name(spec)):
            break
        audits.append(audit)
        if not audit.error:
            since = end
        elif not audit.effects or end - since <= SHORTEST:
            break
        length = _choose_length(audit)
    return audits


def _keep(audit: EffectAudit, *, name: str) -> bool:
    """Write the audit down; False if another sweep has counted its span."""
    found = audit.effects - audit.matched + audit.missing
    with transaction.atomic():
        if not audit.error and not move_if_there(
            name, since=audit.since, until=audit.until, found=found
        ):
            return False
        audit.save(force_insert=True)
    return True


def _choose_length(last: EffectAudit | None) -> timedelta:
    """How long a span holds half of what is compared at most, if it is as busy as the last."""
    if last is None:
        return DAY
    length = last.until - last.since
    if not last.error:
        length *= MOST_EFFECTS / (2 * max(last.effects, 1))
    elif last.effects:
        length /= 2
    return min(max(length, SHORTEST), DAY)

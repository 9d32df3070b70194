"""Audits by the clock: every tool whose provider can list its effects, and every signature.

Guarantees: each moment is audited once per tool, in spans of a day at most, also after a time in
which nothing ran or the provider did not answer: how far it is done is a row, moved on only by an
audit that took place. A span that holds too many effects is halved. Two sweeps at one time ask
for a tool once, and no tool holds up another.

Does not audit the newest moments, which may yet change at the provider.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog
from django.db import connection
from django.db.models.functions import Now

from runs.auditing import audit_tool, find_margin
from runs.models import EffectAudit, Sweep
from runs.unsigned import note_unsigned
from tools.registry import all_tools
from tools.spec import ToolSpec

DAY: Final = timedelta(days=1)
# What holds more than an audit compares is asked for in halves, down to this.
SHORTEST: Final = timedelta(minutes=1)
# So many of one tool in one sweep: a provider that answers slowly is caught up with by the next.
MOST_AUDITS: Final = 12
# The first of the two keys of the advisory lock; the second one is the sweep's.
_LOCK: Final = 7_301_004
UNSIGNED: Final = "unsigned effects"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Audited:
    """`audits` were made, of which `failed` could not ask; `unsigned` are sends found unsigned."""

    audits: int = 0
    failed: int = 0
    unsigned: int = 0


def run_once() -> Audited:
    """One sweep over every tool with an `audit_handler`, and over the sends since the last."""
    audits: list[EffectAudit] = []
    for spec in audited_tools():
        try:
            audits += _catch_up(spec)
        except Exception:
            # A span that is not done is the next sweep's again.
            log.exception("audit_failed", tool=spec.name)
    return Audited(
        audits=len(audits),
        failed=sum(1 for one in audits if one.error),
        unsigned=_catch_up_with_signatures(),
    )


def audited_tools() -> list[ToolSpec]:
    """The tools whose providers can be asked for all their effects."""
    return [spec for spec in all_tools() if spec.audit_handler is not None]


def sweep_name(spec: ToolSpec) -> str:
    """The name under which it is kept how far the tool is audited."""
    return f"audit {spec.name}"


def _catch_up(spec: ToolSpec) -> list[EffectAudit]:
    audits: list[EffectAudit] = []
    with _alone(sweep_name(spec)) as watermark:
        if watermark is None:
            return audits
        until = watermark.now - find_margin(spec)
        since, longest = watermark.done_until or until - DAY, DAY
        while since < until and len(audits) < MOST_AUDITS:
            end = min(since + longest, until)
            audit = audit_tool(spec=spec, since=since, until=end)
            audits.append(audit)
            if not audit.error:
                watermark.move(end, found=audit.effects - audit.matched + audit.missing)
                since = end
            elif audit.effects and end - since > SHORTEST:
                longest = (end - since) / 2
            else:
                break
    return audits


def _catch_up_with_signatures() -> int:
    with _alone(UNSIGNED) as watermark:
        if watermark is None:
            return 0
        since, found = watermark.done_until or watermark.now - DAY, 0
        while since < watermark.now:
            end = min(since + DAY, watermark.now)
            found += note_unsigned(since=since, until=end)
            watermark.move(end, found=found)
            since = end
        return found


@dataclass(frozen=True)
class _Watermark:
    name: str
    now: datetime
    done_until: datetime | None

    def move(self, until: datetime, *, found: int) -> None:
        Sweep.objects.filter(name=self.name).update(
            done_until=until, last_run_at=Now(), found=found
        )


@contextmanager
def _alone(name: str) -> Iterator[_Watermark | None]:
    """How far the sweep is done, held alone; None while another process is at it.

    The lock is the session's, since no transaction may be open while a provider is asked.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", [_LOCK, name])
        is_alone = cursor.fetchone()[0]
    if not is_alone:
        yield None
        return
    try:
        Sweep.objects.get_or_create(name=name)
        yield _Watermark(*Sweep.objects.values_list("name", Now(), "done_until").get(name=name))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", [_LOCK, name])

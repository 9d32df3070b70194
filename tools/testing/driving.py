"""What a worker of a case does: it drives one run by the kernel's own engine.

Guarantees: every claim, commit, call and look-up is the kernel's; the fault strikes this
process by a real signal at a named moment; on the way out late answers are heard.
Does not need a broker: the worker looks at the run's own date.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db.models.functions import Coalesce, Greatest, Now

from runs import events, workers
from runs.engine import advance
from runs.models import AgentRun
from runs.state import PERSON_STATES
from tools import registry
from tools.execution import wait_until_back
from tools.spec import ToolSpec
from tools.testing.catalogue import Strike
from tools.testing.diary import Diary

# The run is mostly due when it last said: a look that is too early costs more than a late one.
LONGEST_NAP_SECONDS = 0.5
LATE_ANSWER_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What one worker is to do; `strike` is what is done to it meanwhile."""

    run_id: UUID
    tool: ToolSpec
    diary: Diary
    lease_seconds: float
    strike: Strike | None = None


def work_on(assignment: Assignment) -> None:
    """Drive the run until it has ended or waits for a person: a worker's whole life."""
    settings.AGENTOPS_LEASE_SECONDS = assignment.lease_seconds
    loaded = set(sys.modules)
    with registry.isolated_registry():
        registry.register(assignment.tool)
        events.subscribe(lambda event: assignment.diary.note("event", name=event.name))
        if assignment.strike is not None:
            events.subscribe(_striker(assignment.strike, assignment.diary))
        while (due_in := seconds_until_due(assignment.run_id)) is not None:
            if due_in > 0:
                time.sleep(min(due_in, LONGEST_NAP_SECONDS))
            else:
                _advance(assignment.run_id)
        # As a worker does at its end, so that late answers are heard.
        wait_until_back(seconds=LATE_ANSWER_SECONDS)
        workers.report_end()
    assignment.diary.note("loaded", modules=sorted(set(sys.modules) - loaded))


def _advance(run_id: UUID) -> None:
    with workers.at_work() as owner:
        assert owner is not None, "nobody declares a living worker of the kit ended"
        advance(run_id=run_id, owner=owner)


def _striker(strike: Strike, diary: Diary) -> Callable[[events.Event], None]:
    """Strikes at the moment that the fault names, once."""
    counting = strike.after is None
    met = 0

    def strike_at(event: events.Event) -> None:
        nonlocal counting, met
        if events.Name.CALL_DONE in (event.name, strike.after) and not diary.count("send"):
            # The kernel may find that its lease is too short and call nothing at all.
            return
        if counting and event.name is strike.at:
            met += 1
            if met == strike.nth:
                strike.now(diary)
        counting = counting or event.name is strike.after

    return strike_at


def seconds_until_due(run_id: UUID) -> float | None:
    """Until the run may be claimed; None when it has ended, or a person is to move it next."""
    until = Greatest("wake_at", Coalesce("lease_expires_at", "wake_at")) - Now()
    row = (
        AgentRun.objects.filter(id=run_id, wake_at__isnull=False, finished_at__isnull=True)
        .exclude(state__in=PERSON_STATES, wake_at__gt=Now())
        .values_list(until, flat=True)
        .first()
    )
    return None if row is None else row.total_seconds()

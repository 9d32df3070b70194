"""Signals: what somebody tells a run, stored before anybody looks for it.

Guarantees: one event id is one signal of a run, however often it is sent; signals of a run
are stored, and so delivered, in the order of their commits, because the run's row is locked
meanwhile; a signal that came before the run waits for it is not lost.

Does not deliver: `waiting.py` matches signals with waits, under the lease.
"""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from runs.access import RUNS_WRITE, Actor
from runs.asking import check_storable, check_text, lock_run
from runs.errors import EventReused, TooManySignals, WrongState
from runs.models import NAME, AgentRun, Signal
from runs.state import FINAL_STATES, RunState
from runs.wake import make_due
from tools.canonical import digest

# A run that never waits for what it is sent must not fill the table.
MOST_UNDELIVERED: Final = 1_000


@dataclass(frozen=True)
class Signalled:
    """`replayed` says that this event id was heard before, with the same content."""

    run: AgentRun
    signal: Signal
    replayed: bool


def signal_run(
    *, actor: Actor, run_id: UUID, name: str, event_id: str, payload: Any = None
) -> Signalled:
    """Tell a run something under a name; it is delivered to a wait for that name, once.

    Raises UnknownRun, InvalidInput, EventReused (the same id with other content), WrongState
    (the run is final), TooManySignals or NotPermitted; none of them leaves a trace.
    """
    actor.require(RUNS_WRITE)
    check_text(name, field="name", shortest=1, longest=NAME)
    check_text(event_id, field="event_id", shortest=1, longest=255)
    check_storable(payload, field="payload")
    content = digest({"name": name, "payload": payload})
    with transaction.atomic():
        run = lock_run(run_id)
        if (known := run.signals.filter(event_id=event_id).first()) is not None:
            if known.digest != content:
                raise EventReused(event_id=event_id, run_id=str(run_id))
            return Signalled(run=run, signal=known, replayed=True)
        if run.state in FINAL_STATES:
            raise WrongState(run_id=str(run_id), state=run.state, request="heed a signal")
        waiting = run.signals.filter(delivered_at__isnull=True)
        if waiting[:MOST_UNDELIVERED].count() >= MOST_UNDELIVERED:
            raise TooManySignals(run_id=str(run_id), limit=MOST_UNDELIVERED)
        signal = Signal.objects.create(
            run=run,
            name=name,
            event_id=event_id,
            payload=payload,
            digest=content,
            sent_by=actor.name,
        )
        # Who holds it may have looked already, and would park it without a date.
        if run.state == RunState.WAITING or run.lease_expires_at is not None:
            make_due(run_id)
    signal.refresh_from_db()
    return Signalled(run=run, signal=signal, replayed=False)

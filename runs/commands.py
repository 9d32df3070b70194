"""Everything that a caller may ask of runs. Every front door comes through here.

Guarantees: a command takes an `Actor` and checks its scope, then writes in one transaction or
not at all. Each has its own module; this one lists them.
"""

from runs.control import cancel_run, compensate_run, pause_run, reconcile_now
from runs.forking import fork_run
from runs.resuming import Raise, resume_run
from runs.retrying import retry_run
from runs.signals import Signalled, signal_run
from runs.starting import MAX_LABELS, Started, start_run

__all__ = [
    "MAX_LABELS",
    "Raise",
    "Signalled",
    "Started",
    "cancel_run",
    "compensate_run",
    "fork_run",
    "pause_run",
    "reconcile_now",
    "resume_run",
    "retry_run",
    "signal_run",
    "start_run",
]

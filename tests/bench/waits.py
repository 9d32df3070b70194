"""Measures what a user waits for: the first step of a new run, the resume of a long one, timers;
and what the sweeps behind them cost.

Has no floor and no peers: these are promises of our own. Guarantees one database for all of
them, so that the long runs lie beside the short ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from tests.bench.processes import call
from tests.bench.sample import Wait
from tests.bench.server import Server, own_database

OURS = "tests.bench.ours"
SWEEPING = "tests.bench.sweeping"


@dataclass(frozen=True, kw_only=True)
class WaitPlan:
    """How often each wait is measured, and after how many finished steps a run resumes."""

    times: int
    lengths: tuple[int, ...]
    # Rows in the tables, in growing order, and timers that are due at one moment.
    rows: tuple[int, ...] = (1000,)
    timers: int = 1000


def measure_waits(*, server: Server, plan: WaitPlan, console: Console) -> Sequence[Wait]:
    """Raises ContenderFailed: these lines must run."""
    with own_database(server, "waits") as url:
        call(OURS, "prepare", url)
        console.print("waits: first step")
        found = call(OURS, "measure_first_step", url, plan.times)
        console.print("waits: resume")
        found += call(OURS, "measure_resume", url, plan.times, *plan.lengths)
    return [Wait(**wait) for wait in found]


def measure_sweeps(*, server: Server, plan: WaitPlan, console: Console) -> Sequence[Wait]:
    """Raises ContenderFailed: these lines must run."""
    with own_database(server, "sweeps") as url:
        call(OURS, "prepare", url)
        console.print("sweeps: beside sleeping rows")
        found = call(SWEEPING, "measure_sweeps", url, plan.times, *plan.rows)
    with own_database(server, "timers") as url:
        call(OURS, "prepare", url)
        console.print("sweeps: timers that are due at once")
        found += call(SWEEPING, "measure_timers", url, plan.timers)
    return [Wait(**wait) for wait in found]

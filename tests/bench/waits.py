"""Measures what a user waits for: the first step of a new run, and the resume of a long one.

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


@dataclass(frozen=True, kw_only=True)
class WaitPlan:
    """How often each wait is measured, and after how many finished steps a run resumes."""

    times: int
    lengths: tuple[int, ...]


def measure_waits(*, server: Server, plan: WaitPlan, console: Console) -> Sequence[Wait]:
    """Raises ContenderFailed: these lines must run."""
    with own_database(server, "waits") as url:
        call(OURS, "prepare", url)
        console.print("waits: first step")
        found = call(OURS, "measure_first_step", url, plan.times)
        console.print("waits: resume")
        found += call(OURS, "measure_resume", url, plan.times, *plan.lengths)
    return [Wait(**wait) for wait in found]

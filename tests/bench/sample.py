"""What is measured: contenders, and the figures that one measurement yields.

Guarantees values that travel as JSON between the harness and the process of a contender.
Does not import any contender: a missing package spoils its own line of the table only.
"""

from dataclasses import dataclass
from statistics import median
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One timed piece of work: `steps` durable steps in `seconds` of wall time."""

    steps: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.steps / self.seconds


@dataclass(frozen=True, kw_only=True)
class Wait:
    """How long one kind of thing took, several times: seconds of wall time each."""

    title: str
    seconds: list[float]

    @property
    def median(self) -> float:
        return median(self.seconds)


class Measured(Protocol):
    """The interface of a contender's module.

    `measure` makes its own connections and closes them before it returns; its clock
    leaves connecting, importing and creating tables out.
    """

    def prepare(self, dsn: str) -> None:
        """Create what the contender needs in an empty database."""

    def measure(self, dsn: str, steps: int) -> Sample:
        """Do `steps` steps, each durable before the next one starts."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One line of the table.

    `module` is imported in a fresh process, where its function `measure` does `times` as
    many steps as asked for. `ours` must run; a peer may be skipped with a reason.
    """

    key: str
    title: str
    module: str
    measure: str = "measure"
    times: int = 1
    ours: bool = False


# Twice as many steps, because the others take longer for theirs and outlast a hiccup.
FLOOR = Contender(
    key="floor", title="floor: psycopg, two commits", module="tests.bench.floor", times=2
)

CONTENDERS = (
    Contender(key="run", title="one run", module="tests.bench.ours", ours=True),
    Contender(
        key="writes",
        title="one run of keyed writes",
        module="tests.bench.ours",
        measure="measure_writes",
        ours=True,
    ),
    Contender(
        key="transactions",
        title="one run of TRANSACTIONAL calls",
        module="tests.bench.ours",
        measure="measure_transactions",
        ours=True,
    ),
    Contender(key="absurd", title="Absurd, one task", module="tests.bench.peers.absurd_task"),
    Contender(
        key="langgraph", title="LangGraph, one thread", module="tests.bench.peers.langgraph_loop"
    ),
    Contender(key="dbos", title="DBOS, one workflow", module="tests.bench.peers.dbos_transact"),
    Contender(
        key="runs",
        title="runs of 10 steps, Celery",
        module="tests.bench.ours",
        measure="measure_many",
        times=2,
        ours=True,
    ),
    Contender(
        key="dbos-queue",
        title="DBOS, workflows of 10, queue",
        module="tests.bench.peers.dbos_transact",
        measure="measure_many",
        times=2,
    ),
)

"""Measures every contender: first its cost per step, then its speed in several rounds.

Guarantees that every measurement stands between two of the floor and is compared with
those alone, and that the order turns around from round to round, so that a disk or a
neighbour whose mood changes favours nobody. A peer that cannot run costs its own line
only. Our own lines must run: their failure is raised.

Costs are the difference between a longer and a shorter run, so what starting and ending
a run costs is not in them. Speeds come from other runs, with nothing in between.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median

from rich.console import Console

from tests.bench.counters import CounterReader, Counters
from tests.bench.processes import ContenderFailed, call
from tests.bench.relay import relayed
from tests.bench.sample import FLOOR, Contender, Sample
from tests.bench.server import Server, own_database


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Steps of a timed run, rounds of timed runs, steps of the two counted runs."""

    steps: int
    rounds: int
    counted: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one step costs."""

    counters: Counters
    round_trips: float


@dataclass(kw_only=True)
class Line:
    """One line of the table while it fills."""

    contender: Contender
    url: str
    cost: Cost | None = None
    samples: list[Sample] = field(default_factory=list)
    # Of the floor around each sample.
    floors: list[float] = field(default_factory=list)
    skipped: str | None = None

    @property
    def rate(self) -> float | None:
        """Median steps per second."""
        return median(sample.rate for sample in self.samples) if self.samples else None

    @property
    def ratio(self) -> float | None:
        """Median of each sample's part of the floor around it."""
        pairs = zip(self.samples, self.floors, strict=True)
        return median(sample.rate / floor for sample, floor in pairs) if self.samples else None


def measure_all(
    contenders: Sequence[Contender], *, server: Server, plan: Plan, console: Console
) -> list[Line]:
    """The floor's line, then one per contender; `console` hears what is going on."""
    with ExitStack() as databases:
        reader = CounterReader(databases.enter_context(own_database(server, "counters")))
        floor, *lines = (
            Line(
                contender=contender,
                url=databases.enter_context(own_database(server, contender.key)),
            )
            for contender in (FLOOR, *contenders)
        )
        for line in (floor, *lines):
            console.print(f"cost per step: {line.contender.title}", markup=False)
            with _skipping(line, console):
                call(line.contender.module, "prepare", line.url)
                line.cost = _cost(line, reader=reader, plan=plan)
        for number in range(plan.rounds):
            console.print(f"round {number + 1} of {plan.rounds}")
            turn = lines if number % 2 == 0 else reversed(lines)
            _measure_round(turn, floor=floor, steps=plan.steps, console=console)
    return [floor, *lines]


def _measure_round(lines: Iterable[Line], *, floor: Line, steps: int, console: Console) -> None:
    _take(floor, steps=steps)
    for line in lines:
        if line.skipped is not None:
            continue
        with _skipping(line, console):
            sample = _measure(line.contender, line.url, steps)
            before = floor.samples[-1].rate
            _take(floor, steps=steps)
            line.samples.append(sample)
            line.floors.append((before + floor.samples[-1].rate) / 2)
            part = sample.rate / line.floors[-1]
            said = f"{line.contender.title}: {sample.rate:,.0f} steps/s, {part:.0%} of the floor"
            console.print(said, markup=False)


def _take(floor: Line, *, steps: int) -> None:
    sample = _measure(floor.contender, floor.url, steps)
    floor.samples.append(sample)
    floor.floors.append(sample.rate)


def _cost(line: Line, *, reader: CounterReader, plan: Plan) -> Cost:
    (few, less), (many, more) = (_spend(line, reader=reader, steps=n) for n in plan.counted)
    steps = many.steps - few.steps
    return Cost(
        counters=(more.counters - less.counters) / steps,
        round_trips=(more.round_trips - less.round_trips) / steps,
    )


def _spend(line: Line, *, reader: CounterReader, steps: int) -> tuple[Sample, Cost]:
    """What a whole run of `steps` steps costs, counted from outside."""
    before = reader.read(line.url)
    with relayed(line.url) as relay:
        sample = _measure(line.contender, relay.url, steps)
        after = reader.read(line.url)
        return sample, Cost(counters=after - before, round_trips=relay.round_trips)


def _measure(contender: Contender, url: str, steps: int) -> Sample:
    return Sample(**call(contender.module, contender.measure, url, steps * contender.times))


@contextmanager
def _skipping(line: Line, console: Console) -> Iterator[None]:
    try:
        yield
    except ContenderFailed as failed:
        if line.contender.ours or line.contender is FLOOR:
            raise
        line.skipped = failed.reason
        console.print(f"skipped: {line.contender.title}: {failed.reason}", markup=False)

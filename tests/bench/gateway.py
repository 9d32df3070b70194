"""What the gateway adds to a call: the same provider, called directly and through us.

Guarantees that both are measured by the same callers in turn, in one run on one machine, and that
every call through the gateway was settled as committed. What is added is the difference of the
medians: the provider's own time, and what HTTP to it costs, are in both.

Callers, web server, worker, provider and database share the machine, so with many callers the
figure is that of a full machine, and no promise.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, Final
from uuid import uuid4

import httpx2
from rich import box
from rich.console import Console
from rich.table import Table

from tests.bench.ours import Incomplete, set_up, token
from tests.bench.processes import call
from tests.bench.server import Server, own_database

MODULE: Final = "tests.bench.gateway"
CALLERS: Final = (1, 16, 64)
ROUNDS: Final = 4
WARM_UP: Final = 30
TIMEOUT: Final = 120.0


@dataclass(frozen=True, kw_only=True)
class Through:
    """Calls by so many callers at a time: seconds of each, directly and through the gateway, and
    the seconds that all those through the gateway took together."""

    callers: int
    bare: list[float]
    through: list[float]
    seconds: float

    @property
    def added(self) -> float:
        """Seconds on top of a bare call, from median to median."""
        return median(self.through) - median(self.bare)

    @property
    def ratio(self) -> float:
        return median(self.through) / median(self.bare)

    @property
    def rate(self) -> float:
        """Settled calls per second."""
        return len(self.through) / self.seconds


def measure_gateway(*, server: Server, calls: int, console: Console) -> list[Through]:
    """About `calls` calls for each number of callers. Raises ContenderFailed: it must run."""
    with own_database(server, "gateway") as url:
        call("tests.bench.ours", "prepare", url)
        console.print("gateway: beside a bare call")
        return [Through(**found) for found in call(MODULE, "measure", url, calls)]


def measure(dsn: str, calls: int) -> list[dict[str, Any]]:
    """In a process of its own, as everything is that sets Django up."""
    # Callers share one token here.
    os.environ["AGENTOPS_RATE_PER_MINUTE"] = "0"
    set_up(dsn)
    from tests.bench.stack import providing, serving, working

    with providing() as provider:
        os.environ["BENCH_PROVIDER"] = provider
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=max(CALLERS))
        with (
            working(),
            serving() as base,
            httpx2.Client(base_url=base, headers=token(), timeout=TIMEOUT, limits=limits) as ours,
            httpx2.Client(base_url=provider, timeout=TIMEOUT, limits=limits) as theirs,
        ):
            one = _Calls(ours=ours, theirs=theirs)
            for _ in range(WARM_UP):
                one.through()
            return [asdict(_measure(one, callers, calls)) for callers in CALLERS]


class _Calls:
    """The call, in both ways."""

    def __init__(self, *, ours: httpx2.Client, theirs: httpx2.Client) -> None:
        self._ours, self._theirs = ours, theirs

    def bare(self) -> None:
        number, key = uuid4().int % 10**9, {"Idempotency-Key": uuid4().hex}
        self._theirs.post("/", json={"number": number}, headers=key).raise_for_status()

    def through(self) -> None:
        answer = self._ours.post(
            "/api/v1/operations/",
            json={"tool": "bench_call", "arguments": {"number": uuid4().int % 10**9}},
            headers={"Idempotency-Key": uuid4().hex},
        )
        if answer.status_code != 200 or answer.json()["status"] != "COMMITTED":
            raise Incomplete(done=0, expected=1, why=f"{answer.status_code} {answer.text[:200]}")


def _measure(one: _Calls, callers: int, calls: int) -> Through:
    each = max(calls // callers // ROUNDS, 2)
    bare: list[float] = []
    through: list[float] = []
    seconds = 0.0
    # In turn, so that a neighbour whose mood changes favours neither.
    for _ in range(ROUNDS):
        bare += _time(one.bare, callers, each)
        began = time.perf_counter()
        through += _time(one.through, callers, each)
        seconds += time.perf_counter() - began
    return Through(callers=callers, bare=bare, through=through, seconds=seconds)


def _time(act: Callable[[], None], callers: int, each: int) -> list[float]:
    def act_and_time(_: int) -> list[float]:
        found = []
        for _ in range(each):
            began = time.perf_counter()
            act()
            found.append(time.perf_counter() - began)
        return found

    with ThreadPoolExecutor(callers) as pool:
        return [one for these in pool.map(act_and_time, range(callers)) for one in these]


def show_gateway(found: Sequence[Through], *, console: Console) -> None:
    """Prints one row for each number of callers, in milliseconds."""
    table = Table(box=box.MARKDOWN)
    table.add_column("callers of the gateway", no_wrap=True)
    for title in ("bare ms", "through ms", "added ms", "times bare", "p95 ms", "calls/s"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in found:
        table.add_row(
            str(one.callers),
            f"{median(one.bare) * 1000:.1f}",
            f"{median(one.through) * 1000:.1f}",
            f"{one.added * 1000:.1f}",
            f"{one.ratio:.1f}",
            f"{quantiles(one.through, n=20)[-1] * 1000:.1f}",
            f"{one.rate:,.0f}",
        )
    console.print(table)


def as_json(found: Sequence[Through]) -> list[dict[str, Any]]:
    """The same figures, in seconds."""
    return [
        asdict(one) | {"added": one.added, "ratio": one.ratio, "rate": one.rate} for one in found
    ]

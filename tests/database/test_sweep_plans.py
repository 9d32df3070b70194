"""A sweep, a turn and a claim read what is due, however many rows sleep beside it.

The bounds are pages that the server touched: they count what a plan's row numbers hide,
such as index entries that were walked past. 100,000 sleeping runs are some 10,000 pages.
"""

from collections.abc import Callable, Iterator

import celery
import pytest
from django.db import connection

from approvals import sweeps as approval_sweeps
from runs import Finish, sweeps, watch
from runs.access import operator
from runs.agents import Agent
from runs.commands import start_run
from runs.lease import claim
from runs.models import AgentRun
from runs.turns import choose
from tests.database.kit import ON_DATABASE, ask
from tests.database.many import add_approvals, add_runs, add_watched
from tests.database.measuring import measured

pytestmark = [ON_DATABASE, pytest.mark.timeout(180)]

SLEEPING, PENDING, WATCHED = 100_000, 10_000, 10_000
AGENTS = ("one", "two", "three", "four")
DUE = 10


@pytest.fixture(autouse=True)
def _broker() -> Iterator[None]:
    yield
    celery.current_app.control.purge()


@pytest.fixture(params=["statistics are fresh", "statistics are of an empty table"])
def due(request: pytest.FixtureRequest) -> list[AgentRun]:
    """Some due runs among many rows for which nobody is due."""
    for name in AGENTS:
        Agent(name=name, decider=lambda context: Finish(1))
    # What earlier tests deleted still has entries in the indexes, and nobody sleeps there.
    _tend("VACUUM")
    if request.param != "statistics are fresh":
        _tend("ANALYZE")
    for name in AGENTS:
        for priority in (-1, 0, 7):
            count = SLEEPING // len(AGENTS) // 3
            add_runs(count, agent=name, due_in=3600, priority=priority, spread=86_400)
    add_approvals(PENDING)
    add_watched(WATCHED)
    if request.param == "statistics are fresh":
        _tend("ANALYZE")
    return [start_run(actor=operator(), agent=AGENTS[n % len(AGENTS)]).run for n in range(DUE)]


def test_what_sleeps_costs_a_sweep_a_turn_and_a_claim_nothing(due: list[AgentRun]) -> None:
    # Pages for each: a row that is written has its entry in every index.
    bounds: dict[str, tuple[int, Callable[[], object]]] = {
        "a turn": (400, lambda: choose(due[0].id)),
        "due runs": (500 + 60 * DUE, sweeps.run_once),
        "due runs that were told": (400, sweeps.run_once),
        "watched operations": (30, watch.find_due),
        "approvals": (60, approval_sweeps.run_once),
        "a claim": (250, lambda: claim(run_id=due[0].id, owner="worker 1")),
    }
    found: dict[str, object] = {}
    for name, (most, act) in bounds.items():
        with measured() as meter:
            act()
        print(f"{name}: {meter.pages} pages, {meter.rows:.0f} rows")
        if meter.pages > most or meter.whole_tables & {"runs_agentrun", "runs_tooloperation"}:
            found[name] = [(one.pages, one.plan) for one in meter.statements if one.pages > 10]
    assert found == {}
    assert ask("SELECT count(*) FROM runs_agentrun") >= SLEEPING // 12 * 12


def _tend(how: str) -> None:
    with connection.cursor() as cursor:
        # The server may be at it by itself.
        cursor.execute("SET lock_timeout = '60s'")
        cursor.execute(f"{how} runs_agentrun, runs_tooloperation, runs_approval")
        cursor.execute("RESET lock_timeout")

"""A rolling deployment with real workers: nothing is stranded, and nothing is done twice.

Under the old version runs are parked on a signature, on a timer, on an unknown outcome, and one
call is under way, for each rule. Then a worker with the new version starts, and the old one ends.
"""

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from django.db.models import Count
from pytest_django import Settings

from runs.access import operator
from runs.agents import EXTERNAL, all_agents, forget_agents
from runs.commands import start_run
from runs.migration_plan import Move, plan_runs
from runs.models import AgentRun, Approval, Release, Transition
from runs.unserved import find_unserved
from runs.wake import make_due
from tests.database.approving import person, say
from tests.database.kit import change
from tests.processes import Celery, of_this_test, wait_until
from tools import registry

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(180),
    # Not only the kernel's own tables: people sign.
    pytest.mark.django_db(transaction=True),
]

LEASE_SECONDS = 8.0
APP = "tests.crash.rollingapp"

with registry.isolated_registry():
    importlib.import_module(f"{APP}.tools")
    TOOLS = registry.all_tools()
agents = importlib.import_module(f"{APP}.agents")
RULES: tuple[str, ...] = agents.RULES
MOVES = {
    "next_step": Move.ADOPTED,
    "rebuild_context": Move.CONTEXT_REBUILT,
    "reapprove": Move.ADOPTED,
    "held_reapprove": Move.SIGNED_ANEW,
    "finish_on_old": Move.STAYS,
}


class Deployment:
    """Workers of either version on one book, and the runs that are started meanwhile."""

    def __init__(self, celery: Celery, directory: Path) -> None:
        self.celery = celery
        self.runs: list[AgentRun] = []
        self._directory = directory

    def file(self, name: str) -> Path:
        return self._directory / name

    def know(self, version: str) -> None:
        """This process starts runs, and plans, as one with the code of that version."""
        forget_agents({agent.name for agent in all_agents()} - {EXTERNAL})
        agents.define(version)

    def start(self, kind: str, name: str) -> list[AgentRun]:
        """One run of each rule."""
        started = [
            start_run(
                actor=operator(), agent=f"{kind}_{rule}", input={"name": f"{name} {rule}"}
            ).run
            for rule in RULES
        ]
        self.runs += started
        return started

    def wait_for(self, runs: list[AgentRun], state: str) -> None:
        ids = [run.id for run in runs]
        wait_until(
            lambda: AgentRun.objects.filter(id__in=ids, state=state).count() == len(ids),
            what=f"{len(ids)} runs are {state}",
            seconds=40.0,
        )

    def results(self, runs: list[AgentRun], *, but: Sequence[AgentRun] = ()) -> set[object]:
        """What the runs finished with."""
        ids = {run.id for run in runs} - {run.id for run in but}
        return set(AgentRun.objects.filter(id__in=ids).values_list("result", flat=True))


@pytest.fixture
def deployment(transactional_db: None, tmp_path: Path) -> Iterator[Deployment]:
    (tmp_path / "book").touch()
    env = {
        "AGENTOPS_APPS": APP,
        "AGENTOPS_LEASE_SECONDS": str(LEASE_SECONDS),
        "ROLLING_DIR": str(tmp_path),
    }
    with Celery(of_this_test(), log_dir=tmp_path, env=env) as celery:
        for spec in TOOLS:
            registry.register(spec)
        yield Deployment(celery, tmp_path)


def test_a_rolling_deployment_strands_nothing_and_does_nothing_twice(
    deployment: Deployment, settings: Settings
) -> None:
    settings.AGENTOPS_LEASE_SECONDS = LEASE_SECONDS
    celery, hold, dark = deployment.celery, deployment.file("hold"), deployment.file("dark")
    hold.touch()
    dark.touch()
    deployment.know("old")
    celery.beat()
    old = celery.worker("old", ROLLING_VERSION="old")
    napping = deployment.start("naps", "nap")
    held = deployment.start("held", "held")
    lost = deployment.start("enters", "lost")
    deployment.wait_for(napping, "WAITING")
    deployment.wait_for(held, "WAITING_FOR_APPROVAL")
    deployment.wait_for(lost, "TOOL_STATUS_UNKNOWN")

    deployment.know("new")
    planned = {one.run: one.move for chunk in plan_runs() for one in chunk}
    for run in (*napping, *held, *lost):
        assert planned[str(run.id)] == MOVES.get(run.agent, MOVES[rule_of(run)]), run

    # Two versions beside each other.
    celery.worker("new", ROLLING_VERSION="new")
    wait_until(lambda: Release.objects.count() == 2, what="the new worker has registered")
    wait_until(lambda: asked_anew() == {"held_reapprove"}, what="a signature is asked for anew")
    deployment.know("old")
    slow = deployment.start("enters", "slow")
    # The old one has this at least: nobody else may touch it.
    deployment.wait_for(slow[-1:], "TOOL_RUNNING")

    # The old one ends, with calls under way.
    old.terminate()
    hold.unlink()
    assert old.wait() == 0
    dark.unlink()
    change("UPDATE runs_wait SET until = now() WHERE ended_at IS NULL")
    for approval in Approval.objects.filter(status="pending"):
        say(approval, person())
    for run in (*napping, *lost):
        make_due(run.id)
    adopted = [run for run in deployment.runs if rule_of(run) != "finish_on_old"]
    deployment.wait_for(adopted, "COMPLETED")
    assert deployment.results(adopted, but=slow) == {"new"}

    # What finishes on old workers waits for one, and somebody hears of it.
    left = {f"{kind}_finish_on_old" for kind in ("naps", "held", "enters")}
    assert {one.agent for one in find_unserved()} == left
    celery.worker("old again", ROLLING_VERSION="old")
    finished = [run for run in deployment.runs if rule_of(run) == "finish_on_old"]
    deployment.wait_for(finished, "COMPLETED")
    assert deployment.results(finished) == {"old"}

    assert find_unserved() == []
    names = [run.input["name"] for run in deployment.runs]
    assert sorted(deployment.file("book").read_text().splitlines()) == sorted(names)
    most = Transition.objects.filter(event="MIGRATE").values("run").annotate(times=Count("id"))
    assert {row["times"] for row in most} == {1}


def rule_of(run: AgentRun) -> str:
    return run.agent.partition("_")[2]


def asked_anew() -> set[str]:
    """The agents of runs whose signature was asked for once more."""
    rows = Approval.objects.filter(supersedes__isnull=False, status="pending")
    return set(rows.values_list("run__agent", flat=True))

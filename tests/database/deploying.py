"""Deployments for tests: this process serves other code, and rows of workers that serve theirs."""

from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from runs import pinning
from runs.access import operator
from runs.agents import Agent, forget_agents
from runs.commands import start_run
from runs.engine import Progress
from runs.models import AgentRun, Transition, Worker
from runs.versions import register_release
from runs.worker_ends import EndedBy, end
from tests.database.kit import drive, pass_until_due

NAME = "deployed"


def deploy(
    decider: Any,
    *,
    rule: Any = "next_step",
    name: str = NAME,
    tools: tuple[str, ...] = ("pay",),
    **more: Any,
) -> Agent:
    """From now on this process has this code for the agent, and what it knew of others is old."""
    forget_agents([name])
    agent = Agent(name=name, decider=decider, tools=tools, on_version_change=rule, **more)
    pinning.forget_others()
    return agent


def serve(worker: str, *, seen: timedelta = timedelta()) -> Worker:
    """A worker of another process that serves the code that this one has now."""
    row = Worker.objects.create(name=worker, host="elsewhere", pid=1, release_id=register_release())
    Worker.objects.filter(name=worker).update(last_seen_at=Now() - seen)
    return row


def stop(worker: str) -> None:
    """It reports its end."""
    assert end(worker, by=EndedBy.REPORTED, evidence="its deployment is over")


def start(name: str = NAME, **given: Any) -> AgentRun:
    return start_run(actor=operator(), agent=name, **given).run


def adoptions(run: AgentRun) -> list[tuple[str, str]]:
    """(state, reason) of each adoption of the run."""
    rows = Transition.objects.filter(run=run, event="MIGRATE").order_by("id")
    return list(rows.values_list("to_state", "reason"))


def drive_once(run: AgentRun) -> Progress:
    """One task of this process, once the run is due."""
    pass_until_due(run)
    return drive(run)

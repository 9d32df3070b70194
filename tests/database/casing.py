"""What the tests of cases share: a run as a file, and agents that decide otherwise today."""

from pathlib import Path
from typing import Any

from runs import Agent
from runs.agents import forget_agents, get_agent
from runs.cases import Case, load_case
from runs.cases.exporting import export_case
from runs.cases.files import write_case
from runs.models import AgentRun


def to_case(run: AgentRun, folder: Path, *, through: int | None = None) -> Case:
    """The run's case, as it is read from its file."""
    path = folder / f"{run.id}-{through}.yaml"
    write_case(export_case(run_id=run.id, through=through), path)
    return load_case(path)


def decide_by(run: AgentRun, decider: Any) -> Agent:
    """Today the run's agent decides by this."""
    was = get_agent(run.agent)
    forget_agents([run.agent])
    return Agent(name=was.name, decider=decider, tools=was.tools, output=was.output)

"""The start page of the admin: what is uncertain, who has to do what, whether everything moves.

Guarantees: what presses comes first; every figure leads to where it is settled or listed, and is
there for those who may see that; a fixed number of queries, each of bounded size, however many
runs there are. The page changes nothing.

Does not keep anything between two looks: each is what the rows say then.
"""

from typing import Any, Final

from django.http import HttpRequest
from django.utils import timezone

from agentops.desk.lately import describe_lately
from agentops.desk.machines import (
    describe_stuck,
    describe_unserved,
    describe_workers,
    read_machines,
)
from agentops.desk.people import describe_waiting
from agentops.desk.shapes import Figure, Section, Viewer
from agentops.desk.uncertain import describe_uncertain
from runs.agents import EXTERNAL, all_agents
from runs.models import AgentRun
from runs.tools import read_result
from tools.registry import all_tools

REFRESH_SECONDS: Final = 10
_SEES_EFFECTS = ("runs.view_agentrun", "runs.view_tooloperation")


def show_desk(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The admin's own context, with the desk in it."""
    viewer = Viewer(request)
    machines = read_machines()
    headline = None
    figures: list[Figure] = []
    sections: list[Section] = []
    if viewer.may(*_SEES_EFFECTS):
        headline, sections = describe_uncertain(viewer, machines)
    for more_figures, more_sections in (
        describe_waiting(viewer),
        describe_stuck(viewer),
        describe_unserved(viewer),
        describe_workers(viewer, machines),
    ):
        figures += more_figures
        sections += more_sections
    sections += describe_lately(viewer, now=timezone.now())
    pressing = [one for one in sections if one.tone != "neutral"]
    return context | {
        "title": "Desk",
        "headline": headline,
        "figures": figures,
        "sections": sections,
        "pressing": pressing,
        "calm": [one for one in sections if one.tone == "neutral" and one.table is not None],
        "well": [one for one in sections if one.table is None],
        # Asked only where nothing is there that comes of a run.
        "begin": None if headline and not headline.is_none else _describe_beginning(viewer),
        "refresh_seconds": REFRESH_SECONDS,
    }


def _describe_beginning(viewer: Viewer) -> dict[str, Any] | None:
    """What a new installation lacks; None once there is a run, or for who may not see any."""
    if not viewer.may("runs.view_agentrun") or AgentRun.objects.exists():
        return None
    return {
        "tools": [tool.name for tool in all_tools() if tool.name != read_result.__name__][:_NAMED],
        "agents": [agent.name for agent in all_agents() if agent.name != EXTERNAL][:_NAMED],
    }


_NAMED: Final = 5

"""Versions: what each deployment serves, and which deployments are alive.

Terms. *Version*: the digest of what an agent or a tool is; equal content has one version, on
whatever machine. *Release*: the versions of all agents and tools of one process, under their
digest. *Pinned*: the version of its agent that decides for a run. *Served*: part of the release
of a worker that is alive. *Newer*: first served by a worker later than the other one was.

Guarantees: a worker's release, and the content of everything in it, is on record before the
worker's first claim, once, however many workers register at one time; what is on record under
a version never changes.

Does not see processes that are no workers: a web process pins what it knows, and serves nothing.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import QuerySet
from django.db.models.functions import Now

from runs.agents import all_agents
from runs.deciders import Llm
from runs.llm.prompts import prompt_of
from runs.models import Definition, Release, Worker
from tools.canonical import canonical_json
from tools.registry import all_tools
from tools.spec import declaration

# Seen within so many leases, a worker counts as alive.
ALIVE_LEASES: Final = 3
_DIGITS: Final = 16

Kind = Definition.Kind


@dataclass(frozen=True)
class Served:
    """One agent as a release has it: its version, and what it does on a change of it."""

    version: str
    rule: str

    @property
    def finishes_on_old(self) -> bool:
        return self.rule == "finish_on_old"


@dataclass(frozen=True)
class Deployed:
    """One release, as others see it: its agents, and the names of its tools."""

    agents: Mapping[str, Served]
    tools: frozenset[str]


def register_release() -> str:
    """Put what this process serves on record; returns the release's id. Safe to repeat."""
    release = _build_release()
    Definition.objects.bulk_create(_define(), ignore_conflicts=True)
    Release.objects.bulk_create([release], ignore_conflicts=True)
    return release.id


def identify_release() -> str:
    """The id of what this process would serve."""
    return _build_release().id


def _build_release() -> Release:
    agents = {
        agent.name: {"version": agent.version, "rule": agent.on_version_change}
        for agent in all_agents()
    }
    tools = {
        spec.name: {"version": spec.version, "arguments": spec.arguments_version}
        for spec in all_tools()
    }
    what = canonical_json({"agents": agents, "tools": tools})
    return Release(id=hashlib.sha256(what).hexdigest()[:_DIGITS], agents=agents, tools=tools)


def _define() -> Iterable[Definition]:
    for agent in all_agents():
        yield _definition(Kind.AGENT, agent.name, agent.version, agent.content)
        if isinstance(agent.decider, Llm):
            prompt = prompt_of(agent.decider, agent)
            yield _definition(Kind.PROMPT, agent.name, prompt.version, {"text": prompt.text})
    for spec in all_tools():
        yield _definition(Kind.TOOL, spec.name, spec.version, declaration(spec))


def _definition(kind: Definition.Kind, name: str, version: str, body: Any) -> Definition:
    return Definition(kind=kind, name=name, version=version, body=body)


# -- Who is alive --------------------------------------------------------------


def live_releases() -> list[Deployed]:
    """Each release that a worker now serves."""
    return [
        Deployed(
            agents={
                name: Served(version=agent["version"], rule=agent["rule"])
                for name, agent in agents.items()
            },
            tools=frozenset(tools),
        )
        for agents, tools in _alive().values_list("agents", "tools")
    ]


def is_served_now(release: str) -> bool:
    """Whether a living worker serves exactly this release."""
    return _alive().filter(id=release).exists()


def is_arguments_version_served(tool: str, version: str) -> bool:
    """Whether a living worker has the tool with arguments of this very form."""
    return _alive().filter(tools__contains={tool: {"arguments": version}}).exists()


def _alive() -> QuerySet[Release]:
    since = Now() - timedelta(seconds=ALIVE_LEASES * float(settings.AGENTOPS_LEASE_SECONDS))
    workers = Worker.objects.filter(ended_at__isnull=True, last_seen_at__gt=since)
    return Release.objects.filter(id__in=workers.values("release_id"))

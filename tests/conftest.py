"""Fixtures shared by all tests."""

import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings

from agentops.logs import StderrHandler
from runs.access import operator
from runs.agents import Agent, all_agents, forget_agents
from runs.commands import start_run
from runs.models import AgentRun
from runs.tools import read_result
from tests.emptying import pytest_runtest_setup as pytest_runtest_setup
from tools import policy_store, registry

_numbers = itertools.count(1)
# Each test client has middleware of its own, which would first read every static file there is.
settings.WHITENOISE_AUTOREFRESH = True
# What this very process logs is kept for pytest's report, and not written between its dots.
for _handler in [one for one in logging.getLogger().handlers if isinstance(one, StderrHandler)]:
    logging.getLogger().removeHandler(_handler)


@pytest.fixture(autouse=True)
def _own_registries() -> Iterator[None]:
    """Tools and agents that a test defines are gone after it, and policies are read anew.

    What the runtime brings itself stays."""
    known = {agent.name for agent in all_agents()}
    policy_store.forget()
    with registry.isolated_registry():
        registry.register(read_result.spec)
        yield
    policy_store.forget()
    forget_agents({agent.name for agent in all_agents()} - known)


@pytest.fixture
def start() -> Callable[..., AgentRun]:
    """Start a run of a new agent: `start(decider=…, tools=(…,), input=…)`."""

    def start_new(*, decider: Any, tools: tuple[str, ...] = (), **options: Any) -> AgentRun:
        of_agent = (
            "budget",
            "on_failure",
            "concurrency",
            "priority",
            "repeats_allowed",
            "llm_limits",
            "output",
            "constraints",
            "on_version_change",
        )
        given = {name: options.pop(name) for name in of_agent if name in options}
        agent = Agent(name=f"agent{next(_numbers)}", decider=decider, tools=tools, **given)
        return start_run(actor=operator(), agent=agent.name, **options).run

    return start_new

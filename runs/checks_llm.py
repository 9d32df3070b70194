"""System checks of agents that decide with an llm.

Guarantees: what would fail at the first decision is said at start, as far as that can be told
without the libraries of providers, which take seconds to load; `check --deploy` loads them.

Does not ask a provider anything: whether a key is right shows when it is used.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from django.core.checks import CheckMessage, Error, Tags, Warning, register

from runs.agents import Agent, all_agents, get_agent
from runs.deciders import Llm
from runs.errors import LlmUnavailable, UnknownAgent
from runs.llm.offers import CONFIDENCE, RATIONALE, RESERVED
from runs.llm.providers import get_client
from tools.errors import UnknownTool
from tools.registry import get_tool

# What all providers take for the name of a tool.
_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# By provider: what its clients are pointed and let in with. One of them is enough.
_KEYS: Final = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
}


@register
def check_llms(**_: Any) -> list[CheckMessage]:
    """Every llm that an agent names can be asked, and the agent's tools can be offered to it."""
    found: list[CheckMessage] = []
    for agent in all_agents():
        if isinstance(agent.decider, Llm):
            for check in (_check_names, _check_tools, _check_delegates):
                found += check(agent, agent.decider)
    return found


@register(Tags.security, deploy=True)
def check_clients(**_: Any) -> list[CheckMessage]:
    """Every llm's client can be made here: its library is installed, and its key is set."""
    llms = [agent.decider for agent in all_agents() if isinstance(agent.decider, Llm)]
    found: list[CheckMessage] = []
    for named in {named for llm in llms for named in llm.in_turn if isinstance(named, str)}:
        try:
            get_client(named)
        except LlmUnavailable as error:
            hint = "Set what is missing in the processes that decide: the workers."
            found.append(Warning(str(error), hint=hint, id="runs.W004"))
    return sorted(found, key=lambda one: one.msg)


def find_name_problem(name: str) -> str:
    """What is wrong with the name of an llm, in one sentence with the fix; empty if nothing is."""
    provider, colon, model = name.partition(":")
    if not (provider and colon and model):
        return f"{name[:80]!r} is no llm: write provider:model, as in openai:gpt-5-mini."
    known = _known_providers()
    written = provider.split("/")[0].replace("-", "_")
    if not known or any(written == one or written.startswith(f"{one}_") for one in known):
        return ""
    near = get_close_matches(written, known, n=1)
    fix = (
        f"Did you mean {near[0].replace('_', '-')}?" if near else "Pydantic AI names those it has."
    )
    return f"{name[:80]!r} has an unknown provider. {fix}"


def _check_names(agent: Agent, llm: Llm) -> Iterator[CheckMessage]:
    if not llm.named:
        yield Error(
            f"Agent {agent.name!r} decides with an llm and names none.",
            hint='Name one, as in Llm("openai:gpt-5-mini"), or set AGENTOPS_LLM.',
            id="runs.E016",
        )
        return
    for named in llm.in_turn:
        if not isinstance(named, str):
            continue
        if problem := find_name_problem(named):
            yield Error(f"Agent {agent.name!r}: {problem}", id="runs.E017")
        elif missing := _find_missing_key(named):
            yield Warning(
                f"Agent {agent.name!r} asks {named}, and {missing} is not set.",
                hint="Set it in the processes that decide: the workers.",
                id="runs.W003",
            )


def _check_tools(agent: Agent, llm: Llm) -> Iterator[CheckMessage]:
    for name in agent.tools:
        if name in RESERVED:
            why = f"which is how an llm says something else (so are {', '.join(sorted(RESERVED))})"
        elif not _TOOL_NAME.fullmatch(name):
            why = "and providers take letters, digits, _ and - alone, 64 at the most"
        elif clash := llm.options.reasons and _find_clash(name):
            why = f"whose argument {clash} has the name of what an llm says of a call"
        else:
            continue
        yield Error(
            f"Agent {agent.name!r} offers its llm the tool {name!r}, {why}.",
            hint='Give the tool another name: @tool(name="…").',
            id="runs.E018",
        )


def _check_delegates(agent: Agent, llm: Llm) -> Iterator[CheckMessage]:
    for name in llm.options.delegates:
        try:
            get_agent(name)
        except UnknownAgent as error:
            yield Error(
                f"Agent {agent.name!r} delegates to an agent that is not registered: {error}",
                hint="Correct the name in delegates, or add the agent's app to AGENTOPS_APPS.",
                id="runs.E021",
            )


def _find_clash(tool: str) -> str:
    with suppress(UnknownTool):
        return next((name for name in (RATIONALE, CONFIDENCE) if name in _arguments_of(tool)), "")
    return ""


def _arguments_of(tool: str) -> tuple[str, ...]:
    return get_tool(tool).argument_names


def _find_missing_key(named: str) -> str:
    keys = _KEYS.get(re.split(r"[-:]", named)[0], ())
    return "" if any(os.environ.get(key) for key in keys) or not keys else keys[0]


@cache
def _known_providers() -> tuple[str, ...]:
    """By the files that Pydantic AI has for them: importing it would take a second or two."""
    spec = find_spec("pydantic_ai")
    if spec is None or spec.origin is None:
        return ()
    files = (Path(spec.origin).parent / "providers").glob("[a-z]*.py")
    return tuple(sorted(file.stem for file in files))

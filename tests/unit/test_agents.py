"""Laws of the registry of agents: one name, one agent, one version."""

import functools
import importlib
import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runs.agents import Agent, Budget, DuplicateAgent, all_agents, forget_agents, get_agent
from runs.checks import check_agents
from runs.context import Context
from runs.deciders import Llm, Script
from runs.decisions import Finish, ToolCall
from runs.errors import UnknownAgent
from tools import Approve


def decide(context: Context) -> Finish:
    return Finish(1)


def decide_otherwise(context: Context) -> Finish:
    return Finish(2)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    before = {agent.name for agent in all_agents()}
    yield
    forget_agents({agent.name for agent in all_agents()} - before)


def test_creating_an_agent_registers_it() -> None:
    agent = Agent(name="support", decider=decide, tools=("refund",))
    assert get_agent("support") is agent
    assert agent in all_agents()


def test_one_text_is_one_constraint_and_not_its_letters() -> None:
    agent = Agent(name="kind", decider=decide, constraints="be kind")  # type: ignore[arg-type]
    assert agent.constraints == ("be kind",)


def test_all_agents_come_by_name() -> None:
    for name in ("zoe", "adam", "mia"):
        Agent(name=name, decider=decide)
    names = [agent.name for agent in all_agents()]
    assert names == sorted(names)
    assert {"adam", "mia", "zoe"} <= set(names)


def test_a_version_is_of_the_code_that_runs_and_not_of_its_file_as_it_is_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "deployed_in_place.py"
    file.write_text("def decide(context):\n    return 'old'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("deployed_in_place")
    first = Agent(name="first", decider=module.decide)
    file.write_text("def decide(context):\n    return 'a longer one'\n")
    assert "old" in first.content["decider"]
    linecache.checkcache(str(file))
    assert "a longer one" in Agent(name="second", decider=module.decide).content["decider"]


def test_what_is_given_as_a_set_has_one_version_in_every_process() -> None:
    names = {"finance", "legal", "risk", "board"}
    given = {
        "tools": Agent(name="with tools", decider=decide, tools=names).tools,  # type: ignore[arg-type]
        "constraints": Agent(name="bound", decider=decide, constraints=names).constraints,  # type: ignore[arg-type]
        "groups": Approve(groups=names).groups,  # type: ignore[arg-type]
        "escalate_to": Approve(escalate_to=names).escalate_to,  # type: ignore[arg-type]
        "fallback": Llm("openai:a", fallback=names).options.fallback,
    }
    assert given == dict.fromkeys(given, tuple(sorted(names)))


@pytest.mark.parametrize(
    "given",
    [
        {"decider": decide, "constraints": ("never \x00 do",)},
        {"decider": Llm("openai:gpt-5-mini", "never \ud800 do")},
    ],
    ids=["constraints", "instructions"],
)
def test_a_text_that_no_row_can_hold_is_an_error_at_start(given: dict[str, Any]) -> None:
    Agent(name="bad", **given)
    [found] = [one for one in check_agents() if one.id == "runs.E019"]
    assert "'bad'" in found.msg


def test_a_name_is_given_once() -> None:
    first = Agent(name="support", decider=decide)
    with pytest.raises(DuplicateAgent, match="support"):
        Agent(name="support", decider=decide_otherwise)
    assert get_agent("support") is first


def test_a_name_that_is_close_is_suggested() -> None:
    Agent(name="support", decider=decide)
    with pytest.raises(UnknownAgent, match="Did you mean 'support'"):
        get_agent("suport")


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    Agent(name="support", decider=decide)
    with pytest.raises(UnknownAgent, match=r"Registered: .*support"):
        get_agent("zzzzzz")


def test_a_forgotten_agent_is_unknown_and_its_name_is_free() -> None:
    Agent(name="support", decider=decide)
    forget_agents(["support", "never there"])
    with pytest.raises(UnknownAgent):
        get_agent("support")
    assert Agent(name="support", decider=decide_otherwise) is get_agent("support")


def _version(**given: object) -> str:
    options: dict[str, object] = {"name": "support", "decider": decide, "tools": ("a",)} | given
    agent = Agent(**options)  # type: ignore[arg-type]
    version = agent.version
    forget_agents([agent.name])
    return version


def test_a_version_is_the_same_for_the_same_agent() -> None:
    assert _version() == _version()
    assert 0 < len(_version()) <= 64


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"tools": ("a", "b")},
        {"tools": ("b",)},
        {"decider": decide_otherwise},
        {"decider": Script(Finish(1))},
        {"decider": Llm("openai:gpt-5-mini")},
    ],
)
def test_a_version_changes_with_what_decides(change: dict[str, object]) -> None:
    assert _version(**change) != _version()


def test_two_scripts_have_two_versions_and_two_llms_too() -> None:
    assert _version(decider=Script(ToolCall("a", x=1))) != _version(
        decider=Script(ToolCall("a", x=2))
    )
    assert _version(decider=Llm("m", instructions="be brief")) != _version(decider=Llm("m"))


def test_a_decider_without_source_still_gives_a_version() -> None:
    assert _version(decider=functools.partial(decide)) == _version(
        decider=functools.partial(decide)
    )


@pytest.mark.parametrize(
    ("decider", "name"),
    [
        (Script(Finish(1)), "script"),
        (Llm("openai:gpt-5-mini"), "llm openai:gpt-5-mini"),
        (decide, "function decide"),
    ],
)
def test_a_decider_has_a_name_for_the_journal(decider: Script | Llm, name: str) -> None:
    assert Agent(name="named", decider=decider).decider_name == name


def test_an_agent_has_no_limits_unless_told() -> None:
    assert Agent(name="support", decider=decide).budget == Budget(None, None, None, None)

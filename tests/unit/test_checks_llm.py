"""What is said at start of agents that decide with an llm."""

from typing import Any

import pytest
from pydantic_ai.models.function import FunctionModel

from runs import Agent, Llm
from runs.checks_llm import check_clients, check_llms, find_name_problem
from runs.llm import providers
from runs.llm.offers import RESERVED
from tools import Call, EffectType, tool


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    settings.AGENTOPS_LLM = ""


def ids(llm: Llm, **declared: Any) -> list[str | None]:
    Agent(name="clerk", decider=llm, **declared)
    return [one.id for one in check_llms()]


def test_an_llm_with_a_key_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1")
    llm = Llm("anthropic:claude-haiku-4-5", fallback=("openai-chat:gpt-5-mini",))
    assert ids(llm) == []


def test_a_client_of_ones_own_needs_no_key() -> None:
    assert ids(Llm(FunctionModel(lambda messages, info: None))) == []  # type: ignore[arg-type, return-value]


def test_a_missing_key_is_a_warning_for_only_workers_need_it() -> None:
    assert ids(Llm("openai:gpt-5-mini", fallback=("anthropic:x",))) == ["runs.W003"] * 2


def test_an_agent_that_names_no_llm_is_an_error_that_names_the_setting() -> None:
    Agent(name="clerk", decider=Llm())
    (found,) = check_llms()
    assert found.id == "runs.E016"
    assert "AGENTOPS_LLM" in str(found.hint)


@pytest.mark.parametrize("name", ["gpt-5-mini", "openai:", "nobody:gpt"])
def test_a_name_that_is_none_is_an_error_wherever_it_stands(name: str) -> None:
    assert ids(Llm("groq:x", fallback=(name,))) == ["runs.E017"]


def test_an_unknown_provider_is_named_with_the_nearest_one() -> None:
    assert "Did you mean anthropic?" in find_name_problem("antropic:claude")


def test_every_provider_of_pydantic_ai_is_known() -> None:
    from pydantic_ai.models import KnownModelName

    names = [name for name in KnownModelName.__value__.__args__ if ":" in name]
    assert len(names) > 50
    assert [name for name in names if find_name_problem(name)] == []


@pytest.mark.parametrize("name", [*sorted(RESERVED), "pay.now", "p" * 65])
def test_a_tool_that_cannot_be_offered_is_an_error(name: str) -> None:
    @tool(name=name, effect_type=EffectType.READ)
    def act(call: Call) -> None:
        """Act."""

    assert ids(Llm("groq:x"), tools=(name,)) == ["runs.E018"]


def test_an_argument_that_reads_like_a_reason_is_an_error_where_reasons_are_asked_for() -> None:
    @tool(effect_type=EffectType.READ)
    def look(call: Call, call_confidence: float) -> None:
        """Look."""

    Agent(name="without", decider=Llm("groq:x"), tools=("look",))
    assert check_llms() == []
    assert ids(Llm("groq:x", reasons=True), tools=("look",)) == ["runs.E018"]


@pytest.mark.parametrize("llm", ["openai:gpt-5-mini", "anthropic:claude-haiku-4-5"])
def test_an_empty_key_is_a_missing_one(monkeypatch: pytest.MonkeyPatch, llm: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    assert ids(Llm(llm)) == ["runs.W003"]


def test_a_deployment_is_told_which_clients_cannot_be_made() -> None:
    providers.forget_clients()
    Agent(name="clerk", decider=Llm("openai:gpt-5-mini", fallback=("groq:x",)))
    found = check_clients()
    assert [one.id for one in found] == ["runs.W004", "runs.W004"]
    assert "OPENAI_API_KEY" in str(found[1])
    assert "pydantic-ai-slim[groq]" in str(found[0])

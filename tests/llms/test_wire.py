"""Requests as they cross the wire, in the formats of OpenAI (two of them) and Anthropic.

What is asked for here is counted at the server: a request that a provider's library repeats by
itself would be seen there, and nowhere else.
"""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from runs.context import Context
from runs.deciders import Llm, LlmOptions
from runs.decisions import CallTools, Decision, Finish, ToolCall
from runs.errors import LlmUnavailable, UnusableAnswer
from runs.llm import resting
from runs.llm.asking import Answer, Question, request, request_in_turn
from runs.llm.offers import DecisionTool, Offers
from runs.llm.reading import read_decision
from tests.llms import server
from tests.llms.server import LlmServer, call, calls, fail, malformed, reset, say, slow
from tools import Call, EffectType, tool

LLMS = ("openai:gpt-5-mini", "openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5")
PAY = ToolDefinition(
    name="pay",
    description="Pay an amount.",
    parameters_json_schema={"type": "object", "properties": {"amount": {"type": "integer"}}},
)
QUESTION = Question(
    messages=[ModelRequest.user_text_prompt("Pay five.", instructions="Be careful.")],
    parameters=ModelRequestParameters(function_tools=[PAY]),
    prompt_version="p1",
)
OFFERS = Offers(
    tools=("pay",),
    decisions=frozenset({DecisionTool.GIVE_UP}),
    output=None,
    ask_groups=(),
    wants_reasons=False,
)


class Settled(BaseModel):
    refunded: Decimal
    by: list[str]


pytestmark = pytest.mark.parametrize("llm", LLMS)


def a_context() -> Context:
    return Context(run_id="r", agent="a", objective="", input=None, step_number=1)


def ask(llm: str, *, context: Context | None = None, **options: Any) -> Answer:
    given = LlmOptions(**options)
    return request(llm, QUESTION, options=given, context=context or a_context())


def decide(llm: str) -> Decision:
    return read_decision(ask(llm).response, OFFERS, llm=llm)


def test_a_call_a_text_and_several_calls_are_read(llm_server: LlmServer, llm: str) -> None:
    llm_server.script(
        call("pay", amount=5),
        say("It is paid."),
        calls(("pay", {"amount": 1}), ("pay", {"amount": 2}), text="Both."),
    )
    assert decide(llm) == CallTools(ToolCall("pay", amount=5))
    assert decide(llm) == Finish("It is paid.")
    both = ToolCall("pay", amount=1), ToolCall("pay", amount=2)
    assert decide(llm) == CallTools(*both, rationale="Both.")


def test_what_is_asked_is_what_was_meant(llm_server: LlmServer, llm: str) -> None:
    llm_server.script(say("done"))
    # Models that reason take no temperature.
    options = {"temperature": 0.25} if llm.startswith("anthropic") else {}
    ask(llm, max_tokens=123, **options)
    (body,) = llm_server.bodies
    assert {123, *options.values()} <= {
        one for one in body.values() if isinstance(one, float | int)
    }
    text = str(body)
    assert all(words in text for words in ("Pay five.", "Be careful.", "Pay an amount."))
    assert not body.get("stream")


def test_whatever_an_answer_may_be_is_offered_in_every_format(
    llm_server: LlmServer, llm: str
) -> None:
    @tool(effect_type=EffectType.READ)
    def look(call: Call, order: str, since: date | None = None) -> None:
        """Look an order up."""

    offers = Offers(
        tools=("look",),
        decisions=frozenset(DecisionTool),
        output=Settled,
        ask_groups=(),
        wants_reasons=True,
    )
    question = replace(QUESTION, parameters=offers.to_parameters())
    llm_server.script(call("finish", refunded="4.20", by=["a", "b"]))
    answer = request(llm, question, options=LlmOptions(), context=a_context())
    (body,) = llm_server.bodies
    offered = [one.get("function", one)["name"] for one in body["tools"]]
    assert sorted(offered) == sorted(["look", *DecisionTool])
    assert body["tool_choice"] in ("required", {"type": "any"})
    result = {"refunded": "4.20", "by": ["a", "b"]}
    assert read_decision(answer.response, offers, llm=llm) == Finish(result)


def test_an_answer_says_what_it_used(llm_server: LlmServer, llm: str) -> None:
    llm_server.script(call("pay", amount=5))
    context = a_context()
    answer = ask(llm, context=context)
    assert context.requests == [answer.noted]
    noted = answer.noted
    assert (noted.llm, noted.llm_version) == (llm, llm.split(":")[1])
    assert noted.outcome == "used"
    assert noted.response_id
    assert noted.finish_reason in ("stop", "tool_call")
    assert context.usage.tokens == (noted.input_tokens or 0) + (noted.output_tokens or 0) > 0
    assert noted.cost_usd == context.usage.cost_usd > Decimal(0)


def test_tokens_that_were_cached_or_thought_are_told_apart(llm_server: LlmServer, llm: str) -> None:
    def edit(body: dict[str, Any]) -> dict[str, Any]:
        if llm.startswith("anthropic"):
            body["usage"] |= {"input_tokens": 10, "cache_read_input_tokens": 90}
        else:
            kind = ("input", "output") if "output" in body else ("prompt", "completion")
            body["usage"] |= {
                f"{kind[0]}_tokens": 100,
                f"{kind[0]}_tokens_details": {"cached_tokens": 90},
                f"{kind[1]}_tokens": 40,
                f"{kind[1]}_tokens_details": {"reasoning_tokens": 30},
            }
        return body

    llm_server.script(server.edited(say("done"), edit))
    noted = ask(llm).noted
    assert (noted.input_tokens, noted.cached_tokens) == (100, 90)
    if not llm.startswith("anthropic"):
        assert (noted.output_tokens, noted.reasoning_tokens) == (40, 30)


# Of these nobody knows whether the provider answered, and will be paid for it.
BROKEN_OFF = ("500", "reset", "half")
FAILURES = {
    **{str(status): fail(status) for status in (401, 404, 408, 409, 500, 503, 529)},
    "429": fail(429, retry_after=0.01),
    "reset": reset(),
    "half": reset(after=10),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_one_request_is_one_request_however_it_fails(
    llm_server: LlmServer, llm: str, failure: str
) -> None:
    llm_server.script(FAILURES[failure])
    context = a_context()
    # Time enough for a library to try again by itself, if it did.
    with pytest.raises(LlmUnavailable):
        ask(llm, context=context, seconds=30)
    (noted,) = context.requests
    assert (noted.outcome, noted.problem) == ("failed", "")
    used = None if failure in BROKEN_OFF else 0
    assert (noted.input_tokens, noted.output_tokens, noted.cost_usd) == (used, used, used)
    assert noted.detail
    assert len(llm_server.requests) == 1


def test_an_answer_that_takes_too_long_is_given_up(llm_server: LlmServer, llm: str) -> None:
    llm_server.script(slow(say("late"), seconds=0.5))
    context = a_context()
    with pytest.raises(LlmUnavailable):
        ask(llm, context=context, seconds=0.3)
    assert [one.outcome for one in context.requests] == ["failed"]
    # On a machine that is busy it may have been given up before it arrived.
    assert len(llm_server.requests) <= 1


def test_the_wait_that_a_provider_asks_for_is_kept(llm_server: LlmServer, llm: str) -> None:
    llm_server.script(fail(429, retry_after=7), say("done"))
    with pytest.raises(LlmUnavailable) as limited:
        ask(llm)
    assert limited.value.retry_in == 7
    with pytest.raises(LlmUnavailable) as resting_now:
        ask(llm)
    assert 0 < (resting_now.value.retry_in or 0) <= 7
    assert len(llm_server.requests) == 1
    resting.forget()
    assert decide(llm) == Finish("done")


def test_the_next_llm_is_asked_once_where_one_fails(llm_server: LlmServer, llm: str) -> None:
    llm_server.script(fail(500), say("done"))
    other = next(one for one in LLMS if one != llm)
    context = a_context()
    answer = request_in_turn(Llm(llm, fallback=(other,)), QUESTION, context=context)
    assert answer.noted.llm == other
    assert [one.llm for one in context.requests] == [llm, other]
    assert len(llm_server.requests) == 2


UNUSABLE = {
    "truncated": say("It is pa", finish="length"),
    "malformed": malformed(call("pay", amount=12)),
    "repeated_call_id": server.under_one_id(calls(("pay", {}), ("pay", {"amount": 1}))),
    "empty": say(" "),
    "refused": server.refuse(),
    "too_long": server.too_long(),
}


@pytest.mark.parametrize(("problem", "turn"), UNUSABLE.items(), ids=UNUSABLE.keys())
def test_an_answer_that_cannot_be_used_says_why(
    llm_server: LlmServer, llm: str, problem: str, turn: Any
) -> None:
    llm_server.script(turn)
    with pytest.raises(UnusableAnswer) as unusable:
        decide(llm)
    assert unusable.value.kind == problem
    assert len(llm_server.requests) == 1


IMPOSSIBLE = {"name": 5, "names": ["pay"], "arguments": 5, "id": 7}


@pytest.mark.parametrize("part", IMPOSSIBLE)
def test_a_call_that_is_none_is_refused_and_was_paid(
    llm_server: LlmServer, llm: str, part: str
) -> None:
    def edit(body: dict[str, Any]) -> dict[str, Any]:
        named = {"names": "name"}.get(part, part)
        if llm.startswith("anthropic"):
            (block,) = body["content"]
            block[{"arguments": "input"}.get(named, named)] = IMPOSSIBLE[part]
        elif llm.startswith("openai-chat"):
            (made,) = body["choices"][0]["message"]["tool_calls"]
            (made if named == "id" else made["function"])[named] = IMPOSSIBLE[part]
        else:
            (made,) = (item for item in body["output"] if item["type"] == "function_call")
            made[{"id": "call_id"}.get(named, named)] = IMPOSSIBLE[part]
        return body

    llm_server.script(server.edited(call("pay", amount=5), edit))
    context = a_context()
    if llm.startswith("openai-chat"):
        # Here the library refuses what is not of the provider's own form: it did not answer.
        with pytest.raises(LlmUnavailable):
            ask(llm, context=context)
        assert context.requests[0].input_tokens is None
        return
    answer = ask(llm, context=context)
    with pytest.raises(UnusableAnswer) as unusable:
        read_decision(answer.response, OFFERS, llm=llm)
    assert unusable.value.kind == "malformed"
    assert context.usage.tokens > 0


def test_an_id_that_comes_back_in_a_later_answer_is_nothing_special(
    llm_server: LlmServer, llm: str
) -> None:
    llm_server.script(*[server.under_one_id(call("pay", amount=5))] * 2)
    assert decide(llm) == decide(llm) == CallTools(ToolCall("pay", amount=5))

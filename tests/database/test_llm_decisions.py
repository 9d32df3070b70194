"""An llm decides: what its answers become, what is recorded of them, and what they cannot do."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, RootModel
from pydantic_ai.messages import ModelResponse

from runs import Budget, Finish, Script
from runs.events import Name
from runs.models import AgentRun, LlmRequest, ModelDecision, Question, Wait
from runs.state import OperationStatus, RunState
from tests.database.kit import (
    ON_DATABASE,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    listening,
    operation_edges,
    operation_of,
    scripted_tool,
)
from tests.llms.scripted import ScriptedLlm, call, calls, say, using, words_of
from tools import Approve, EffectType

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


class Refunded(BaseModel):
    order: str
    amount: Decimal = Decimal("0")


class Names(RootModel[list[str]]):
    pass


def requests_of(run: AgentRun) -> list[LlmRequest]:
    return list(LlmRequest.objects.filter(run=run).order_by("id"))


def decision_of(run: AgentRun, step: int = 1) -> ModelDecision:
    return ModelDecision.objects.get(step__run=run, step__number=step)


def test_an_llm_calls_a_tool_and_finishes_with_a_text(start: Start) -> None:
    tool = scripted_tool({"paid": 5})
    scripted = ScriptedLlm(call("pay", amount=5), say("It is paid."))
    run = start(decider=scripted.llm, tools=("pay",))
    drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, "It is paid.")
    assert [given.arguments for given in tool.calls] == [{"amount": 5}]
    assert len(requests_of(run)) == 2


def test_a_decision_says_which_llm_prompt_and_policies_it_came_of(start: Start) -> None:
    scripted = ScriptedLlm(say("done"), name="m-2026-11-01", instructions="Be brief.")
    run = start(decider=scripted.llm)
    drive(run)
    (asked,) = requests_of(run)
    made = decision_of(run)
    assert made.llm_version == asked.llm_version == "m-2026-11-01"
    assert made.decider == "llm function:m-2026-11-01"
    assert made.prompt_version == asked.prompt_version != ""
    assert made.policy_version == "0"


def test_what_a_request_used_is_written_down_and_spent(start: Start) -> None:
    scripted = ScriptedLlm(
        using(
            say("done", finish_reason="stop", provider_response_id="resp_1"),
            input_tokens=120,
            cache_read_tokens=100,
            output_tokens=30,
            output_reasoning_tokens=20,
            cost=Decimal("0.25"),
        )
    )
    run = start(decider=scripted.llm)
    drive(run)
    (asked,) = requests_of(run)
    assert (asked.outcome, asked.finish_reason, asked.response_id) == ("used", "stop", "resp_1")
    assert (asked.input_tokens, asked.cached_tokens) == (120, 100)
    assert (asked.output_tokens, asked.reasoning_tokens) == (30, 20)
    assert asked.cost_usd == Decimal("0.25")
    assert asked.latency_ms >= 0
    assert (run.spent_tokens, run.spent_cost_usd) == (150, Decimal("0.25"))


def test_a_price_that_nobody_knows_is_none_and_costs_what_was_reserved(start: Start) -> None:
    scripted = ScriptedLlm(using(say("done"), input_tokens=10, output_tokens=10))
    budget = Budget(cost_usd="5", step_cost_usd="0.40")
    run = start(decider=scripted.llm, budget=budget)
    drive(run)
    (asked,) = requests_of(run)
    assert asked.cost_usd is None
    assert run.spent_cost_usd == Decimal("0.40")


def test_a_steady_step_of_an_llm_costs_two_commits(start: Start) -> None:
    """What it was asked and answered is written with the decision, and not by itself."""

    def count_commits(steps: int) -> int:
        scripted = ScriptedLlm(*[call("pay", amount=n) for n in range(steps)], say("done"))
        run = start(decider=scripted.llm, tools=("pay",))
        with listening() as heard:
            drive(run)
        assert run.state == RunState.COMPLETED
        return sum(event.name is Name.COMMIT_DONE for event in heard)

    scripted_tool(*range(20))
    assert count_commits(6) - count_commits(2) == 4 * 2


@pytest.mark.parametrize(
    "answer",
    [
        call("sleep", seconds=0),
        call("wait_for_signal", signal="paid", timeout_seconds=0.5),
        call("ask_person", question="Well?", answer="text", timeout_seconds=0),
    ],
    ids=["sleep", "wait_for", "ask"],
)
def test_an_llm_cannot_wait_no_time_at_all(start: Start, answer: ModelResponse) -> None:
    """Again and again, as fast as its provider answers."""
    scripted = ScriptedLlm(answer, say("done"), may=("sleep", "wait_for", "ask"))
    run = start(decider=scripted.llm)
    drive(run)
    assert len(scripted.asked) == 1
    body = decision_of(run).body
    assert body.get("for", body.get("timeout")) == 10


def test_calls_at_once_are_one_decision(start: Start) -> None:
    tool = scripted_tool(1, 2)
    scripted = ScriptedLlm(
        calls(("pay", {"amount": 1}), ("pay", {"amount": 2}), text="Both are due."), say("done")
    )
    run = start(decider=scripted.llm, tools=("pay",))
    drive(run)
    assert sorted(given.arguments["amount"] for given in tool.calls) == [1, 2]
    assert decision_of(run).body["rationale"] == "Both are due."
    assert requests_of(run)[0].said == "Both are due."


def test_an_llm_is_offered_its_agents_tools_in_their_order(start: Start) -> None:
    scripted_tool(name="pay")
    scripted_tool(name="look")
    scripted_tool(name="delete")
    scripted = ScriptedLlm(say("done"))
    run = start(decider=scripted.llm, tools=("look", "pay"))
    drive(run)
    (offered,) = scripted.offered
    assert list(offered)[:2] == ["look", "pay"]
    assert "delete" not in offered
    assert offered["pay"].description == "Act by the script."
    assert offered["pay"].parameters_json_schema["properties"]["amount"]["type"] == "integer"


def test_a_tool_that_the_agent_does_not_list_cannot_be_called_whatever_the_llm_says(
    start: Start,
) -> None:
    scripted_tool(name="pay")
    forbidden = scripted_tool(name="delete")
    scripted = ScriptedLlm(call("delete", amount=1), say("I could not."))
    run = start(decider=scripted.llm, tools=("pay",))
    drive(run)
    assert forbidden.calls == []
    assert operation_edges(run) == ["REFUSE"]
    assert operation_of(run).never_sent == "invalid"
    assert run.state == RunState.COMPLETED


@pytest.mark.parametrize("answer", [call("nothing_like_it"), call("pay", amount="much")])
def test_a_call_that_cannot_be_made_is_an_observation_that_the_llm_sees(
    start: Start, answer: Any
) -> None:
    tool = scripted_tool()
    scripted = ScriptedLlm(answer, say("I see."))
    run = start(decider=scripted.llm, tools=("pay",))
    drive(run)
    assert tool.calls == []
    refused = operation_of(run)
    assert (refused.status, refused.never_sent) == (OperationStatus.CANCELLED, "invalid")
    assert refused.error in words_of(scripted.asked[1])
    assert [one.outcome for one in requests_of(run)] == ["used", "used"]


@pytest.mark.parametrize(
    ("point", "counts"),
    # Until an answer is recorded another one may come in its place; after that it stands.
    [(Name.DECIDER_STARTING, 1), (Name.DECIDER_DONE, 2), (Name.CALL_STARTING, 1)],
)
def test_the_first_answer_that_is_recorded_stands(start: Start, point: Name, counts: int) -> None:
    tool = scripted_tool("read", effect=EffectType.READ, provider=None)
    other = call("pay", amount=2)
    scripted = ScriptedLlm(call("pay", amount=1), other, say("done"))
    run = start(decider=scripted.llm, tools=("pay",))
    with dies_at(point):
        drive(run)
    if counts == 1:
        scripted.turns.remove(other)
    expire_lease(run)
    drive(run, owner="worker 2")
    assert (run.state, run.result) == (RunState.COMPLETED, "done")
    assert [made.arguments for made in tool.calls] == [{"amount": counts}]
    assert decision_of(run).body["calls"][0]["arguments"] == {"amount": counts}


# -- Ends, questions and waits -------------------------------------------------------------------


def test_a_final_answer_has_the_form_that_its_agent_declares(start: Start) -> None:
    scripted = ScriptedLlm(call("finish", order="17", amount="4.20"))
    run = start(decider=scripted.llm, output=Refunded)
    drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, {"order": "17", "amount": "4.20"})
    (told,) = scripted.told
    assert not told.allow_text_output
    assert [one.name for one in told.output_tools] == ["finish"]


def test_a_final_answer_may_be_a_list(start: Start) -> None:
    run = start(decider=ScriptedLlm(call("finish", result=["a", "b"])).llm, output=Names)
    drive(run)
    assert run.result == ["a", "b"]


def test_a_result_of_code_has_the_form_that_its_agent_declares_too(start: Start) -> None:
    fits = start(decider=Script(Finish({"order": "17"})), output=Refunded)
    drive(fits)
    assert fits.result == {"order": "17", "amount": "0"}
    wrong = start(decider=Script(Finish({"amount": "much"})), output=Refunded)
    for _ in range(3):
        drive_when_due(wrong)
    assert wrong.state == RunState.FAILED
    assert "order: Field required" in wrong.error
    assert "much" not in wrong.error


def test_an_llm_that_gives_up_fails_its_run_with_its_reason(start: Start) -> None:
    run = start(decider=ScriptedLlm(call("give_up", reason="no such order")).llm)
    drive(run)
    assert (run.state, run.error) == (RunState.FAILED, "no such order")


@pytest.mark.parametrize(
    ("given", "form"),
    [
        ({"answer": "text"}, {"type": "string", "minLength": 1}),
        ({"answer": "number"}, {"type": "number"}),
        ({"answer": "yes_or_no"}, {"type": "boolean"}),
        ({"answer": "choice", "choices": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
    ],
)
def test_an_llm_may_ask_a_person(start: Start, given: dict[str, Any], form: dict[str, Any]) -> None:
    asking = call("ask_person", question="Which one?", timeout_seconds=60, **given)
    scripted = ScriptedLlm(asking, may=("ask",), ask_groups=("finance",))
    run = start(decider=scripted.llm)
    drive(run)
    question = Question.objects.get(run=run)
    assert (run.state, question.text) == (RunState.WAITING, "Which one?")
    assert question.groups == ["finance"]
    assert question.schema["properties"]["answer"] == form


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (call("sleep", seconds=90), Wait.Kind.TIMER),
        (call("wait_for_signal", signal="paid"), Wait.Kind.SIGNAL),
    ],
)
def test_an_llm_may_wait(start: Start, answer: Any, kind: str) -> None:
    run = start(decider=ScriptedLlm(answer, may=("sleep", "wait_for")).llm)
    drive(run)
    assert run.state == RunState.WAITING
    assert Wait.objects.get(step__run=run).kind == kind


def test_an_llm_may_have_its_effects_taken_back(start: Start) -> None:
    scripted = ScriptedLlm(call("take_back", reason="a mistake"), may=("compensate",))
    run = start(decider=scripted.llm)
    drive(run)
    assert run.state == RunState.FAILED
    assert decision_of(run).kind == "compensate"


@pytest.mark.parametrize("name", ["ask_person", "sleep", "wait_for_signal", "take_back", "finish"])
def test_what_the_agent_does_not_allow_is_no_more_than_an_unknown_tool(
    start: Start, name: str
) -> None:
    scripted = ScriptedLlm(call(name, seconds=1, reason="x", signal="x", question="x"), say("ok"))
    run = start(decider=scripted.llm)
    drive(run)
    assert name not in scripted.offered[0]
    assert operation_of(run).never_sent == "invalid"
    assert run.state == RunState.COMPLETED


# -- Reasons ---------------------------------------------------------------------------------------


def _because(rationale: Any, confidence: Any, **arguments: Any) -> dict[str, Any]:
    return {"call_rationale": rationale, "call_confidence": confidence} | arguments


def test_reasons_are_asked_for_with_each_call_and_are_no_arguments(start: Start) -> None:
    tool = scripted_tool(1, 2)
    scripted = ScriptedLlm(
        calls(("pay", _because("owed", 0.9, amount=1)), ("pay", _because("a tip", 0.2, amount=2))),
        say("done"),
        reasons=True,
    )
    run = start(decider=scripted.llm, tools=("pay",))
    drive(run)
    schema = scripted.offered[0]["pay"].parameters_json_schema
    assert schema["required"][:2] == ["call_rationale", "call_confidence"]
    assert [given.arguments for given in tool.calls] == [{"amount": 1}, {"amount": 2}]
    said = [(one["rationale"], one["confidence"]) for one in decision_of(run).body["calls"]]
    assert said == [("owed", 0.9), ("a tip", 0.2)]


def test_policies_see_how_sure_the_llm_is_of_each_call(start: Start) -> None:
    tool = scripted_tool(1, 2, approval_policy=Approve(when="confidence < 0.5"))
    sure = calls(
        ("pay", _because("owed", 0.9, amount=1)), ("pay", _because("a tip", 0.2, amount=2))
    )
    scripted = ScriptedLlm(sure, reasons=True)
    run = start(decider=scripted.llm, tools=("pay",))
    drive(run)
    assert operation_of(run, ordinal=0).policy_outcome == "allow"
    assert operation_of(run, ordinal=1).status == OperationStatus.AWAITING_APPROVAL
    assert all(given.arguments == {"amount": 1} for given in tool.calls)


@pytest.mark.parametrize(
    "given", [{}, _because(7, "very"), _because(None, 1.5), _because([], True)]
)
def test_a_call_without_usable_reasons_is_made_all_the_same(
    start: Start, given: dict[str, Any]
) -> None:
    tool = scripted_tool(1)
    scripted = ScriptedLlm(calls(("pay", given)), say("done"), reasons=True)
    run = start(decider=scripted.llm, tools=("pay",))
    drive(run)
    assert [made.arguments for made in tool.calls] == [{"amount": 1}]
    assert decision_of(run).body["calls"] == [{"tool": "pay", "arguments": {}}]


def test_what_stands_for_a_hidden_value_is_not_sent_in_its_place(start: Start) -> None:
    tool = scripted_tool(1, sensitive=("note",))
    hidden = call("pay", amount=1, note="[redacted]")
    scripted = ScriptedLlm(hidden, call("pay", amount=1), say("done"))
    run = start(decider=scripted.llm, tools=("pay",))
    drive(run)
    assert [given.arguments for given in tool.calls] == [{"amount": 1}]
    assert "kept from you" in words_of(scripted.asked[1])


def test_what_is_said_beside_a_call_does_not_tell_its_secrets(start: Start) -> None:
    scripted_tool(1, sensitive=("amount",))
    scripted = ScriptedLlm(calls(("pay", {"amount": 424242}), text="I pay 424242."), say("done"))
    run = start(decider=scripted.llm, tools=("pay",))
    drive(run)
    assert requests_of(run)[0].said == "I pay [redacted]."


def test_a_decision_whose_calls_are_planned_anew_has_used_what_it_used(start: Start) -> None:
    """That a call repeats an earlier one's intent shows only as its decision is written."""
    scripted_tool(1, 2, intent_key=("amount",))
    once, again = call("pay", amount=1), calls(("pay", {"amount": 1}), ("pay", {"amount": 2}))
    scripted = ScriptedLlm(
        using(once, input_tokens=10, output_tokens=1),
        using(again, input_tokens=20, output_tokens=2),
    )
    run = start(decider=scripted.llm, tools=("pay",), budget=Budget(step_tokens=500))
    with dies_at(Name.CALL_STARTING, nth=2):
        drive(run)
    run.refresh_from_db()
    repeat = operation_of(run)
    assert (repeat.step_number, repeat.policy_outcome) == (2, "replay")
    assert [one.outcome for one in requests_of(run)] == ["used"] * 2
    assert decision_of(run, 2).llm_version == "scripted"
    assert run.spent_tokens == 33

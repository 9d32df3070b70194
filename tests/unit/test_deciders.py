"""Laws of asking: a script reads rows alone, and a function's answer is a decision or an error."""

import asyncio
from typing import Any

import pytest
from pydantic_ai.models.function import FunctionModel

from runs.context import Context, Observed
from runs.deciders import Llm, Script, ask
from runs.decisions import CallTools, Fail, Finish, ToolCall
from runs.errors import DeciderUnavailable
from runs.state import OperationStatus


def _context(*, step: int = 1, input: Any = None, last: Observed | None = None) -> Context:
    return Context(
        run_id="run-1",
        agent="support",
        objective="refund order 17",
        input=input if input is not None else {},
        step_number=step,
        observations=() if last is None else (last,),
    )


def _ended(status: OperationStatus, *, result: Any = None, error: str = "") -> Observed:
    return Observed(
        operation_id="op_1",
        step_number=1,
        tool="refund",
        arguments={},
        status=status,
        result=result,
        error=error,
    )


REFUND = Script(
    ToolCall("refund", order="{input.order}", amount="{input.amount}"),
    Finish("{last.refund_id}"),
)


def test_the_entry_of_the_step_is_the_answer() -> None:
    given = _context(input={"order": 17, "amount": "4.20"})
    assert ask(REFUND, given) == CallTools(ToolCall("refund", order=17, amount="4.20"))


def test_asking_a_script_again_gives_the_same_answer() -> None:
    given = _context(input={"order": 17, "amount": "4.20"})
    assert ask(REFUND, given) == ask(REFUND, given)


def test_the_newest_result_fills_the_next_entry() -> None:
    done = _ended(OperationStatus.COMMITTED, result={"refund_id": "re_1"})
    assert ask(REFUND, _context(step=2, last=done)) == Finish("re_1")


@pytest.mark.parametrize("value", [17, 1.5, True, None, [1, 2], {"a": {"b": 1}}, "text"])
def test_a_text_that_is_one_placeholder_keeps_the_type(value: Any) -> None:
    script = Script(Finish("{input.value}"))
    assert ask(script, _context(input={"value": value})) == Finish(value)


def test_placeholders_inside_text_become_text() -> None:
    script = Script(Finish("{objective}: {input.order.id} of {run_id}"))
    answer = ask(script, _context(input={"order": {"id": 17}}))
    assert answer == Finish("refund order 17: 17 of run-1")


def test_placeholders_are_filled_in_nested_values_and_several_calls() -> None:
    script = Script(
        CallTools(ToolCall("a", items=["{input.x}", {"deep": "{input.x}"}]), ToolCall("b", plain=5))
    )
    assert ask(script, _context(input={"x": 1})) == CallTools(
        ToolCall("a", items=[1, {"deep": 1}]), ToolCall("b", plain=5)
    )


def test_filled_text_is_not_filled_again() -> None:
    script = Script(Finish("{input.x} {input.x}"))
    assert ask(script, _context(input={"x": "{run_id}"})) == Finish("{run_id} {run_id}")


@pytest.mark.parametrize("text", ["{input.missing}", "{last.id}", "{nothing}", "a {input.b.c} d"])
def test_a_placeholder_without_a_value_is_named(text: str) -> None:
    with pytest.raises(DeciderUnavailable, match="has no value here"):
        ask(Script(Finish(text)), _context(input={"b": 1}))


@pytest.mark.parametrize("status", [OperationStatus.REJECTED, OperationStatus.CANCELLED])
def test_a_script_fails_after_a_call_that_did_not_commit(status: OperationStatus) -> None:
    seen = _ended(status, error="no such order")
    answer = ask(REFUND, _context(step=2, last=seen))
    assert answer == Fail(f"refund ended as {status}: no such order")


def test_a_script_that_has_run_out_finishes_with_the_newest_result() -> None:
    done = _ended(OperationStatus.COMMITTED, result=8)
    assert ask(Script(ToolCall("refund")), _context(step=2, last=done)) == Finish(8)
    assert ask(Script(), _context()) == Finish(None)


def test_a_script_may_fail_by_its_own_words() -> None:
    assert ask(Script(Fail("no {input.x}")), _context(input={"x": 1})) == Fail("no 1")


@pytest.mark.parametrize("answer", [CallTools(ToolCall("a")), Finish(1), Fail("no")])
def test_a_functions_decision_passes_through(answer: Any) -> None:
    assert ask(lambda context: answer, _context()) is answer


def test_a_single_call_is_a_decision_of_one_call() -> None:
    assert ask(lambda context: ToolCall("a", x=1), _context()) == CallTools(ToolCall("a", x=1))


def test_a_coroutine_function_is_awaited() -> None:
    async def decide(context: Context) -> Finish:
        await asyncio.sleep(0)
        return Finish(context.step_number)

    assert ask(decide, _context(step=4)) == Finish(4)


def test_an_object_with_an_async_call_is_awaited() -> None:
    class Decider:
        async def __call__(self, context: Context) -> Fail:
            return Fail(context.objective)

    assert ask(Decider(), _context()) == Fail("refund order 17")


@pytest.mark.parametrize("answer", [None, "finish", {"kind": "finish"}, [ToolCall("a")], Finish])
def test_an_answer_that_is_no_decision_is_refused_by_its_type(answer: Any) -> None:
    with pytest.raises(DeciderUnavailable, match=type(answer).__name__):
        ask(lambda context: answer, _context())


def test_an_error_of_the_decider_passes_through() -> None:
    def decide(context: Context) -> Finish:
        raise ZeroDivisionError("by design")

    with pytest.raises(ZeroDivisionError, match="by design"):
        ask(decide, _context())


def test_a_script_keeps_what_its_calls_say_of_themselves() -> None:
    call = ToolCall("refund", order="{input.order}").because("owed", confidence=0.9)
    script = Script(CallTools(call, rationale="in all", confidence=0.5))
    decision = ask(script, _context(input={"order": 17}))
    assert decision == CallTools(
        ToolCall("refund", order=17).because("owed", confidence=0.9),
        rationale="in all",
        confidence=0.5,
    )


# -- Llms ------------------------------------------------------------------------------------------


def _never(messages: Any, info: Any) -> Any:
    raise AssertionError("nobody is asked here")


def test_an_llm_is_not_asked_as_code_is() -> None:
    with pytest.raises(DeciderUnavailable, match=r"asked by runs\.llm alone"):
        ask(Llm("openai:gpt-5-mini"), _context())


def test_an_llm_without_a_name_is_the_one_of_the_settings(settings: Any) -> None:
    settings.AGENTOPS_LLM = "anthropic:claude-haiku-4-5"
    assert Llm().name == "anthropic:claude-haiku-4-5"
    assert Llm("openai:gpt-5-mini").name == "openai:gpt-5-mini"


def test_llms_are_asked_in_the_order_in_which_they_are_named() -> None:
    model = FunctionModel(_never, model_name="own")
    llm = Llm(model, fallback=("openai:gpt-5-mini",))
    assert llm.in_turn == (model, "openai:gpt-5-mini")
    assert llm.name == "function:own"


def test_what_an_agents_version_is_made_of_is_the_same_in_every_process() -> None:
    """No address of an object, and no option that was left at its default."""
    own, other = (FunctionModel(_never, model_name=name) for name in ("own", "other"))
    llm = Llm(own, "Be brief.", seconds=30, fallback=(other,))
    fallback = "'fallback': ('function:other',)"
    assert repr(llm) == f"Llm('function:own', 'Be brief.', **{{{fallback}, 'seconds': 30}})"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"may": ("fly",)}, "may: 'fly' is none of ask, sleep, wait_for, compensate"),
        ({"seconds": 0}, "seconds is 0"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"window_tokens": 10**9}, "window_tokens is 1000000000"),
        ({"max_tokens": 1.5}, "max_tokens is 1.5; give a whole number"),
        ({"seconds": "long"}, "seconds is 'long'; give a number"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
    ],
)
def test_an_impossible_option_is_refused_with_its_value(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        Llm("openai:gpt-5-mini", **options)


def test_what_is_no_llm_is_refused_with_its_value() -> None:
    with pytest.raises(TypeError, match="not 5"):
        Llm(5)  # type: ignore[arg-type]


def test_one_name_is_one_llm_and_not_its_letters() -> None:
    llm = Llm("a:b", fallback="c:d", may="ask", ask_groups="finance")
    options = llm.options
    assert (options.fallback, options.may, options.ask_groups) == (("c:d",), ("ask",), ("finance",))

"""Llms that answer what cannot be used, and llms that do not answer."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelRateLimitError,
    UserError,
)
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

from runs import Llm
from runs.access import operator
from runs.commands import resume_run
from runs.decisions import MOST_CALLS
from runs.llm import asking, resting
from runs.models import AgentRun, LlmRequest
from runs.state import RunState
from runs.undecided import FEW_TRIES, LONGEST_WAIT, MAX_FAILURES, MOST_TRIES
from tests.database.kit import ON_DATABASE, ask, drive, drive_when_due, run_edges, scripted_tool
from tests.llms.scripted import ScriptedLlm, call, calls, say, using, words_of
from tools.canonical import PAYLOAD_BYTES

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
OVERLOADED = ModelHTTPError(529, "scripted", body={"error": "overloaded"})


class Done(BaseModel):
    order: str


def requests_of(run: AgentRun) -> list[LlmRequest]:
    return list(LlmRequest.objects.filter(run=run).order_by("id"))


def due_in(run: AgentRun) -> float:
    """The seconds from the end of the newest attempt until the run is due again."""
    wait = ask(
        "SELECT EXTRACT(EPOCH FROM run.wake_at - newest.ended_at)::float8"
        " FROM runs_agentrun run JOIN runs_step step ON step.run_id = run.id"
        " JOIN runs_stepattempt newest ON newest.step_id = step.id"
        " WHERE run.id = %s ORDER BY newest.id DESC LIMIT 1",
        run.id,
    )
    return float(wait)


@pytest.fixture(autouse=True)
def _nobody_rests() -> Iterator[None]:
    resting.forget()
    yield
    resting.forget()


# -- Answers that cannot be used -------------------------------------------------------------------


def _deep(levels: int) -> Any:
    return {"amount": _deep(levels - 1)} if levels else 1


UNUSABLE = {
    "nothing": (ModelResponse(parts=[]), "empty"),
    "blanks": (say(" \n"), "empty"),
    "thoughts": (ModelResponse(parts=[ThinkingPart("hm")]), "empty"),
    "cut off text": (say("It is do", finish_reason="length"), "truncated"),
    "cut off call": (calls(("pay", {}), finish_reason="length"), "truncated"),
    "broken off": (say("It is do", finish_reason="error"), "truncated"),
    "unfinished": (say("", state="suspended"), "truncated"),
    "held back": (say("I", finish_reason="content_filter"), "refused"),
    "refused": (ContentFilterError("no"), "refused"),
    "no json": (calls(("pay", '{"amount": 12')), "malformed"),
    "no object": (calls(("pay", "[1]")), "malformed"),
    "not a number": (calls(("pay", '{"amount": NaN}')), "malformed"),
    "a number too large": (calls(("pay", {"amount": 2**60})), "malformed"),
    "nul": (calls(("pay", {"amount": "1\0"})), "malformed"),
    "nul in the name": (calls(("pay\0", {})), "malformed"),
    "half a character": (calls(("pay", r'{"amount": "\ud800"}')), "malformed"),
    "half of one": (using(calls(("pay", {"amount": "\ud800"})), input_tokens=1), "malformed"),
    "nul in the end": (say("done \0"), "malformed"),
    "too deep": (calls(("pay", _deep(40))), "malformed"),
    "one id": (
        ModelResponse([ToolCallPart("pay", {}, "call_0"), ToolCallPart("pay", {}, "call_0")]),
        "repeated_call_id",
    ),
    "large": (calls(("pay", {"amount": "x" * (PAYLOAD_BYTES + 1)})), "oversized"),
    "large json": (calls(("pay", f'"{"x" * PAYLOAD_BYTES}"')), "oversized"),
    "large together": (calls(*[("pay", {"amount": "x" * 99_999})] * 3), "oversized"),
    "a long end": (say("x" * (PAYLOAD_BYTES + 1)), "oversized"),
    "many": (calls(*[("pay", {})] * (MOST_CALLS + 1)), "too_many_calls"),
    "an end beside a call": (calls(("pay", {}), ("give_up", {"reason": "x"})), "mixed"),
    "two ends": (calls(*[("give_up", {"reason": "x"})] * 2), "mixed"),
    "an end without its reason": (call("give_up"), "malformed"),
    "no time at all": (call("sleep", seconds="long"), "malformed"),
    "for ever": (call("sleep", seconds=1e18), "malformed"),
    "backwards": (call("sleep", seconds=-1), "malformed"),
    "no end at all": (call("sleep"), "malformed"),
    "no signal": (call("wait_for_signal", signal=""), "malformed"),
    "no question": (call("ask_person", question=" ", answer="text"), "malformed"),
    "no choice": (call("ask_person", question="Which?", answer="choice"), "malformed"),
    "too long a question": (ModelContextWindowExceededError("scripted", "too long"), "too_long"),
}


@pytest.mark.parametrize(("answer", "problem"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_an_unusable_answer_is_told_to_the_llm_and_mended_by_it(
    start: Start, answer: Any, problem: str
) -> None:
    tool = scripted_tool()
    scripted = ScriptedLlm(answer, say("done"), may=("ask", "sleep", "wait_for"))
    run = start(decider=scripted.llm, tools=("pay",))
    drive(run)
    assert (run.state, run.failures, due_in(run)) == (RunState.DECIDING, 1, 0)
    drive(run, owner="worker 2")
    assert (run.state, run.result, run.failures) == (RunState.COMPLETED, "done", 0)
    assert tool.calls == []
    bad, good = requests_of(run)
    assert (bad.outcome, bad.problem, good.outcome) == ("unusable", problem, "used")
    assert bad.detail
    assert f'"problem":"{problem}"' in words_of(scripted.asked[1])
    assert bad.step_id == good.step_id


@pytest.mark.parametrize(
    "answer", [say("It is order 17."), call("finish", amount=1), calls(("finish", "{}"))]
)
def test_a_final_answer_of_another_form_is_mended(start: Start, answer: Any) -> None:
    scripted = ScriptedLlm(answer, call("finish", order="17"))
    run = start(decider=scripted.llm, output=Done)
    drive(run)
    drive(run)
    assert run.result == {"order": "17"}
    assert requests_of(run)[0].problem == "bad_result"


def test_answers_that_stay_unusable_fail_the_run_after_a_few(start: Start) -> None:
    scripted = ScriptedLlm(*[ModelResponse(parts=[])] * MAX_FAILURES)
    run = start(decider=scripted.llm)
    for _ in range(MAX_FAILURES):
        drive(run)
    assert run.state == RunState.FAILED
    assert "empty" in run.error
    assert len(requests_of(run)) == len(scripted.asked) == MAX_FAILURES


def test_what_was_wrong_in_an_earlier_step_is_not_told_again(start: Start) -> None:
    scripted_tool(1)
    scripted = ScriptedLlm(ModelResponse(parts=[]), call("pay"), say("done"))
    run = start(decider=scripted.llm, tools=("pay",))
    drive(run)
    drive(run)
    assert run.state == RunState.COMPLETED
    assert "could_not_be_used" in words_of(scripted.asked[1])
    assert "could_not_be_used" not in words_of(scripted.asked[2])


class Checked(BaseModel):
    order: str

    @field_validator("order")
    @classmethod
    def is_known(cls, order: str) -> str:
        return {"17": "seventeen"}[order]


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (call("pay", card="card-4242\0"), "card"),
        (call("wait_for_signal", signal="4242" * 30), "wait_for_signal"),
        (call("sleep", seconds="4242"), "sleep"),
        (call("ask_person", question="4242", answer="4242"), "ask_person"),
        (call("finish", order="4242"), "Checked"),
    ],
)
def test_a_value_that_is_wrong_is_not_repeated_in_what_is_told(
    start: Start, answer: ModelResponse, named: str
) -> None:
    scripted = ScriptedLlm(answer, may=("sleep", "wait_for", "ask"))
    run = start(decider=scripted.llm, tools=("pay",), output=Checked)
    scripted_tool()
    drive(run)
    (bad,) = requests_of(run)
    assert bad.outcome == "unusable"
    assert named in bad.detail
    assert "4242" not in bad.detail


def test_what_a_provider_says_without_end_is_cut(start: Start) -> None:
    long = say("done", finish_reason="x" * 50, provider_response_id="y" * 500)  # type: ignore[arg-type]
    run = start(decider=ScriptedLlm(long).llm)
    drive(run)
    (used,) = requests_of(run)
    assert (run.result, len(used.finish_reason), len(used.response_id)) == ("done", 32, 255)


# -- Nobody answers --------------------------------------------------------------------------------


def test_a_failing_llm_is_asked_again_later_and_costs_no_try(start: Start) -> None:
    scripted = ScriptedLlm(*[OVERLOADED] * 4, say("done"))
    run = start(decider=scripted.llm)
    waits = []
    for _ in range(4):
        drive_when_due(run)
        waits.append(due_in(run))
    assert waits == [2, 4, 8, 16]
    assert (run.state, run.failures) == (RunState.DECIDING, 0)
    assert [one.outcome for one in requests_of(run)] == ["failed"] * 4
    assert "529" in requests_of(run)[0].detail
    drive_when_due(run)
    assert run.result == "done"


def test_a_rate_limit_is_kept_as_long_as_the_provider_says(start: Start) -> None:
    limited = ModelHTTPError.for_category(
        ModelRateLimitError, status_code=429, model_name="scripted", retry_after=120
    )
    scripted = ScriptedLlm(limited, say("done"))
    run = start(decider=scripted.llm)
    drive(run)
    assert due_in(run) == 120


def test_what_one_run_was_told_holds_for_the_others_of_the_process(start: Start) -> None:
    limited = ModelHTTPError.for_category(
        ModelRateLimitError, status_code=429, model_name="scripted", retry_after=120
    )
    scripted = ScriptedLlm(limited, say("done"))
    drive(start(decider=scripted.llm))
    other = start(decider=scripted.llm)
    drive(other)
    assert len(scripted.asked) == 1
    assert 2 < due_in(other) <= 120
    assert requests_of(other) == []


def test_a_wait_that_is_no_number_is_none(start: Start) -> None:
    limited = ModelHTTPError.for_category(
        ModelRateLimitError, status_code=429, model_name="scripted", retry_after=float("nan")
    )
    run = start(decider=ScriptedLlm(limited).llm)
    drive(run)
    assert due_in(run) == 2


def test_nobody_is_made_to_wait_longer_than_a_quarter_of_an_hour(start: Start) -> None:
    limited = ModelHTTPError.for_category(
        ModelRateLimitError, status_code=429, model_name="scripted", retry_after=86_400
    )
    run = start(decider=ScriptedLlm(limited).llm)
    drive(run)
    assert due_in(run) == LONGEST_WAIT


def test_a_run_whose_llm_stays_away_is_paused_and_goes_on_when_resumed(start: Start) -> None:
    scripted = ScriptedLlm(*[OVERLOADED] * MOST_TRIES, say("done"))
    run = start(decider=scripted.llm)
    for _ in range(MOST_TRIES):
        drive_when_due(run)
    assert run.state == RunState.DECIDING
    assert run.paused_at is not None
    assert f"no llm answered in {MOST_TRIES} tries" in run.pause_reason
    assert run.wake_at is None
    resume_run(actor=operator(), run_id=str(run.id))
    drive_when_due(run)
    assert (run.state, run.result) == (RunState.COMPLETED, "done")


REFUSED = ModelHTTPError.for_category(
    ModelAuthenticationError, status_code=401, model_name="scripted"
)


def test_what_only_a_person_can_mend_is_shown_to_one_soon(start: Start) -> None:
    no_key = start(decider=Llm("nobody:at-all"))
    refused = start(decider=ScriptedLlm(*[REFUSED] * FEW_TRIES).llm)
    for _ in range(FEW_TRIES):
        assert (no_key.paused_at, refused.paused_at) == (None, None)
        drive_when_due(no_key)
        drive_when_due(refused)
    assert "nobody:at-all" in no_key.pause_reason
    assert "401" in refused.pause_reason


def test_what_a_client_can_never_do_is_shown_to_a_person_soon(start: Start) -> None:
    run = start(decider=ScriptedLlm(*[UserError("it takes no tools")] * FEW_TRIES).llm)
    for _ in range(FEW_TRIES):
        drive_when_due(run)
    assert "it takes no tools" in run.pause_reason


def test_a_key_that_one_provider_refuses_is_no_end_while_another_is_only_away(
    start: Start,
) -> None:
    second = ScriptedLlm(*[OVERLOADED] * FEW_TRIES, name="second")
    first = ScriptedLlm(*[REFUSED] * FEW_TRIES, name="first", fallback=(second.model,))
    run = start(decider=first.llm)
    for _ in range(FEW_TRIES):
        drive_when_due(run)
    assert run.paused_at is None


def test_the_next_llm_is_asked_where_one_does_not_answer(start: Start) -> None:
    second = ScriptedLlm(say("done"), name="second")
    first = ScriptedLlm(OVERLOADED, name="first", fallback=(second.model,))
    run = start(decider=first.llm)
    drive(run)
    assert run.result == "done"
    assert [(one.llm, one.outcome) for one in requests_of(run)] == [
        ("function:first", "failed"),
        ("function:second", "used"),
    ]


def test_the_next_llm_is_not_asked_because_of_an_unusable_answer(start: Start) -> None:
    second = ScriptedLlm(name="second")
    first = ScriptedLlm(ModelResponse(parts=[]), name="first", fallback=(second.model,))
    drive(start(decider=first.llm))
    assert second.asked == []


def test_with_all_llms_away_the_first_to_be_back_decides_when_they_are_asked(start: Start) -> None:
    def limited(seconds: float) -> ModelHTTPError:
        return ModelHTTPError.for_category(
            ModelRateLimitError, status_code=429, model_name="m", retry_after=seconds
        )

    second = ScriptedLlm(limited(60), name="second")
    first = ScriptedLlm(limited(300), name="first", fallback=(second.model,))
    run = start(decider=first.llm)
    drive(run)
    assert due_in(run) == 60
    assert [one.outcome for one in requests_of(run)] == ["failed", "failed"]


@pytest.mark.parametrize("name", ["", "no colon", "nobody:at-all"])
def test_an_llm_that_cannot_be_asked_here_leaves_the_run_to_a_worker_that_can(
    start: Start, name: str
) -> None:
    run = start(decider=Llm(name))
    drive(run)
    assert (run.state, run.failures) == (RunState.DECIDING, 0)
    assert run_edges(run)[-1] == "DECIDER_FAILED"
    assert requests_of(run) == []


def test_an_llm_that_never_answers_is_given_up_in_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "GRACE_SECONDS", 0.1)
    waits = threading.Event()

    def answer(_: Any) -> ModelResponse:
        waits.wait(30)
        return ModelResponse([TextPart("late")])

    scripted = ScriptedLlm(answer, say("done"), seconds=0.2)
    run = start(decider=scripted.llm)
    drive(run)
    waits.set()
    (gone,) = requests_of(run)
    assert gone.outcome == "failed"
    assert run.state == RunState.DECIDING

"""A case of an llm's run: what it was shown, asked again for today."""

from pathlib import Path

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse

from runs.artifact import Artifact
from runs.cases import replay
from runs.commands import fork_run
from runs.errors import LlmUnavailable
from runs.models import AgentRun, Handoff, LlmRequest
from tests.database.casing import decide_by, to_case
from tests.database.controlling import ANN
from tests.database.gating import Start
from tests.database.kit import ON_DATABASE, drive, scripted_tool
from tests.llms.scripted import ScriptedLlm, call, calls, say, using
from tools import EffectType

pytestmark = ON_DATABASE


def _looked(start: Start, *turns: ModelResponse, steps: int = 1) -> AgentRun:
    """A run that looked so often, and finished."""
    answers = [{"found": n} for n in range(1, steps + 1)]
    scripted_tool(*answers, name="look", effect=EffectType.READ)
    scripted = ScriptedLlm(
        *turns, *[call("look", amount=n + 1) for n in range(steps)], say("Done.")
    )
    run = start(decider=scripted.llm, tools=("look",))
    drive(run)
    # An answer that cannot be used gives the run back.
    drive(run)
    assert run.state == "COMPLETED", run.error
    return run


def test_an_llm_is_shown_the_recorded_past_at_each_step(start: Start, tmp_path: Path) -> None:
    run = _looked(start, steps=2)
    case = to_case(run, tmp_path)
    asked_then = LlmRequest.objects.count()
    today = ScriptedLlm(call("look", amount=1), call("look", amount=9), say("All is done."))
    decide_by(run, today.llm)
    replayed = replay(case)
    assert [step.verdict for step in replayed.steps] == ["same", "different", "same"]
    shown = [_text(messages) for messages in today.asked]
    assert ['"found":1' in text for text in shown] == [False, True, True]
    assert ['"found":2' in text for text in shown] == [False, False, True]
    assert LlmRequest.objects.count() == asked_then
    assert replayed.llm_requests == 3


def test_what_a_replay_used_is_said(start: Start, tmp_path: Path) -> None:
    run = _looked(start)
    case = to_case(run, tmp_path)
    used = using(say("Done."), input_tokens=120, output_tokens=30)
    decide_by(run, ScriptedLlm(used).llm)
    replayed = replay(case, step=2)
    assert (replayed.matches, replayed.llm_requests, replayed.tokens) == (True, 1, 150)
    assert "Asked an llm 1 times: 150 tokens" in str(replayed)


def test_an_unusable_answer_is_sent_back_as_in_a_run(start: Start, tmp_path: Path) -> None:
    run = _looked(start)
    case = to_case(run, tmp_path)
    today = ScriptedLlm(calls(("look", "{")), say("Done."))
    decide_by(run, today.llm)
    assert replay(case, step=2).matches
    assert "malformed" in _text(today.asked[1])
    decide_by(run, ScriptedLlm(*[calls(("look", "{"))] * 3).llm)
    (step,) = replay(case, step=2).steps
    assert (step.verdict, step.decided) == ("different", None)
    assert "malformed" in step.problem


def test_bad_answers_of_the_run_stand_in_its_case(start: Start, tmp_path: Path) -> None:
    run = _looked(start, calls(("look", "{")))
    about = to_case(run, tmp_path).metadata
    assert about is not None
    assert [bad.kind for bad in about.steps[0].bad_answers] == ["malformed"]
    assert about.steps[0].llm_version == "scripted"
    assert about.steps[0].prompt_version


def test_a_provider_that_is_away_is_no_difference(start: Start, tmp_path: Path) -> None:
    run = _looked(start)
    case = to_case(run, tmp_path)
    decide_by(run, ScriptedLlm(ConnectionError("away")).llm)
    with pytest.raises(LlmUnavailable):
        replay(case, step=1)


def test_what_the_runtime_wrote_stays_where_a_secret_is_called_like_it(
    start: Start, tmp_path: Path
) -> None:
    scripted_tool({"text": "s3cret", "n": 1}, sensitive=("text", "notes", "offset"))
    pay = call("pay", amount=1)
    read = call("read_result", reference="input")
    run = start(decider=ScriptedLlm(pay, read, say("Done.")).llm, tools=("pay",), input={"a": 1})
    drive(run)
    _hand_off(run, through_step=1, artifact=Artifact(notes="as agreed", covers_step=1))
    inputs = to_case(run, tmp_path).inputs
    paid, part = inputs.observations
    assert paid.result == {"text": "[redacted]", "n": 1}
    assert (part.result["text"], part.result["offset"]) == ('{"a":1}', 0)  # type: ignore[call-overload, index]
    assert inputs.handoffs[0].body["notes"] == "as agreed"


def test_a_handoff_stands_in_place_of_what_it_covers(start: Start, tmp_path: Path) -> None:
    run = _looked(start, steps=4)
    artifact = Artifact(done=("looked once",), objective="", covers_step=1)
    _hand_off(run, through_step=2, artifact=artifact)
    case = to_case(run, tmp_path)
    today = ScriptedLlm(*[say("Done.")] * 3)
    decide_by(run, today.llm)
    for step in (2, 3, 5):
        replay(case, step=step)
    before, after, last = map(_text, today.asked)
    assert "looked once" not in before
    assert '"found":1' in before
    assert "looked once" in after
    assert ['"found":1' in after, '"found":2' in after] == [False, True]
    assert ['"found":1' in last, '"found":4' in last] == [False, True]


def test_a_forks_own_handoff_stands_in_place_of_what_it_inherits(
    start: Start, tmp_path: Path
) -> None:
    """Also one that covers none of its own steps, as the first of a fork may be."""
    run = _looked(start, steps=3)
    first = Artifact(done=("they looked once",), covers_step=1)
    _hand_off(run, through_step=1, artifact=first)
    inherits, own = (fork_run(actor=ANN, run_id=run.id, step=2).run for _ in range(2))
    again = Artifact(done=("they looked twice",), covers_step=0)
    _hand_off(own, through_step=0, artifact=again)
    shown = []
    for fork in (inherits, own):
        decide_by(run, ScriptedLlm(say("Done.")).llm)
        drive(fork)
        today = ScriptedLlm(say("Done."))
        decide_by(run, today.llm)
        assert replay(to_case(fork, tmp_path)).matches
        shown += map(_text, today.asked)
    words = ("looked once", "looked twice", '"found":1', '"found":2')
    assert [[word in text for word in words] for text in shown] == [
        [True, False, False, True],
        [False, True, False, False],
    ]


def test_another_llm_may_be_asked(start: Start, tmp_path: Path) -> None:
    run = _looked(start)
    case = to_case(run, tmp_path)
    decide_by(run, ScriptedLlm(fallback=("openai:never-asked",)).llm)
    with pytest.raises(LlmUnavailable, match="openai:gpt-5-mini") as away:
        replay(case, step=1, llm="openai:gpt-5-mini")
    assert "never-asked" not in str(away.value)


def _hand_off(run: AgentRun, *, through_step: int, artifact: Artifact) -> Handoff:
    return Handoff.objects.create(
        run=run,
        number=1,
        through_step=through_step,
        reason=Handoff.Reason.WINDOW,
        schema_version=1,
        body=artifact.model_dump(mode="json"),
        written_by="rows",
        repairs=0,
        fence_token=1,
    )


def _text(messages: list[ModelMessage]) -> str:
    return str(messages)

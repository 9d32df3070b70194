"""A case holds what a run was shown and decided, and today's agent decides it again."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pydantic import BaseModel

from runs import (
    Agent,
    Ask,
    CallTools,
    Context,
    Decision,
    Delegate,
    Finish,
    Script,
    Sleep,
    ToolCall,
    WaitFor,
)
from runs.access import operator
from runs.agents import forget_agents
from runs.cases import Replay, UnknownStep, replay
from runs.cases.exporting import export_case
from runs.cases.files import render_case
from runs.cases.shapes import LeftOut
from runs.commands import fork_run, retry_run, start_run
from runs.context import WINDOW
from runs.corrections import correct_by_hand
from runs.errors import InvalidInput, UnknownAgent, UnknownRun
from runs.models import AgentRun, Question
from runs.signals import signal_run
from tests.database.asking import answerer, say
from tests.database.casing import decide_by, to_case
from tests.database.controlling import ANN, failed, pay_and_ship
from tests.database.gating import Start
from tests.database.kit import (
    ON_DATABASE,
    change,
    drive,
    drive_when_due,
    operation_of,
    scripted_tool,
)
from tests.database.stories import SECRET, reconciled_run
from tools import Call, EffectType, Rejected, tool

pytestmark = ON_DATABASE


def _verdicts(replayed: Replay) -> list[tuple[int, str]]:
    return [(step.step, step.verdict) for step in replayed.steps]


def test_a_run_decides_its_own_case_as_it_did(start: Start, tmp_path: Path) -> None:
    run, _ = failed(start)
    case = to_case(run, tmp_path)
    replayed = replay(case)
    assert _verdicts(replayed) == [(1, "same"), (2, "same"), (3, "same")]
    assert replayed.matches
    assert [step.expected and step.expected["kind"] for step in replayed.steps] == [
        "call_tools",
        "call_tools",
        "fail",
    ]


def test_a_changed_agent_differs_where_it_decides_otherwise(start: Start, tmp_path: Path) -> None:
    run, _ = failed(start)
    case = to_case(run, tmp_path)

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("pay", amount=7))
        # What the run saw of step 1, whatever this agent decided there.
        assert context.last.tool in {"pay", "ship"}
        return pay_and_ship(context)

    decide_by(run, decide)
    replayed = replay(case)
    assert _verdicts(replayed) == [(1, "different"), (2, "same"), (3, "same")]
    (difference,) = replayed.steps[0].differences
    assert (difference.path, difference.decided) == ("calls[0].arguments.amount", 7)
    assert not replayed.matches
    assert "step 1  DIFFERENT  pay(amount=7)" in str(replayed)
    assert "1 of 3 decisions differ: at step 1." in str(replayed)


def test_a_decider_that_fails_is_a_difference(start: Start, tmp_path: Path) -> None:
    run, _ = failed(start)
    case = to_case(run, tmp_path)
    decide_by(run, lambda context: context.input["nothing like it"])
    replayed = replay(case, step=2)
    (step,) = replayed.steps
    assert (step.step, step.verdict, step.decided) == (2, "different", None)
    assert "KeyError" in step.problem
    assert "no decision" in str(replayed)


def test_a_replay_calls_no_tool_and_writes_nothing(start: Start, tmp_path: Path) -> None:
    run, _ = failed(start)
    case = to_case(run, tmp_path)

    def start_another(context: Context) -> Decision:
        start_run(actor=operator(), agent=context.agent)
        return Finish()

    def write(context: Context) -> Decision:
        change("UPDATE runs_agentrun SET objective = 'written'")
        return Finish()

    async def write_from_a_coroutine(context: Context) -> Decision:
        await AgentRun.objects.aupdate(objective="written")
        return Finish()

    def write_from_a_thread(context: Context) -> Decision:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(write, context).result()
        return Finish()

    before = _all_rows()
    # The tools' scripts are used up: called, they raise.
    assert replay(case).matches
    for decider in (start_another, write, write_from_a_coroutine, write_from_a_thread):
        decide_by(run, decider)
        step = replay(case, step=1).steps[0]
        assert "read-only transaction" in step.problem, decider
    assert _all_rows() == before
    # None of the connections that others take from the pool refuses to write now.
    for _ in range(20):
        connection.close()
        change("UPDATE runs_agentrun SET objective = 'still writable'")


def _all_rows() -> dict[str, list[Any]]:
    return {
        model.__name__: sorted(map(str, model.objects.values_list()))
        for model in apps.get_app_config("runs").get_models()
    }


def test_nothing_sensitive_is_in_the_file(start: Start, tmp_path: Path) -> None:
    run = reconciled_run(start)
    case = to_case(run, tmp_path)
    for form in ("yaml", "json"):
        text = render_case(case, form)
        assert SECRET not in text
        assert "[redacted]" in text
    # The secret that today's code knows is hidden before it is compared.
    replayed = replay(case)
    assert replayed.matches
    assert SECRET not in str(replayed)


def test_a_secret_is_hidden_in_every_text_that_repeats_it(start: Start, tmp_path: Path) -> None:
    @tool(effect_type=EffectType.READ, sensitive=("pin",))
    def look(call: Call, pin: str) -> dict[str, Any]:
        """Look."""
        return {"note": f"the pin is {pin}, they say", "echo": int(pin), "of": {pin: 1}}

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("look", pin=context.input["pin"]), rationale="for 99887766")
        return Finish(f"{context.last.result['note']} {context.objective}")

    run = start(
        decider=decide, tools=("look",), input={"pin": "99887766"}, objective="Try 99887766"
    )
    drive(run)
    case = to_case(run, tmp_path)
    assert "99887766" not in render_case(case, "yaml")
    assert case.inputs.observations[0].result == {
        "note": "the pin is [redacted], they say",
        "echo": "[redacted]",
        "of": {"[redacted]": 1},
    }
    assert replay(case).matches


class Size(BaseModel):
    size: int


# People are no rows of the kernel's.
@pytest.mark.django_db(transaction=True)
def test_what_a_run_was_told_is_in_its_case(start: Start, tmp_path: Path) -> None:
    Agent(name="child", decider=lambda context: Finish({"of": context.input}))

    def decide(context: Context) -> Decision:
        plan = [
            WaitFor("go"),
            Ask("How large?", Size),
            Delegate("child", "help", {"n": 1}),
            Sleep(timedelta(0)),
        ]
        if context.position <= len(plan):
            return plan[context.position - 1]
        told = [[one.kind, one.tool, one.result, one.author] for one in context.observations]
        return Finish([*told, [one.payload for one in context.signals]])

    run = start(decider=decide)
    drive(run)
    signal_run(actor=ANN, run_id=run.id, name="go", event_id="1", payload={"at": "once"})
    drive(run)
    say(Question.objects.get(run=run), answerer(), {"size": 3})
    drive_when_due(run)
    drive(AgentRun.objects.get(agent="child"))
    drive_when_due(run)
    assert run.state == "COMPLETED", run.error
    case = to_case(run, tmp_path)
    assert [one.kind for one in case.inputs.observations] == ["signal", "answer", "child"]
    assert case.inputs.observations[2].result == {"of": {"n": 1}}
    forget_agents(["child"])
    assert replay(case).matches


def test_steps_that_a_retry_took_back_are_not_in_the_case(start: Start, tmp_path: Path) -> None:
    scripted_tool({"id": "re_1"}, name="pay")
    scripted_tool(Rejected("no"), {"id": "sh_1"}, name="ship")
    run = start(
        decider=Script(ToolCall("pay"), ToolCall("ship"), Finish("{last.id}")),
        tools=("pay", "ship"),
    )
    drive(run)
    assert run.state == "FAILED"
    retry_run(actor=ANN, run_id=run.id)
    drive_when_due(run)
    assert (run.state, run.result, run.voided_steps) == ("COMPLETED", "sh_1", 2)
    case = to_case(run, tmp_path)
    assert [(one.step, one.position) for one in case.inputs.steps] == [(1, 1), (4, 2), (5, 3)]
    assert replay(case).matches


def test_a_fork_is_shown_what_it_inherits(start: Start, tmp_path: Path) -> None:
    run, _ = failed(start)
    fork = fork_run(actor=ANN, run_id=run.id, step=1).run
    scripted_tool({"id": "sh_1"}, name="deliver")
    decide_by(run, lambda context: Finish([one.tool for one in context.observations]))
    drive(fork)
    case = to_case(fork, tmp_path)
    assert [(one.tool, one.inherited) for one in case.inputs.observations] == [("pay", True)]
    assert [(one.step, one.position) for one in case.inputs.steps] == [(1, 2)]
    assert fork.result == ["pay"]
    assert replay(case).matches


def test_an_effect_is_shown_as_taken_back_from_the_step_on_that_saw_it(
    start: Start, tmp_path: Path
) -> None:
    scripted_tool({"id": "re_1"})

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("pay"))
        if context.position == 2:
            assert not context.last.corrected
            return WaitFor("go")
        return Finish([one.corrected for one in context.observations])

    run = start(decider=decide, tools=("pay",))
    drive(run)
    correct_by_hand(actor=operator(), operation_id=operation_of(run).id, evidence="by hand")
    signal_run(actor=ANN, run_id=run.id, name="go", event_id="1")
    drive(run)
    assert run.result == [True, False], run.error
    case = to_case(run, tmp_path)
    assert case.inputs.observations[0].corrected_before_step == 3
    assert replay(case).matches


def test_what_is_too_large_is_cut_and_counted(start: Start, tmp_path: Path) -> None:
    scripted_tool({"page": "x" * 100_000, "id": "re_1"})

    def decide(context: Context) -> Decision:
        return (
            CallTools(ToolCall("pay"))
            if context.last is None
            else Finish(context.last.result["id"])
        )

    run = start(decider=decide, tools=("pay",))
    drive(run)
    case = to_case(run, tmp_path)
    assert case.metadata is not None
    assert case.metadata.left_out.values == 1
    result: Any = case.inputs.observations[0].result
    assert result["page"] == "x" * 4_000 + "… [96000 characters left out]"
    assert replay(case).matches


def test_a_decision_that_is_too_large_may_be_any(start: Start, tmp_path: Path) -> None:
    run = start(decider=lambda context: Finish("x" * 100_000))
    drive(run)
    case = to_case(run, tmp_path)
    decide_by(run, lambda context: Finish("y"))
    assert _verdicts(replay(case)) == [(1, "open")]


def test_a_case_ends_where_it_is_told_to(start: Start, tmp_path: Path) -> None:
    run, _ = failed(start)
    case = to_case(run, tmp_path, through=2)
    assert [one.step for one in case.inputs.steps] == [1, 2]
    assert replay(case).matches
    with pytest.raises(InvalidInput, match="--through: 0"):
        export_case(run_id=run.id, through=0)


def test_an_undecided_step_is_there_to_be_filled_in(start: Start, tmp_path: Path) -> None:
    def decide(context: Context) -> Decision:
        raise RuntimeError("out of order")

    run = start(decider=decide)
    for _ in range(3):
        drive_when_due(run)
    assert run.state == "FAILED"
    case = to_case(run, tmp_path)
    assert [(one.step, one.decision) for one in case.expected_output] == [(1, None)]
    decide_by(run, lambda context: Finish("mended"))
    replayed = replay(case)
    assert _verdicts(replayed) == [(1, "open")]
    assert "0 of 1 decisions were compared" in str(replayed)


def test_a_case_tells_where_it_comes_from(start: Start, tmp_path: Path) -> None:
    run, _ = failed(start)
    about = to_case(run, tmp_path).metadata
    assert about is not None
    assert (about.state, about.agent_version) == ("FAILED", run.agent_version)
    assert [one.decider for one in about.steps] == ["function pay_and_ship"] * 3
    assert about.steps[0].tool_versions.keys() == {"pay"}
    assert [one.kind for one in about.timeline][:2] == ["run.create", "run.open_step"]
    assert about.left_out == LeftOut()


def test_what_a_replay_cannot_find_is_named(start: Start, tmp_path: Path) -> None:
    run, _ = failed(start)
    case = to_case(run, tmp_path)
    with pytest.raises(UnknownStep, match=r"no step 9\. Give one from 1 to 3"):
        replay(case, step=9)
    with pytest.raises(InvalidInput, match="--llm"):
        replay(case, llm="openai:gpt-5-mini")
    forget_agents([run.agent])
    with pytest.raises(UnknownAgent):
        replay(case)
    with pytest.raises(UnknownRun):
        export_case(run_id=type(run.id)(int=1))
    unbegun = start(decider=lambda context: Finish())
    with pytest.raises(InvalidInput, match="nothing to decide again"):
        export_case(run_id=unbegun.id)


def test_of_a_long_run_the_newest_steps_and_their_past_are_kept(
    start: Start, tmp_path: Path
) -> None:
    last = 207

    @tool(effect_type=EffectType.READ)
    def look(call: Call, n: int) -> int:
        """Look."""
        return n

    def decide(context: Context) -> Decision:
        if context.position == last:
            return Finish(sum(one.result for one in context.observations))
        return CallTools(ToolCall("look", n=context.position))

    run = start(decider=decide, tools=("look",))
    short = _count_queries(_driven(run, to_step=50))
    long = _count_queries(_driven(run, to_step=last))
    assert short == long
    assert run.result == sum(range(last - WINDOW, last))
    case = to_case(run, tmp_path)
    assert [case.inputs.steps[n].step for n in (0, -1)] == [8, last]
    assert case.metadata is not None
    assert case.metadata.left_out.steps == 7
    for step in (8, last):
        assert replay(case, step=step).matches


def _driven(run: AgentRun, *, to_step: int) -> AgentRun:
    while run.step_number < to_step:
        drive(run)
    return run


def _count_queries(run: AgentRun) -> int:
    with CaptureQueriesContext(connection) as queries:
        export_case(run_id=run.id)
    return len(queries)

"""The engine, driven in process on a real database."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import Agent, Budget, CallTools, Context, Decision, Fail, Finish, ToolCall, events
from runs.agents import forget_agents
from runs.commit import Change, Edge, Held, NewDecision, Release, commit_if_held
from runs.engine import MAX_CALLS, MAX_FAILURES, Slice, advance, drain
from runs.errors import UndecodableDecision
from runs.lease import claim
from runs.models import AgentRun, Checkpoint, Step, StepAttempt
from runs.state import RunState
from tests.database.kit import (
    ON_DATABASE,
    Script,
    ask,
    call_once,
    change,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    found,
    operation_of,
    run_edges,
    scripted_tool,
)
from tools import Call, EffectType, tool
from tools.registry import isolated_registry

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


def test_a_run_of_tool_steps_completes(start: Start) -> None:
    @tool(effect_type=EffectType.READ)
    def double(call: Call, number: int) -> int:
        """Double a number."""
        return 2 * number

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("double", number=context.input["number"]))
        return Finish(context.last.result)

    run = start(decider=decide, tools=("double",), input={"number": 4})
    advance(run_id=run.id, owner="test")
    run.refresh_from_db()
    assert (run.state, run.result) == (RunState.COMPLETED, 8)


def test_every_edge_of_a_step_is_in_the_journal(start: Start) -> None:
    scripted_tool(7)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run_edges(run) == [
        "CREATE", "OPEN_STEP", "RECORD_DECISION", "PREPARE", "SEND", "COMMIT", "CLOSE_STEP",
        "OPEN_STEP", "RECORD_DECISION", "COMPLETE",
    ]  # fmt: skip


def test_a_finished_run_is_closed_and_nobody_is_due(start: Start) -> None:
    run = start(decider=lambda context: Finish({"ok": True}))
    drive(run)
    assert (run.state, run.result, run.error) == (RunState.COMPLETED, {"ok": True}, "")
    assert run.finished_at is not None
    assert (run.wake_at, run.sweep_at, run.lease_owner) == (None, None, "")
    assert not Step.objects.filter(run=run, closed_at=None).exists()
    assert not StepAttempt.objects.filter(step__run=run, ended_at=None).exists()
    assert Checkpoint.objects.get(run=run).state == {"v": 1, "step": 1, "last": None}
    assert not drive(run).claimed


def test_a_failing_decision_fails_the_run_with_its_reason(start: Start) -> None:
    run = start(decider=lambda context: Fail("no such order"))
    drive(run)
    assert (run.state, run.error, run.result) == (RunState.FAILED, "no such order", None)


def test_a_coroutine_decides(start: Start) -> None:
    async def decide(context: Context) -> Decision:
        return Finish(context.step_number)

    run = start(decider=decide)
    drive(run)
    assert run.result == 1


def test_a_decider_sees_what_the_run_learned_oldest_first(start: Start) -> None:
    scripted_tool(*range(3), effect=EffectType.READ)
    seen: list[Context] = []

    def decide(context: Context) -> Decision:
        seen.append(context)
        return CallTools(ToolCall("pay")) if context.step_number <= 3 else Finish(None)

    run = start(decider=decide, tools=("pay",), objective="count", input=[1])
    drive(run)
    last = seen[-1]
    assert [one.result for one in last.observations] == [0, 1, 2]
    assert (last.objective, last.input, last.agent) == ("count", [1], run.agent)
    assert last.facts == ()  # reading changes nothing outside


# -- Resuming is asking "is it recorded already?" ------------------------------------------


def test_a_decision_that_was_not_recorded_is_asked_for_again(start: Start) -> None:
    asked: list[int] = []

    def decide(context: Context) -> Decision:
        asked.append(context.step_number)
        return Finish(len(asked))

    run = start(decider=decide)
    with dies_at(events.Name.DECIDER_DONE):
        drive(run)
    expire_lease(run)
    drive(run, owner="worker 2")
    assert (run.state, run.result, asked) == (RunState.COMPLETED, 2, [1, 1])


def test_a_recorded_decision_stands_whatever_the_decider_would_say_now(start: Start) -> None:
    script = scripted_tool(7, effect=EffectType.READ)
    amounts = iter([10, 999])

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("pay", amount=next(amounts)))
        return Finish(context.last.arguments)

    run = start(decider=decide, tools=("pay",))
    with dies_at(events.Name.CALL_STARTING):
        drive(run)
    expire_lease(run)
    drive(run, owner="worker 2")
    assert (run.state, run.result) == (RunState.COMPLETED, {"amount": 10})
    assert [call.arguments for call in script.calls] == [{"amount": 10}]


def test_a_call_that_is_recorded_is_not_made_again_after_a_crash_in_its_sibling(
    start: Start,
) -> None:
    first = scripted_tool("first", name="first")
    second = scripted_tool("second", name="second", look_up=Script(found("second")))
    run = start(
        decider=call_once(ToolCall("first"), ToolCall("second")), tools=("first", "second")
    )
    with dies_at(events.Name.CALL_DONE, nth=2):
        drive(run)
    expire_lease(run)
    drive(run, owner="worker 2")
    assert run.state == RunState.COMPLETED
    assert (len(first.calls), len(second.calls)) == (1, 1)


@pytest.mark.parametrize("point", [events.Name.COMMIT_STARTING, events.Name.COMMIT_DONE])
@pytest.mark.parametrize("effect", [EffectType.READ, EffectType.IDEMPOTENT_WRITE])
def test_a_worker_may_die_before_and_after_every_commit(
    start: Start, point: events.Name, effect: EffectType
) -> None:
    effects: dict[str, int] = {}

    def once_per_key(call: Call) -> int:
        return effects.setdefault(call.idempotency_key, len(effects) + 1)

    deaths = 0
    for nth in range(1, 20):
        scripted_tool(*[once_per_key] * 9, effect=effect, name=f"pay{nth}", max_attempts=9)
        decider = call_once(ToolCall(f"pay{nth}"))
        run = start(decider=decider, tools=(f"pay{nth}",))
        try:
            with dies_at(point, nth=nth):
                drive(run)
        except AssertionError:
            assert run.state == RunState.COMPLETED
            break
        deaths += 1
        for _ in range(4):
            expire_lease(run)
            drive(run, owner="worker 2")
        assert run.state == RunState.COMPLETED, f"{point} {nth}"
    assert deaths == 4  # open, send, outcome, end
    assert len(effects) == deaths + 1


def test_each_take_over_is_an_attempt_and_the_one_before_is_lost(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    for _ in range(2):
        with dies_at(events.Name.DECIDER_STARTING):
            drive(run)
        expire_lease(run)
    drive(run, owner="worker 3")
    attempts = StepAttempt.objects.filter(step__run=run).order_by("number")
    assert list(attempts.values_list("number", "outcome", "fence_token")) == [
        (1, "lost", 1),
        (2, "lost", 2),
        (3, "done", 3),
    ]


def test_resuming_costs_the_same_however_long_the_run_is(start: Start) -> None:
    def statements(steps: int) -> int:
        scripted_tool(*range(steps), name=f"pay{steps}", effect=EffectType.READ)

        def decide(context: Context) -> Decision:
            if context.step_number <= steps:
                return CallTools(ToolCall(f"pay{steps}"))
            assert len(context.observations) <= 20
            return Finish(None)

        run = start(decider=decide, tools=(f"pay{steps}",))
        drive_in_turns = advance(run_id=run.id, owner="w", turn=Slice(steps=steps, seconds=60))
        assert drive_in_turns.steps == steps
        with CaptureQueriesContext(connection) as captured:
            drive(run)
        assert run.state == RunState.COMPLETED
        return len(captured)

    assert statements(2) == statements(30)


# -- Turns ----------------------------------------------------------------------------------


def test_a_turn_ends_after_its_steps_and_the_run_is_due_at_once(start: Start) -> None:
    scripted_tool(*range(5), effect=EffectType.READ)

    def decide(context: Context) -> Decision:
        return CallTools(ToolCall("pay")) if context.step_number <= 5 else Finish(None)

    run = start(decider=decide, tools=("pay",))
    progress = advance(run_id=run.id, owner="w", turn=Slice(steps=2))
    assert (progress.yielded, progress.steps, progress.state) == (True, 2, RunState.READY)
    run.refresh_from_db()
    assert (run.lease_owner, run.step_number) == ("", 2)
    assert ask("SELECT wake_at <= now() AND sweep_at <= now() FROM runs_agentrun")
    assert not drive(run).yielded
    assert run.state == RunState.COMPLETED


def test_a_turn_ends_after_its_seconds(start: Start) -> None:
    scripted_tool(*range(5), effect=EffectType.READ)
    run = start(decider=lambda context: CallTools(ToolCall("pay")), tools=("pay",))
    assert advance(run_id=run.id, owner="w", turn=Slice(seconds=0.0)).yielded


def test_a_process_that_is_to_end_lets_runs_go_at_the_next_step(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    drain()
    try:
        assert drive(run).yielded
        assert (run.state, run.lease_owner) == (RunState.READY, "")
    finally:
        drain(on=False)
    drive(run)
    assert run.state == RunState.COMPLETED


def test_a_run_that_somebody_holds_is_left_alone(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    assert claim(run_id=run.id, owner="worker 1") is not None
    progress = drive(run, owner="worker 2")
    assert (progress.claimed, progress.state) == (False, None)
    assert run.lease_owner == "worker 1"


# -- What this worker cannot serve ------------------------------------------------------------


def test_a_run_of_an_agent_that_is_not_here_is_left_to_others(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    forget_agents([run.agent])
    for _ in range(3):
        drive_when_due(run)
    assert run.state == RunState.READY
    assert run_edges(run) == ["CREATE"]
    assert 10 < _due_in(run) <= 15
    Agent(name=run.agent, decider=lambda context: Finish(2))
    drive_when_due(run)
    assert run.result == 2


def test_an_operation_of_a_tool_that_is_not_here_is_left_to_others(start: Start) -> None:
    scripted_tool(ValueError("lost"))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.state == RunState.TOOL_STATUS_UNKNOWN
    with isolated_registry():
        drive_when_due(run)
    assert (run.state, run.lease_owner) == (RunState.TOOL_STATUS_UNKNOWN, "")
    assert 10 < _due_in(run) <= 15


# -- Deciders that fail -------------------------------------------------------------------------


def _raise(context: Context) -> Decision:
    raise ZeroDivisionError("by design")


def test_a_decider_that_fails_is_asked_later_and_later_then_the_run_fails(start: Start) -> None:
    run = start(decider=_raise)
    waits = []
    for _ in range(MAX_FAILURES - 1):
        drive_when_due(run)
        assert (run.state, run.lease_owner) == (RunState.DECIDING, "")
        waits.append(round(_due_in(run)))
    drive_when_due(run)
    assert waits == [2, 4]
    assert (run.state, run.failures) == (RunState.FAILED, MAX_FAILURES)
    assert "ZeroDivisionError: by design" in run.error
    outcomes = StepAttempt.objects.filter(step__run=run).order_by("number")
    assert list(outcomes.values_list("outcome", flat=True)) == ["failed", "failed", "done"]
    assert run_edges(run).count("DECIDER_FAILED") == MAX_FAILURES - 1


def test_a_usable_decision_forgives_what_failed_before(start: Start) -> None:
    scripted_tool(7, 8, 9, effect=EffectType.READ)
    answers = iter([None, ToolCall("pay"), None, ToolCall("pay"), None, Finish("done")])
    run = start(decider=lambda context: next(answers), tools=("pay",))
    for _ in range(4):
        drive_when_due(run)
    assert (run.state, run.result, run.failures) == (RunState.COMPLETED, "done", 0)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        CallTools(),
        CallTools(*[ToolCall("pay")] * (MAX_CALLS + 1)),
        Finish(float("nan")),
        Finish("nul \0"),
        Finish("\ud800"),
        Finish(2**60),
        Finish("x" * 300_000),
        Finish(object()),
        Fail(7),  # type: ignore[arg-type]
    ],
    ids=lambda answer: str(answer)[:20].encode("ascii", "replace").decode(),
)
def test_a_decision_that_cannot_be_used_is_no_decision(start: Start, answer: Any) -> None:
    script = scripted_tool(7)
    run = start(decider=lambda context: answer, tools=("pay",))
    for _ in range(MAX_FAILURES):
        drive_when_due(run)
    assert run.state == RunState.FAILED
    assert "no decision in 3 tries" in run.error
    assert script.calls == []
    assert ask("SELECT count(*) FROM runs_modeldecision") == 0


def test_decisions_whose_calls_cannot_be_made_are_bounded(start: Start) -> None:
    run = start(decider=lambda context: CallTools(ToolCall("nothing")))
    drive(run)
    assert (run.state, run.step_number) == (RunState.FAILED, MAX_FAILURES)
    assert "calls that cannot be made" in run.error


def test_good_calls_beside_bad_ones_are_made_and_the_bound_still_holds(start: Start) -> None:
    script = scripted_tool(*range(9), effect=EffectType.READ)
    run = start(
        decider=lambda context: CallTools(ToolCall("pay"), ToolCall("nothing")), tools=("pay",)
    )
    drive(run)
    assert (run.state, len(script.calls)) == (RunState.FAILED, MAX_FAILURES)


# -- Limits ---------------------------------------------------------------------------------------


def test_a_run_ends_at_its_budget_of_steps(start: Start) -> None:
    script = scripted_tool(*range(9), effect=EffectType.READ)
    run = start(
        decider=lambda context: CallTools(ToolCall("pay")), tools=("pay",), budget=Budget(steps=3)
    )
    drive(run)
    assert (run.state, len(script.calls)) == (RunState.FAILED, 3)
    assert "3 steps" in run.error
    assert operation_of(run).status == "COMMITTED"


def test_a_run_ends_at_its_budget_of_time(start: Start) -> None:
    asked: list[Context] = []

    def decide(context: Context) -> Decision:
        asked.append(context)
        return Finish(1)

    run = start(decider=decide, budget=Budget(duration=timedelta(hours=1)))
    change("UPDATE runs_agentrun SET created_at = now() - interval '2 hours'")
    drive(run)
    assert (run.state, asked) == (RunState.FAILED, [])
    assert "1:00:00" in run.error


# -- Rows that cannot be read -----------------------------------------------------------------------


def test_a_decision_that_cannot_be_read_stops_the_run_loudly_and_names_itself(
    start: Start,
) -> None:
    run = start(decider=lambda context: Finish(1))
    _record(run, body={"v": 99, "kind": "from the future"})
    with pytest.raises(UndecodableDecision):
        drive(run)
    run.refresh_from_db()
    assert str(run.id) in run.error
    assert "from the future" in run.error
    assert (run.state, run.lease_owner) == (RunState.DECISION_RECORDED, "")
    assert 30 < _due_in(run) <= 60


def _record(run: AgentRun, *, body: dict[str, Any]) -> None:
    taken = claim(run_id=run.id, owner="another version")
    assert taken is not None
    opened = commit_if_held(
        Held(run.id, taken.row["version"], 1, "w", None, None),
        Change(
            edges=[Edge("OPEN_STEP", "READY", "DECIDING", "", 1, 1)],
            run={"state": "DECIDING", "step_number": 1},
            open_step=1,
            open_attempt=1,
        ),
    )
    commit_if_held(
        Held(run.id, opened.version, 1, "w", opened.step_id, opened.attempt_id),
        Change(
            edges=[Edge("RECORD_DECISION", "DECIDING", "DECISION_RECORDED", "", 1, 1)],
            run={"state": "DECISION_RECORDED"},
            decision=NewDecision("?", body, "test", "1", {}),
            close_attempt="parked",
            release=Release(wake_in=0.0, can_cancel=True),
        ),
    )


def _due_in(run: AgentRun) -> float:
    return float(
        ask("SELECT EXTRACT(EPOCH FROM wake_at - now()) FROM runs_agentrun WHERE id = %s", run.id)
    )

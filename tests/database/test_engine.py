"""The engine, driven in process on a real database."""

from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import CallTools, Context, Decision, Fail, Finish, ToolCall, events
from runs.engine import Slice, advance, drain
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
    run_edges,
    scripted_tool,
)
from tools import Call, EffectType, tool

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


# -- Resuming is asking "is it recorded already?" -----------------------------------------------


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
    run = start(decider=call_once(ToolCall("first"), ToolCall("second")), tools=("first", "second"))
    with dies_at(events.Name.CALL_DONE, nth=2):
        drive(run)
    expire_lease(run)
    drive(run, owner="worker 2")
    assert run.state == RunState.COMPLETED
    assert (len(first.calls), len(second.calls)) == (1, 1)


@pytest.mark.parametrize("point", [events.Name.COMMIT_STARTING, events.Name.COMMIT_DONE])
@pytest.mark.parametrize(
    "effect", [EffectType.READ, EffectType.TRANSACTIONAL, EffectType.IDEMPOTENT_WRITE]
)
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


def test_an_attempt_that_finds_nothing_to_do_yet_is_ended_as_parked(start: Start) -> None:
    scripted_tool(ConnectionResetError("lost"), 7)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    change("UPDATE runs_tooloperation SET in_flight_until = now() + interval '60 s'")
    change("UPDATE runs_agentrun SET wake_at = now()")
    drive(run)
    assert not StepAttempt.objects.filter(step__run=run, ended_at=None).exists()
    drive_when_due(run)
    attempts = StepAttempt.objects.filter(step__run=run, step__number=1).order_by("number")
    assert list(attempts.values_list("outcome", flat=True)) == ["parked", "parked", "done"]


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


# -- Turns --------------------------------------------------------------------------------------


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

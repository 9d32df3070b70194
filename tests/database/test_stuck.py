"""A run is stuck when its rows name nobody who moves it on; every way of it is found, and only
those.

Stuck runs are made by breaking rows that the engine wrote, past every trigger.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from agentops.management.commands.doctor import Finding, examine
from runs import Ask, Delegate, Finish, Sleep, ToolCall, WaitFor, events
from runs.access import operator
from runs.commands import cancel_run, pause_run, resume_run, signal_run
from runs.lease import claim
from runs.models import AgentRun
from runs.state import RunState
from runs.stuck import WORDS, Why, count_stuck, find_stuck
from tests.database.calling import NEVER, carry_out, carry_out_when_due, run_of, send
from tests.database.controlling import completed, failed
from tests.database.delegating import child_of, worker
from tests.database.gating import held, tamper
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    call_once,
    change,
    dies_at,
    drive,
    expire_lease,
    let_pass,
    scripted_tool,
)
from tests.database.kit import ask as look
from tests.database.sagas import Books, do_all
from tests.database.stories import parked_run, uncertain_run
from tools import Approve, EffectType, registry
from tools.checks import LONGEST_TIMEOUT, check_tools

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
Break = Callable[[Start], AgentRun]


def waiting_for(start: Start, decision: Any) -> AgentRun:
    run = start(decider=lambda context: decision if context.last is None else Finish(1))
    drive(run)
    assert run.state == "WAITING"
    return run


def delegating(start: Start) -> AgentRun:
    worker(lambda context: Finish("done"))
    return waiting_for(start, Delegate("helper"))


def undate(run: AgentRun) -> AgentRun:
    tamper("UPDATE runs_agentrun SET wake_at = NULL WHERE id = %s", run.id)
    return run


def nobody_asked(start: Start) -> AgentRun:
    run, _ = held(start)
    tamper("UPDATE runs_approval SET status = 'expired' WHERE run_id = %s", run.id)
    return run


def nothing_unknown(start: Start) -> AgentRun:
    run = undate(parked_run(start))
    tamper(
        "UPDATE runs_tooloperation SET status = 'COMMITTED', settled_at = now() WHERE run_id = %s",
        run.id,
    )
    return run


def no_wait(start: Start) -> AgentRun:
    run = waiting_for(start, WaitFor("paid"))
    tamper("UPDATE runs_wait SET ended_at = now(), outcome = 'came' WHERE run_id = %s", run.id)
    return run


def timer_undated(start: Start) -> AgentRun:
    return undate(waiting_for(start, Sleep(for_=timedelta(days=1))))


def time_limit_undated(start: Start) -> AgentRun:
    return undate(waiting_for(start, WaitFor("paid", timeout=timedelta(days=1))))


def signal_unheard(start: Start) -> AgentRun:
    run = waiting_for(start, WaitFor("paid"))
    signal_run(actor=operator(), run_id=run.id, name="paid", event_id="1", payload=None)
    return undate(run)


def question_ended(start: Start) -> AgentRun:
    run = waiting_for(start, Ask("Which?", schema={"type": "string"}))
    tamper(
        "UPDATE runs_question SET status = 'cancelled', ended_at = now() WHERE run_id = %s", run.id
    )
    return run


def children_ended(start: Start) -> AgentRun:
    run = delegating(start)
    drive(child_of(run))
    return undate(run)


def children_of_the_step_ended(start: Start) -> AgentRun:
    """Another one goes on, which an earlier step started."""
    worker(lambda context: Finish("done"))
    last = 2

    def decide(context: Any) -> Any:
        return Delegate("helper") if context.step_number <= last else Finish(1)

    run = start(decider=decide)
    for _ in range(last):
        drive(run)
        newest = AgentRun.objects.filter(parent=run).latest("created_at")
        drive(newest)
    tamper(
        "UPDATE runs_agentrun SET finished_at = NULL, parent_told_at = NULL, paused_at = now(),"
        " wake_at = NULL WHERE parent_id = %s AND id <> %s",
        run.id,
        newest.id,
    )
    return undate(run)


def cancel_unheard(start: Start) -> AgentRun:
    run, _ = held(start)
    cancel_run(actor=operator(), run_id=run.id)
    return undate(run)


def undated(start: Start) -> AgentRun:
    return undate(start(decider=lambda context: Finish(1)))


def unfinished(start: Start) -> AgentRun:
    run = completed(start)
    tamper("UPDATE runs_agentrun SET finished_at = NULL WHERE id = %s", run.id)
    return run


def no_such_state(start: Start) -> AgentRun:
    run = start(decider=lambda context: Finish(1))
    tamper("UPDATE runs_agentrun SET state = 'THINKING' WHERE id = %s", run.id)
    return run


def no_such_undated_state(start: Start) -> AgentRun:
    return undate(no_such_state(start))


def held_too_long(start: Start) -> AgentRun:
    run = start(decider=lambda context: Finish(1))
    tamper(
        "UPDATE runs_agentrun SET lease_owner = 'gone', fence_token = 1,"
        " lease_expires_at = now() + interval '30 days' WHERE id = %s",
        run.id,
    )
    return run


BROKEN: dict[Break, Why] = {
    nobody_asked: Why.NOBODY_ASKED,
    nothing_unknown: Why.NOTHING_UNKNOWN,
    no_wait: Why.NO_WAIT,
    timer_undated: Why.TIMER_UNDATED,
    time_limit_undated: Why.TIMER_UNDATED,
    signal_unheard: Why.SIGNAL_UNHEARD,
    question_ended: Why.QUESTION_ENDED,
    children_ended: Why.CHILDREN_ENDED,
    children_of_the_step_ended: Why.CHILDREN_ENDED,
    cancel_unheard: Why.CANCEL_UNHEARD,
    undated: Why.UNDATED,
    unfinished: Why.UNFINISHED,
    no_such_state: Why.NO_SUCH_STATE,
    no_such_undated_state: Why.NO_SUCH_STATE,
    held_too_long: Why.HELD_TOO_LONG,
}


@pytest.fixture
def allow_undated() -> Iterator[None]:
    """Let rows be what even a constraint refuses."""
    name = "run_has_a_next_mover"
    meaning = look("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", name)
    change(f"ALTER TABLE runs_agentrun DROP CONSTRAINT {name}")
    yield
    tamper("UPDATE runs_agentrun SET wake_at = now() WHERE finished_at IS NULL")
    change(f"ALTER TABLE runs_agentrun ADD CONSTRAINT {name} {meaning}")


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.__name__)
def test_a_run_that_nobody_moves_on_is_stuck_and_why_is_said(
    start: Start, broken: Break, allow_undated: None
) -> None:
    run = broken(start)
    run.refresh_from_db()
    why = BROKEN[broken]
    [found] = find_stuck(most=10)
    assert (found.run_id, found.agent, found.state) == (run.id, run.agent, run.state)
    assert found.why == WORDS[why]
    assert count_stuck() == {str(one): int(one is why) for one in Why}


def test_a_run_as_the_engine_leaves_it_is_not_stuck_in_any_state(start: Start) -> None:
    seen: set[str] = set()
    kinds = begins, ends, waits, delegates, asks_people, is_uncertain, loses_workers, pauses, serves
    for kind in kinds:
        with registry.isolated_registry():
            for run in kind(start):
                run.refresh_from_db()
                seen.add(run.state)
                assert find_stuck(most=10) == [], run.state
    let_pass(days=3)
    assert find_stuck(most=10) == []
    passed_through = {"DECISION_RECORDED", "TOOL_COMMITTED", "TOOL_PREPARED"}
    assert seen == set(RunState) - passed_through


def begins(start: Start) -> Iterator[AgentRun]:
    yield start(decider=lambda context: Finish(1))
    yield completed(start)


def ends(start: Start) -> Iterator[AgentRun]:
    yield failed(start)[0]
    books = Books()
    books.define("a")
    run = start(tools=("do_a",), on_failure="compensate", decider=do_all("a"))
    with dies_at(events.Name.COMMIT_DONE, nth=3):
        drive(run)
    yield run
    expire_lease(run)
    drive(run)
    yield run


def waits(start: Start) -> Iterator[AgentRun]:
    for decision in (
        Sleep(for_=timedelta(days=1)),
        WaitFor("paid"),
        WaitFor("paid", timeout=timedelta(days=1)),
        Ask("Which?", schema={"type": "string"}),
    ):
        yield waiting_for(start, decision)


def delegates(start: Start) -> Iterator[AgentRun]:
    parent = delegating(start)
    yield parent
    cancel_run(actor=operator(), run_id=parent.id)
    drive(parent)
    assert (parent.state, parent.wake_at) == ("WAITING", None)
    yield parent


def asks_people(start: Start) -> Iterator[AgentRun]:
    yield held(start)[0]


def is_uncertain(start: Start) -> Iterator[AgentRun]:
    yield uncertain_run(start)
    run = parked_run(start)
    yield run
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    assert (run.state, run.wake_at) == ("WAITING_FOR_RESOLUTION", None)
    yield run


def loses_workers(start: Start) -> Iterator[AgentRun]:
    for moment in (events.Name.DECIDER_STARTING, events.Name.CALL_STARTING):
        scripted_tool(name=moment)
        run = start(decider=call_once(ToolCall(moment, amount=1)), tools=(moment,))
        with dies_at(moment):
            drive(run)
        yield run
        expire_lease(run)
        yield run


def pauses(start: Start) -> Iterator[AgentRun]:
    run = start(decider=lambda context: Finish(1))
    pause_run(actor=operator(), run_id=run.id)
    yield run
    drive(run)
    assert run.wake_at is None
    yield run
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    yield run


def serves(_: Start) -> Iterator[AgentRun]:
    """Calls of an agent that runs elsewhere."""
    cases = {"called": (NEVER, ["one", "two"]), "lost": (NEVER, [LOST]), "held": (Approve(), [])}
    for key, (policy, answers) in cases.items():
        with registry.isolated_registry():
            scripted_tool(*answers, effect=EffectType.NON_IDEMPOTENT_WRITE, approval_policy=policy)
            call = send(key, thread=key)
            yield run_of(call)
            yield carry_out(call)
            yield carry_out_when_due(call)
            yield run_of(send(f"{key} again", thread=key, amount=2))
            yield carry_out_when_due(call)


def test_the_longest_call_that_a_tool_may_make_holds_nothing_for_too_long(start: Start) -> None:
    seen: list[Any] = []

    def look_around(call: Any) -> str:
        seen.extend(find_stuck(most=10))
        return "paid"

    scripted_tool(look_around, seconds=LONGEST_TIMEOUT.total_seconds())
    run = start(decider=call_once(), tools=("pay",))
    assert not any(found.is_serious() for found in check_tools())
    drive(run)
    assert (run.state, seen) == (RunState.COMPLETED, [])


def test_a_run_that_somebody_holds_is_not_stuck_before_the_lease_is_over(start: Start) -> None:
    run = nobody_asked(start)
    assert [one.run_id for one in find_stuck(most=10)] == [run.id]
    assert claim(run_id=run.id, owner="person", even_if_not_due=True)
    assert find_stuck(most=10) == []
    expire_lease(run)
    assert [one.run_id for one in find_stuck(most=10)] == [run.id]


def test_no_more_are_listed_than_were_asked_for_and_all_are_counted(start: Start) -> None:
    first = nobody_asked(start)
    question_ended(start)
    assert [one.run_id for one in find_stuck(most=1)] == [first.id]
    assert sum(count_stuck().values()) == 2


def test_a_worker_looks_again_at_a_stuck_run_that_was_paused_and_resumed(start: Start) -> None:
    run = signal_unheard(start)
    pause_run(actor=operator(), run_id=run.id)
    resume_run(actor=operator(), run_id=run.id)
    drive(run)
    assert (run.state, find_stuck(most=1)) == (RunState.COMPLETED, [])


# It asks whether all migrations are applied, also those of users.
@pytest.mark.django_db(transaction=True)
def test_doctor_names_stuck_runs_and_what_has_them_looked_at(start: Start) -> None:
    def said() -> Finding:
        [found] = [finding for finding in examine() if finding.name == "stuck runs"]
        return found

    assert said().level == "ok"
    run = nobody_asked(start)
    found = said()
    assert found.level == "warning"
    assert f"{run.id} ({run.agent}) {WORDS[Why.NOBODY_ASKED]}" in found.detail
    assert "resume_run" in found.fix

"""A fork goes on from what a run had reached, and repeats none of it."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now

from runs import CallTools, Context, Decision, Finish, ToolCall, WaitFor
from runs.access import Actor
from runs.agents import forget_agents
from runs.commands import Started, cancel_run, compensate_run, fork_run, retry_run
from runs.errors import AlreadyCorrected, InvalidInput, KeyReused, NotPermitted, UnknownAgent
from runs.models import AgentRun, Approval
from runs.signals import signal_run
from tests.database.controlling import (
    ANN,
    READER,
    as_it_stands,
    asked_of,
    failed,
    pay_and_ship,
)
from tests.database.gating import Start
from tests.database.kit import ON_DATABASE, ask, drive, run_edges, scripted_tool
from tools import Approve, EffectType, Rejected

pytestmark = ON_DATABASE


def _fork(run: AgentRun, step: Any, **given: Any) -> Started:
    return fork_run(actor=ANN, run_id=run.id, step=step, **given)


def test_a_fork_is_a_ready_run_that_names_what_it_inherits(start: Start) -> None:
    run, _ = failed(start)
    AgentRun.objects.filter(id=run.id).update(priority=7)
    before = as_it_stands(run)
    fork = _fork(run, 1).run
    assert (fork.state, fork.agent, fork.step_number, fork.priority) == ("READY", run.agent, 0, 7)
    assert (fork.forked_from_id, fork.forked_at_step) == (run.id, 1)
    assert (fork.lineage, fork.inherited_steps, fork.voided_steps) == (run.id, 1, 0)
    assert (fork.parent_id, fork.depth, fork.budget) == (None, 0, None)
    assert ask("SELECT wake_at <= now() FROM runs_agentrun WHERE id = %s", fork.id)
    assert run_edges(fork) == ["CREATE"]
    assert as_it_stands(run) == before
    assert asked_of(run) == [("fork", "ann")]
    assert run.requests.get().details == {"fork": str(fork.id), "step": 1}


def test_what_is_not_given_is_the_origins(start: Start) -> None:
    run = start(
        decider=lambda context: Finish(1), objective="pay", input={"a": 1}, labels={"team": "a"}
    )
    same, other = (
        _fork(run, 0).run,
        _fork(run, 0, objective="ship", input=[2], labels={"team": "b"}).run,
    )
    assert (same.objective, same.input, same.labels) == ("pay", {"a": 1}, {"team": "a"})
    assert (other.objective, other.input, other.labels) == ("ship", [2], {"team": "b"})


def test_a_fork_of_a_fork_is_of_one_lineage_and_counts_all_that_it_inherits(start: Start) -> None:
    run, _ = failed(start, *_refusals(3))
    fork = _fork(run, 1).run
    drive(fork)
    second = _fork(fork, 1).run
    assert (second.lineage, second.forked_from_id) == (run.id, fork.id)
    assert second.inherited_steps == 2


def test_steps_that_a_retry_took_back_are_no_place_to_fork_from(start: Start) -> None:
    run, _ = failed(start)
    retry_run(actor=ANN, run_id=run.id)
    with pytest.raises(InvalidInput, match="step") as refused:
        _fork(run, 2)
    assert refused.value.fix == "Give 0 (the beginning) or a closed step: 1"
    assert _fork(run, 1).run.inherited_steps == 1


@pytest.mark.parametrize("step", [4, -1, True, 1.0, "1", None, 2**70])
def test_a_step_that_is_not_closed_is_refused_with_those_that_are(start: Start, step: Any) -> None:
    run, _ = failed(start)
    with pytest.raises(InvalidInput, match="1, 2, 3") as refused:
        _fork(run, step)
    assert refused.value.field == "step"
    assert asked_of(run) == []
    assert AgentRun.objects.count() == 1


def test_a_step_that_is_still_open_is_refused(start: Start) -> None:
    scripted_tool(7, approval_policy=Approve())
    run = start(decider=lambda context: CallTools(ToolCall("pay")), tools=("pay",))
    drive(run)
    assert run.step_number == 1
    with pytest.raises(InvalidInput, match="beginning"):
        _fork(run, 1)


def test_a_run_of_many_steps_is_refused_with_its_newest_ones(start: Start) -> None:
    scripted_tool(*range(30), name="look", effect=EffectType.READ)

    def decide(context: Context) -> Decision:
        return Finish() if context.step_number > 30 else CallTools(ToolCall("look"))

    run = start(decider=decide, tools=("look",))
    drive(run)
    with pytest.raises(InvalidInput, match=r"earlier ones, 12, 13") as refused:
        _fork(run, 99)
    assert len(str(refused.value)) < 300


def test_one_key_is_one_fork(start: Start) -> None:
    run, _ = failed(start)
    first, again = (_fork(run, 1, idempotency_key="k") for _ in range(2))
    assert (first.replayed, again.replayed) == (False, True)
    assert first.run.id == again.run.id
    for other in ({"step": 0}, {"objective": "other"}, {"input": 1}, {"labels": {"a": "b"}}):
        with pytest.raises(KeyReused):
            _fork(run, **{"step": 1, "idempotency_key": "k", **other})
    assert asked_of(run) == [("fork", "ann")]


def test_four_forks_at_once_under_one_key_are_one(start: Start) -> None:
    run, _ = failed(start)
    together = threading.Barrier(4)
    started: list[Started] = []
    wrong: list[Exception] = []

    def request() -> None:
        together.wait(timeout=20)
        try:
            started.append(_fork(run, 1, idempotency_key="k"))
        except Exception as error:
            wrong.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=request) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len({one.run.id for one in started}) == 1
    assert [one.replayed for one in started].count(False) == 1
    assert AgentRun.objects.filter(forked_from=run).count() == 1


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"objective": "a\0b"}, "objective"),
        ({"input": {"x": float("nan")}}, "input.x"),
        ({"labels": {"a": 1}}, "labels.a"),
        ({"idempotency_key": ""}, "Idempotency-Key"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_leaves_no_trace(
    start: Start, given: dict[str, Any], field: str
) -> None:
    run, _ = failed(start)
    with pytest.raises(InvalidInput) as refused:
        _fork(run, 1, **given)
    assert refused.value.field == field
    assert (AgentRun.objects.count(), asked_of(run)) == (1, [])


def test_nobody_forks_without_the_scope_or_an_agent_that_is_gone(start: Start) -> None:
    run, _ = failed(start)
    with pytest.raises(NotPermitted):
        fork_run(actor=READER, run_id=run.id, step=1)
    forget_agents([run.agent])
    with pytest.raises(UnknownAgent):
        _fork(run, 1)
    assert AgentRun.objects.count() == 1


# -- What the worker then does ------------------------------------------------------------------


def test_a_fork_knows_what_its_origin_did_and_does_not_do_it_again(start: Start) -> None:
    run, ship = failed(start, *_refusals(1), {"id": "sh_1"})
    fork = _fork(run, 1).run
    drive(fork)
    assert (fork.state, fork.result) == ("COMPLETED", "shipped")
    assert list(fork.operations.values_list("tool", flat=True)) == ["ship"]
    assert len(ship.calls) == 2


def test_a_fork_from_the_beginning_repeats_no_effect_of_its_origin(start: Start) -> None:
    pay = scripted_tool({"id": "re_1"}, name="pay")
    scripted_tool({"id": "sh_1"}, name="ship")
    run = start(decider=pay_and_ship, tools=("pay", "ship"))
    drive(run)
    fork = _fork(run, 0).run
    drive(fork)
    assert fork.state == "COMPLETED"
    assert len(pay.calls) == 1
    assert fork.operations.get(tool="pay").repeats_id == run.operations.get(tool="pay").id


def test_what_was_signed_for_the_origin_is_asked_about_anew(start: Start) -> None:
    scripted_tool({"id": "re_1"}, name="pay")
    scripted_tool({"id": "sh_1"}, name="ship", approval_policy=Approve())
    run = start(decider=pay_and_ship, tools=("pay", "ship"))
    drive(run)
    assert run.state == "WAITING_FOR_APPROVAL"
    later = Now() + timedelta(hours=1)
    Approval.objects.filter(run=run).update(status="approved", decided_at=Now(), execute_by=later)
    cancel_run(actor=ANN, run_id=run.id)
    drive(run)
    fork = _fork(run, 1).run
    drive(fork)
    assert (run.state, fork.state) == ("CANCELLED", "WAITING_FOR_APPROVAL")
    assert Approval.objects.filter(run=fork).count() == 1


def test_a_fork_belongs_to_who_asked_for_it(start: Start) -> None:
    run, _ = failed(start)
    bob = Actor(name="bob", scopes=ANN.scopes)
    fork = fork_run(actor=bob, run_id=run.id, step=1).run
    assert fork.created_by == "bob"


def _refusals(number: int) -> list[Exception]:
    return [Rejected("no") for _ in range(number)]


def test_what_was_taken_back_is_not_inherited_as_done(start: Start) -> None:
    scripted_tool("undone", name="unpay")
    scripted_tool({"id": "re_1"}, name="pay", compensation_handler="unpay")
    scripted_tool(Rejected("no van"), name="ship")
    run = start(decider=pay_and_ship, tools=("pay", "ship"), on_failure="compensate")
    for _ in range(3):
        drive(run)
    assert (run.state, run.compensation_ending) == ("FAILED", "FAILED")
    with pytest.raises(AlreadyCorrected):
        _fork(run, 1)
    again = _fork(run, 0).run
    assert again.inherited_steps == 0


def test_what_is_taken_back_after_the_fork_is_no_fact_of_it_any_more(start: Start) -> None:
    scripted_tool("undone", name="unpay")
    scripted_tool({"id": "re_1"}, name="pay", compensation_handler="unpay")
    seen: list[Context] = []

    def decide(context: Context) -> Decision:
        seen.append(context)
        return CallTools(ToolCall("pay")) if context.position == 1 else Finish()

    run = start(decider=decide, tools=("pay",))
    drive(run)
    fork = _fork(run, 1).run
    compensate_run(actor=ANN, run_id=run.id)
    drive(run)
    assert run.state == "CANCELLED"
    drive(fork)
    (inherited,) = seen[-1].observations
    assert (inherited.corrected, seen[-1].facts) == (True, ())


def test_a_repeat_stands_and_falls_with_the_effect_that_answered_it(start: Start) -> None:
    scripted_tool("undone", name="unpay")
    pay = scripted_tool({"id": "re_1"}, name="pay", compensation_handler="unpay")
    seen: list[Context] = []

    def decide(context: Context) -> Decision:
        seen.append(context)
        if context.position == 1:
            return CallTools(ToolCall("pay"))
        return WaitFor("go") if context.position == 2 else Finish()

    run = start(decider=decide, tools=("pay",))
    drive(run)
    fork = _fork(run, 0).run
    drive(fork)
    assert (fork.state, len(pay.calls)) == ("WAITING", 1)
    compensate_run(actor=ANN, run_id=run.id)
    drive(run)
    drive(run)
    signal_run(actor=ANN, run_id=fork.id, name="go", event_id="e1")
    drive(fork)
    (repeat, _) = seen[-1].observations
    assert (repeat.corrected, seen[-1].facts) == (True, ())

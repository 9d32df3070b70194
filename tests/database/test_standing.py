"""How a run stands is read from its rows, at any time; what they do not show proves nothing."""

from collections.abc import Callable
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import Ask, CallTools, Context, Decision, Delegate, Finish, ToolCall, WaitFor
from runs.access import operator
from runs.artifact import Artifact, Fact
from runs.commands import fork_run, retry_run
from runs.corrections import correct_by_hand
from runs.handoff_building import build
from runs.handoff_checks import find_problems
from runs.hiding import Hider
from runs.models import AgentRun, Approval, Incident, Question, ToolObservation, ToolOperation
from runs.signals import signal_run
from runs.standing import Item, Standing, load_standing
from tests.database.controlling import ANN, failed
from tests.database.delegating import child_of, delegate, worker
from tests.database.gating import Start, held
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    call_once,
    drive,
    make_due,
    operation_of,
    scripted_tool,
)
from tools import EffectType

pytestmark = ON_DATABASE

LoseAnswer = Callable[..., tuple[AgentRun, Any]]


def stand(run: AgentRun, *operations: str, steps: tuple[int, ...] = ()) -> Standing:
    run.refresh_from_db()
    return load_standing(run, constraints=("be kind",), operations=operations, steps=steps)


def ids(run: AgentRun) -> list[tuple[str, str]]:
    return [(item.id, item.status) for item in stand(run).items]


def fact(**shown_by: Any) -> Artifact:
    return Artifact(facts=(Fact(text="it was paid", **shown_by),), constraints=("be kind",))


def test_an_unknown_operation_is_not_settled_and_no_handoff_may_omit_it(lose: LoseAnswer) -> None:
    run, _ = lose()
    unknown = operation_of(run)
    assert ids(run) == [(unknown.id, "UNKNOWN")]
    (problem,) = find_problems(Artifact(constraints=("be kind",)), stand(run))
    assert f"{unknown.id} (pay of step 1, UNKNOWN) is missing" in problem
    assert find_problems(build(None, (), stand(run), hider=Hider(())), stand(run)) == []


def test_an_unknown_operation_proves_nothing(lose: LoseAnswer) -> None:
    run, _ = lose()
    unknown = operation_of(run).id
    standing = stand(run, unknown)
    assert standing.proofs == {}
    built = build(fact(operation=unknown), (), standing, hider=Hider(()))
    assert built.facts == ()
    claims = built.model_copy(update={"facts": fact(operation=unknown).facts})
    assert "is no committed operation of this run" in find_problems(claims, standing)[0]


def test_a_held_operation_and_the_request_for_a_signature_are_both_named(start: Start) -> None:
    run, _ = held(start)
    assert ids(run) == [
        (operation_of(run).id, "AWAITING_APPROVAL"),
        (str(Approval.objects.get(run=run).pk), "pending"),
    ]


def test_an_open_question_is_named(start: Start) -> None:
    run = start(decider=lambda context: Ask("Which one?", {"type": "string"}))
    drive(run)
    question = Question.objects.get(run=run)
    assert stand(run).items == (Item(str(question.pk), "open", "Which one?", "an answer"),)


def test_a_run_that_is_waited_for_is_named_with_its_unknown_effects(start: Start) -> None:
    scripted_tool(LOST)
    worker(call_once(), tools=("pay",))
    run = start(decider=delegate(Delegate("helper", "pay", {})))
    drive(run)
    child = child_of(run)
    drive(child)
    begun = ToolOperation.objects.get(run=run)
    assert ids(run) == [(begun.id, "RUNNING"), (operation_of(child).id, "UNKNOWN")]
    assert stand(run).items[0].due == "its end; it is TOOL_STATUS_UNKNOWN"
    # What the child must know is its own.
    assert ids(child) == [(operation_of(child).id, "UNKNOWN")]


def test_what_is_watched_and_what_went_wrong_is_named_after_its_step(start: Start) -> None:
    scripted_tool("paid")
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    paid = operation_of(run)
    assert ids(run) == []
    ToolOperation.objects.filter(id=paid.id).update(next_watch_at=run.created_at)
    incident = Incident.objects.create(run=run, operation=paid, kind=Incident.Kind.LATE_COMMIT)
    assert ids(run) == [(paid.id, "COMMITTED"), (f"incident {incident.pk}", "LATE_COMMIT")]


def test_a_committed_operation_is_proven_by_its_first_observation(start: Start) -> None:
    scripted_tool("paid")
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    paid = operation_of(run)
    proof = ToolObservation.objects.get(operation=paid)
    ToolObservation.objects.create(
        operation=paid, run=run, source="person", verdict="committed", attempt=1, fence_token=1
    )
    assert stand(run, paid.id, "op_invented").proofs == {paid.id: proof.pk}


def test_a_transactional_effect_and_a_repeat_are_proven_too(start: Start) -> None:
    scripted_tool("paid", effect=EffectType.TRANSACTIONAL, provider=None)
    run = start(decider=call_once(ToolCall("pay"), ToolCall("pay")), tools=("pay",))
    drive(run)
    first, repeat = operation_of(run), operation_of(run, ordinal=1)
    assert repeat.repeats_id == first.id
    proof = ToolObservation.objects.get(operation=first).pk
    assert stand(run, first.id, repeat.id).proofs == {first.id: proof, repeat.id: proof}


def test_what_another_run_did_proves_nothing(start: Start) -> None:
    scripted_tool("paid", "paid")
    runs = [start(decider=call_once(), tools=("pay",)) for _ in range(2)]
    for run in runs:
        drive(run)
    assert stand(runs[0], operation_of(runs[1]).id).proofs == {}


def test_what_was_taken_back_proves_nothing_any_more(start: Start) -> None:
    scripted_tool("paid")
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    paid = operation_of(run)
    correct_by_hand(actor=operator(), operation_id=paid.id, evidence="paid back in cash")
    assert stand(run, paid.id).proofs == {}


def test_another_runs_end_is_a_proof_of_its_own(start: Start) -> None:
    worker(lambda context: Finish(1))
    run = start(decider=delegate(Delegate("helper", "do", {})))
    drive(run)
    drive(child_of(run))
    make_due(run)
    drive(run)
    begun = ToolOperation.objects.get(run=run)
    assert stand(run, begun.id).proofs == {begun.id: None}


def test_a_fork_is_given_the_proofs_of_what_it_inherits_alone(start: Start) -> None:
    run, _ = failed(start)
    paid, refused = ToolOperation.objects.filter(run=run).order_by("step_number")
    inherits = fork_run(actor=ANN, run_id=run.id, step=1).run
    begins = fork_run(actor=ANN, run_id=run.id, step=0).run
    assert stand(inherits, paid.id, refused.id).proofs.keys() == {paid.id}
    assert stand(begins, paid.id).proofs == {}


def test_a_step_that_was_taken_back_proves_nothing_but_to_a_fork_made_before(start: Start) -> None:
    scripted_tool("seen", effect=EffectType.READ)
    run = start(decider=_look_then_fail, tools=("pay",))
    drive(run)
    seen = operation_of(run).id
    fork = fork_run(actor=ANN, run_id=run.id, step=1).run
    assert stand(run, seen).proofs.keys() == {seen}
    retry_run(actor=ANN, run_id=run.id)
    assert stand(run, seen).proofs == {}
    assert stand(fork, seen).proofs.keys() == {seen}


def _look_then_fail(context: Context) -> Decision:
    from runs import Fail

    return Fail("no") if context.last else CallTools(ToolCall("pay"))


def test_only_a_step_in_which_something_came_told_something(start: Start) -> None:
    def decide(context: Context) -> Decision:
        match context.step_number:
            case 1:
                return WaitFor("go")
            case 2:
                return CallTools(ToolCall("pay"))
        return Finish(1)

    scripted_tool("paid")
    run = start(decider=decide, tools=("pay",))
    drive(run)
    signal_run(actor=ANN, run_id=run.id, name="go", payload=1, event_id="e")
    drive(run)
    standing = stand(run, steps=(1, 2, 3))
    assert standing.told_steps == {1}
    assert find_problems(fact(step=1), standing) == []
    assert "no signal and no answer came" in find_problems(fact(step=2), standing)[0]


def test_it_costs_the_same_however_much_there_is(start: Start) -> None:
    scripted_tool(*(["paid"] * 9), repeatable=True)
    run = start(decider=call_once(*[ToolCall("pay")] * 8), tools=("pay",))
    drive(run)
    names = list(ToolOperation.objects.filter(run=run).values_list("id", flat=True))
    counts = []
    for some in (names[:1], names):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert len(stand(run, *some, steps=(1,)).proofs) == len(some)
        counts.append(len(queries))
    # With the run's own row, read again.
    assert counts[0] == counts[1] <= 9

"""An agent hands over: the run that goes on for it begins with what the rows prove."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models.function import FunctionModel

from runs import (
    Agent,
    CallTools,
    Context,
    Decision,
    Delegate,
    DelegateAll,
    Finish,
    Llm,
    Script,
    ToolCall,
)
from runs.access import operator
from runs.agents import forget_agents
from runs.artifact import Artifact
from runs.cases import replay
from runs.checks_llm import check_llms
from runs.commands import fork_run
from runs.corrections import correct_by_hand
from runs.events import Name
from runs.handoff_checks import find_problems
from runs.models import AgentRun, Handoff, Incident, ToolObservation, ToolOperation
from runs.standing import find_items, load_standing
from tests.database.casing import to_case
from tests.database.delegating import child_of, children_of, worker
from tests.database.handing import (
    Answer,
    Mind,
    Seen,
    handoffs,
    look_and_pay,
    look_on,
    requests,
    right,
    start_llm,
)
from tests.database.kit import ON_DATABASE, dies_at, drive, expire_lease
from tools import Call, EffectType, tool

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


@pytest.fixture(autouse=True)
def tools() -> None:
    look_and_pay()


def pay_and_hand_over(*others: Delegate) -> Callable[[Context], Decision]:
    """Pay, then have others go on, and say what they came to."""

    def decide(context: Context) -> Decision:
        if context.step_number == 1:
            return CallTools(ToolCall("pay", amount=7))
        if context.step_number == 2:
            return others[0] if len(others) == 1 else DelegateAll(*others)
        return Finish([one.result for one in context.observations])

    return decide


def tell_handoff(context: Context) -> Decision:
    return Finish({"handoff": context.handoff, "constraints": list(context.constraints)})


def start_handing_over(start: Start, *others: Delegate, **options: Any) -> AgentRun:
    given = {"tools": ("pay",), "constraints": ("pay once",), "objective": "be quits"} | options
    run = start(decider=pay_and_hand_over(*others), **given)
    drive(run)
    return run


HELPER = Delegate("helper", "go on", hand_over=True)


def llm_worker(mind: Mind, **options: Any) -> None:
    llm = Llm(FunctionModel(mind.answer, model_name="mind"), window_tokens=300)
    worker(llm, tools=("look", "pay"), **options)


def payment(run: AgentRun) -> ToolOperation:
    return ToolOperation.objects.get(run=run, tool="pay")


def test_a_run_that_is_handed_over_to_begins_with_what_is_proven(start: Start) -> None:
    worker(tell_handoff, constraints=("be polite",))
    run = start_handing_over(start, HELPER)
    drive(child := child_of(run))
    (stored,) = handoffs(child)
    assert (stored.number, stored.reason, stored.through_step) == (1, "delegated", 0)
    assert (stored.written_by, stored.repairs) == ("rows", 0)
    told = child.result["handoff"]
    paid = payment(run)
    proof = ToolObservation.objects.get(operation=paid, verdict="committed")
    (fact,) = told["facts"]
    assert (fact["operation"], fact["observation"]) == (paid.id, proof.pk)
    assert fact["text"].startswith(f"{run.agent}: step 1: pay")
    assert "be quits" in told["notes"]
    # What the run was started for binds whoever goes on.
    assert told["constraints"] == ["pay once"]
    assert child.result["constraints"] == ["be polite", "pay once"]


def test_what_is_open_where_it_comes_from_is_in_it_as_it_stands(start: Start) -> None:
    worker(Script(Finish(1)))

    def decide(context: Context) -> Decision:
        if context.step_number == 2:
            Incident.objects.create(run=run, operation=payment(run), kind=Incident.Kind.DUPLICATE)
        return pay_and_hand_over(HELPER, Delegate("helper", "beside"))(context)

    run = start(decider=decide, tools=("pay",), constraints=("pay once",))
    drive(run)
    child, beside = children_of(run)
    (stored,) = handoffs(child)
    assert handoffs(beside) == []
    artifact = Artifact.model_validate(stored.body)
    # Both runs and the incident, with the status that each has in the rows from then on.
    items = find_items(run.id, step_number=run.step_number)
    assert len(items) == 3
    standing = load_standing(run, constraints=("pay once",), operations=artifact.named_operations)
    assert find_problems(artifact, standing) == []


@pytest.mark.parametrize("moment", [Name.COMMIT_STARTING, Name.COMMIT_DONE], ids=str)
def test_after_a_crash_at_its_commit_it_is_there_once(start: Start, moment: Name) -> None:
    worker(tell_handoff)
    run = start(decider=pay_and_hand_over(HELPER), tools=("pay",))
    # The fourth: the decision, what it starts and the handoff are one.
    with dies_at(moment, nth=4):
        drive(run)
    expire_lease(run)
    drive(run)
    (child,) = AgentRun.objects.filter(parent=run)
    (stored,) = handoffs(child)
    with dies_at(Name.DECIDER_STARTING):
        drive(child)
    expire_lease(child)
    drive(child)
    assert child.result["handoff"]["facts"] == stored.body["facts"]
    assert handoffs(child) == [stored]


def test_nothing_is_handed_over_unasked(start: Start) -> None:
    worker(tell_handoff)
    run = start_handing_over(start, Delegate("helper", "go on"))
    drive(child := child_of(run))
    assert child.result == {"handoff": None, "constraints": []}
    assert not Handoff.objects.exists()


def test_a_fact_that_was_handed_over_stays_one_in_the_handoffs_that_come_after(
    start: Start,
) -> None:
    def keep(seen: Seen) -> Answer:
        facts = [{"text": "7 are paid", "operation": seen.handoff["facts"][0]["operation"]}]
        return right(seen, facts=facts, done=["looked"])

    mind = Mind(look_on(12), keep)
    llm_worker(mind, constraints=("be polite",))
    run = start_handing_over(start, HELPER)
    drive(child := child_of(run))
    assert child.state == "COMPLETED", child.error
    first, *later = handoffs(child)
    assert later
    for one in later:
        assert (one.reason, one.repairs) == ("window", 0)
        assert [fact["operation"] for fact in one.body["facts"]] == [payment(run).id]
        assert one.body["facts"][0]["observation"] == first.body["facts"][0]["observation"]
        assert one.body["constraints"] == ["be polite", "pay once"]


def test_an_operation_that_was_not_handed_over_proves_nothing(start: Start) -> None:
    """Of the other run only what its handoff names as a fact counts: a read is none."""

    def decide(context: Context) -> Decision:
        if context.step_number == 1:
            return CallTools(ToolCall("look", n=1), ToolCall("pay", amount=7))
        return HELPER

    def lie(seen: Seen) -> Answer:
        looked = ToolOperation.objects.get(run=run, tool="look")
        return right(seen, facts=[{"text": "1 is 1", "operation": looked.id}])

    llm_worker(Mind(look_on(8), lie))
    run = start(decider=decide, tools=("look", "pay"))
    drive(run)
    drive(child := child_of(run))
    assert requests(child)[:2] == [("unusable", "bad_handoff")] * 2
    later = handoffs(child)[1]
    # The one that is built in its place keeps what was handed over.
    assert later.written_by == "rows"
    assert [fact["operation"] for fact in later.body["facts"]] == [payment(run).id]


def test_a_fact_that_is_corrected_where_it_comes_from_holds_no_more(start: Start) -> None:
    mind = Mind(look_on(8), lambda seen: [])
    llm_worker(mind)
    run = start_handing_over(start, HELPER)
    paid = payment(run)
    correct_by_hand(actor=operator(), operation_id=paid.id, evidence="I took it back myself")
    drive(child := child_of(run))
    assert mind.seen[0].state["handed_facts_that_hold_no_more"] == [paid.id]
    assert handoffs(child)[1].body["facts"] == []


def test_who_was_handed_over_to_hands_over_all_of_it(start: Start) -> None:
    worker(tell_handoff, name="last", constraints=("be quick",))
    worker(
        pay_and_hand_over(Delegate("last", "end it", hand_over=True)),
        tools=("pay",),
        constraints=("be polite",),
    )
    run = start_handing_over(start, HELPER)
    drive(child := child_of(run))
    drive(last := child_of(child))
    facts = [fact["operation"] for fact in last.result["handoff"]["facts"]]
    assert facts == [payment(run).id, payment(child).id]
    assert last.result["constraints"] == ["be quick", "be polite", "pay once"]


def test_a_fork_begins_with_what_its_origin_was_handed(start: Start) -> None:
    worker(Script(ToolCall("look", n=1), Finish(1)), tools=("look",))
    run = start_handing_over(start, HELPER)
    drive(child := child_of(run))
    forget_agents(["helper"])
    worker(tell_handoff, tools=("look",))
    fork = fork_run(actor=operator(), run_id=child.id, step=1).run
    drive(fork)
    assert fork.result["handoff"]["facts"][0]["operation"] == payment(run).id
    assert fork.result["constraints"] == ["pay once"]


def test_a_case_of_such_a_run_begins_with_what_it_was_handed(start: Start, tmp_path: Path) -> None:
    worker(tell_handoff, constraints=("be polite",))
    run = start_handing_over(start, HELPER)
    drive(child := child_of(run))
    replayed = replay(to_case(child, tmp_path))
    assert replayed.matches, str(replayed)
    assert replayed.steps[0].decided["result"] == child.result  # type: ignore[index]


def test_what_is_secret_is_not_handed_over(start: Start) -> None:
    @tool(effect_type=EffectType.IDEMPOTENT_WRITE, sensitive=("card",))
    def charge(call: Call, card: str) -> str:
        return f"charged {card}"

    def decide(context: Context) -> Decision:
        return HELPER if context.last else CallTools(ToolCall("charge", card="4111-2222"))

    worker(Script(Finish(1)))
    run = start(decider=decide, tools=("charge",), objective="charge 4111-2222")
    drive(run)
    (stored,) = handoffs(child_of(run))
    assert "charge" in str(stored.body["facts"])
    assert "4111" not in str({**stored.body, "objective": ""})


# -- An llm delegates -----------------------------------------------------------


def delegating(*said: dict[str, Any]) -> Mind:
    """Answers with each of these in turn, then with what came of it."""
    left = list(said)

    def decide(seen: Seen) -> Answer:
        return [("delegate_to", left.pop(0))] if left else str(seen.told)

    return Mind(decide)


def test_an_llm_has_an_agent_that_it_may_delegate_to_go_on_for_it() -> None:
    worker(lambda context: Finish([context.objective, context.input, bool(context.handoff)]))
    told = {"agent": "helper", "objective": "add", "input": {"a": 1}, "hand_over": True}
    run = start_llm(mind := delegating(told), delegates=("helper",))
    drive(run)
    drive(child_of(run))
    drive(run)
    assert run.state == "COMPLETED", run.error
    assert "delegate_to" in mind.seen[0].tools
    (came,) = mind.seen[-1].told
    assert (came["kind"], came["name"]) == ("child", "helper")
    assert came["data"] == ["add", {"a": 1}, True]


@pytest.mark.parametrize(
    "told",
    [
        {"agent": "treasurer", "objective": "pay"},
        {"agent": ["helper"], "objective": "pay"},
        {"agent": "helper"},
        {"agent": "helper", "objective": "pay", "input": "all"},
        {"agent": "helper", "objective": "pay", "hand_over": "yes"},
    ],
    ids=str,
)
def test_what_names_no_such_agent_or_does_not_fit_starts_nobody(told: dict[str, Any]) -> None:
    worker(Script(Finish(1)))
    worker(Script(Finish(1)), name="treasurer")
    run = start_llm(delegating(told), delegates=("helper",))
    drive(run)
    assert requests(run, "decide")[0] == ("unusable", "malformed")
    assert not AgentRun.objects.filter(parent=run).exists()


def test_an_llm_that_may_delegate_to_nobody_is_not_offered_it() -> None:
    worker(Script(Finish(1)))
    run = start_llm(mind := delegating({"agent": "helper", "objective": "pay"}))
    drive(run)
    assert "delegate_to" not in mind.seen[0].tools
    # As any tool that it was not offered.
    assert mind.seen[-1].results[0][1]["never_sent"] == "invalid"
    assert not AgentRun.objects.filter(parent=run).exists()


def test_whom_it_delegates_to_is_part_of_an_agents_version_and_checked_at_start() -> None:
    alone = Agent(name="clerk", decider=Llm("groq:x"))
    before = alone.version
    forget_agents(["clerk"])
    assert Agent(name="clerk", decider=Llm("groq:x", delegates="helper")).version != before
    assert [one.id for one in check_llms()] == ["runs.E021"]
    worker(Script(Finish(1)))
    assert check_llms() == []

"""A full window is handed off: by the llm if the rows agree with it, and from the rows if not."""

from typing import Any

import pytest
from pydantic_ai.exceptions import ModelContextWindowExceededError, ModelHTTPError

from runs import Agent, CallTools, Context, Decision, Finish, ToolCall
from runs.access import operator
from runs.agents import get_agent
from runs.commands import start_run
from runs.corrections import correct_by_hand
from runs.engine import Slice, advance
from runs.handoffs import rebuild
from runs.lease import claim
from runs.loading import begin
from runs.models import AgentRun, Incident, LlmRequest, ToolObservation, ToolOperation
from tests.database.handing import (
    SMALL,
    Answer,
    Mind,
    Seen,
    handoffs,
    look_and_pay,
    look_on,
    requests,
    right,
    start_llm,
    steps_seen,
)
from tests.database.kit import (
    ON_DATABASE,
    Died,
    change,
    drive,
    drive_when_due,
    expire_lease,
)

pytestmark = ON_DATABASE


@pytest.fixture(autouse=True)
def tools() -> None:
    look_and_pay()


def open_incident(run: AgentRun) -> Incident:
    """What nobody has settled of a step that has closed."""
    operation = ToolOperation.objects.filter(run=run).earliest("step_number")
    return Incident.objects.create(run=run, operation=operation, kind=Incident.Kind.DUPLICATE)


def test_a_run_goes_on_from_the_handoff_that_its_llm_wrote() -> None:
    mind = Mind(look_on(12), lambda seen: right(seen, done=["looked"], notes="at what?"))
    run = start_llm(mind, constraints=("only look",), objective="look around", **SMALL)
    drive(run)
    assert (run.state, run.result) == ("COMPLETED", "seen it all")
    first = handoffs(run)[0]
    assert (first.number, first.reason, first.repairs) == (1, "window", 0)
    assert "mind" in first.written_by
    assert (first.body["objective"], first.body["constraints"]) == ("look around", ["only look"])
    after = next(seen for seen in mind.decisions if seen.handoff)
    assert (after.handoff["number"], after.handoff["notes"]) == (1, "at what?")
    # Of the events only the newest are left, and none is lost in between.
    step = after.state["step"]
    assert first.through_step == step - 1
    assert steps_seen(after) == list(range(first.body["covers_step"] + 1, step))
    assert 0 < len(steps_seen(after)) < step - 1


def test_a_fact_is_stored_with_the_observation_that_proves_it() -> None:
    def decide(seen: Seen) -> Answer:
        return [("pay", {"amount": 7})] if seen.state["step"] == 2 else look_on(12)(seen)

    def hand_off(seen: Seen) -> Answer:
        (fact,) = seen.state["facts"]
        return right(seen, facts=[{"text": "7 were paid", "operation": fact["operation"]}])

    run = start_llm(Mind(decide, hand_off), **SMALL)
    drive(run)
    (fact,) = handoffs(run)[0].body["facts"]
    proof = ToolObservation.objects.get(operation_id=fact["operation"])
    assert (proof.operation.tool, fact["observation"]) == ("pay", proof.pk)


def test_what_it_leaves_out_of_what_was_done_is_filled_in_from_the_rows() -> None:
    def decide(seen: Seen) -> Answer:
        return [("pay", {"amount": 7})] if seen.state["step"] == 1 else look_on(13)(seen)

    mind = Mind(decide, lambda seen: {})
    run = start_llm(mind, **SMALL)
    drive(run)
    paid = ToolOperation.objects.get(run=run, tool="pay")
    proof = ToolObservation.objects.get(operation=paid)
    assert run.state == "COMPLETED"
    assert len(handoffs(run)) > 1
    for stored in handoffs(run):
        assert "mind" in stored.written_by
        (fact,) = stored.body["facts"]
        assert (fact["operation"], fact["observation"]) == (paid.id, proof.pk)
        assert stored.body["done"][0] == 'step 1: pay {"amount":7} COMMITTED: "paid"'
    assert all(paid.id in str([seen.results, seen.handoff]) for seen in mind.decisions[1:])


def test_one_that_omits_what_is_not_settled_is_sent_back_once_with_what_is_wrong() -> None:
    def hand_off(seen: Seen) -> Answer:
        if "your_handoff_was_refused" in seen.state:
            return right(seen)
        return right(seen, open_items=[])

    mind = Mind(look_on(7), hand_off)
    run = start_llm(mind, **SMALL)
    advance(run_id=run.id, owner="worker 1", turn=Slice(steps=2))
    incident = open_incident(run)
    drive(run)
    (stored,) = handoffs(run)
    assert stored.repairs == 1
    assert [item["id"] for item in stored.body["open_items"]] == [f"incident {incident.pk}"]
    assert requests(run) == [("unusable", "bad_handoff"), ("used", "")]
    (told,) = mind.handoffs[1].state["your_handoff_was_refused"]["problems"]
    assert f"incident {incident.pk}" in told
    # It is no answer that the next decision has to hear of.
    assert all("your_answers_that_could_not_be_used" not in seen.state for seen in mind.decisions)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda seen: right(seen, open_items=[]), id="omits"),
        pytest.param(lambda seen: right(seen, facts=[{"text": "it was paid"}]), id="unproven"),
        pytest.param(lambda seen: right(seen, constraints=[]), id="unconstrained"),
        pytest.param(lambda seen: right(seen, done="much"), id="formless"),
        pytest.param(lambda seen: "I would rather go on.", id="prose"),
        pytest.param(lambda seen: [("look", {"n": 1})], id="call"),
        pytest.param(lambda seen: [("hand_off", right(seen))] * 2, id="twice"),
        pytest.param(lambda seen: right(seen, facts=[{"text": "!", "operation": "\0"}]), id="nul"),
        pytest.param(lambda seen: right(seen, facts=[{"text": "!", "step": 2**70}]), id="huge"),
    ],
)
def test_it_is_built_from_the_rows_where_the_llm_fails_twice(answer: Any) -> None:
    mind = Mind(look_on(7), answer)
    run = start_llm(mind, constraints=("only look",), **SMALL)
    advance(run_id=run.id, owner="worker 1", turn=Slice(steps=2))
    incident = open_incident(run)
    drive(run)
    (stored,) = handoffs(run)
    assert (run.state, stored.written_by) == ("COMPLETED", "rows")
    assert requests(run) == [("unusable", "bad_handoff")] * 2
    assert [item["id"] for item in stored.body["open_items"]] == [f"incident {incident.pk}"]
    assert stored.body["constraints"] == ["only look"]
    assert stored.body["done"][0].startswith('step 1: look {"n":1} COMMITTED: {"n":1')
    assert run.failures == 0


def test_it_is_durable_before_anybody_decides_from_it() -> None:
    mind = Mind(look_on(7))
    run = start_llm(mind, **SMALL)
    decided = mind.decide

    def die_after_it(seen: Seen) -> Answer:
        if seen.handoff:
            mind.decide = decided
            raise Died
        return decided(seen)

    mind.decide = die_after_it
    with pytest.raises(BaseException):  # noqa: B017,PT011  it passes through the llm's own loop
        drive(run)
    assert [one.number for one in handoffs(run)] == [1]
    expire_lease(run)
    drive_when_due(run, owner="worker 2")
    assert run.state == "COMPLETED"
    assert len(mind.handoffs) == len(handoffs(run)) == 1
    assert requests(run) == [("used", "")]


def test_a_run_whose_llm_is_away_waits_and_hands_off_later() -> None:
    def away(seen: Seen) -> Answer:
        mind.hand_off = right
        raise ModelHTTPError(503, "mind")

    mind = Mind(look_on(7), away)
    run = start_llm(mind, **SMALL)
    drive(run)
    assert (run.state, handoffs(run)) == ("DECIDING", [])
    assert requests(run) == [("failed", "")]
    drive_when_due(run)
    assert (run.state, len(handoffs(run))) == ("COMPLETED", 1)


def test_a_context_that_was_too_long_is_handed_off_and_goes_on() -> None:
    def decide(seen: Seen) -> Answer:
        if len(seen.results) > 3:
            raise ModelContextWindowExceededError(400, "mind")
        return look_on(9)(seen)

    run = start_llm(Mind(decide), tools=("look",))
    for _ in range(10):
        drive_when_due(run)
    assert run.state == "COMPLETED"
    assert handoffs(run)
    assert ("unusable", "too_long") in requests(run, "decide")


def test_what_it_costs_is_spent_like_any_request() -> None:
    run = start_llm(Mind(look_on(7)), **SMALL)
    drive(run)
    used = LlmRequest.objects.filter(run=run).values_list("input_tokens", "output_tokens")
    assert len(handoffs(run)) == 1
    assert run.spent_tokens == sum(read + written for read, written in used) > 0


def test_what_a_handoff_covers_is_not_read_again() -> None:
    mind = Mind(look_on(12))
    run = start_llm(mind, **SMALL)
    while run.state != "COMPLETED":
        # Every step by another worker, who knows nothing but the rows.
        advance(run_id=run.id, owner="worker 1", turn=Slice(steps=1))
        run.refresh_from_db()
    whole = Mind(look_on(12))
    at_once = start_llm(whole, **SMALL)
    drive(at_once)
    assert [steps_seen(seen) for seen in mind.seen] == [steps_seen(seen) for seen in whole.seen]
    assert [one.through_step for one in handoffs(run)] == [
        one.through_step for one in handoffs(at_once)
    ]
    assert len(handoffs(run)) > 1


def test_a_fact_that_was_taken_back_is_said_to_hold_no_more() -> None:
    def decide(seen: Seen) -> Answer:
        return [("pay", {})] if seen.state["step"] == 1 else look_on(12)(seen)

    def hand_off(seen: Seen) -> Answer:
        gone = seen.state.get("handed_facts_that_hold_no_more", [])
        known = [*(seen.handoff or {}).get("facts", []), *seen.state["facts"]]
        names = [fact["operation"] for fact in known if fact["operation"] not in gone]
        return right(seen, facts=[{"text": "it was paid", "operation": name} for name in names])

    mind = Mind(decide, hand_off)
    run = start_llm(mind, **SMALL)
    while not handoffs(run):
        advance(run_id=run.id, owner="worker 1", turn=Slice(steps=1))
    paid = ToolOperation.objects.get(run=run, tool="pay")
    mind.seen.clear()
    correct_by_hand(actor=operator(), operation_id=paid.id, evidence="paid back in cash")
    drive(run)
    assert run.state == "COMPLETED"
    assert mind.seen[0].state["handed_facts_that_hold_no_more"] == [paid.id]
    assert handoffs(run)[-1].body["facts"] == []
    assert handoffs(run)[-1].written_by != "rows"


def test_a_stored_handoff_that_cannot_be_read_stops_the_run_and_names_itself() -> None:
    mind = Mind(look_on(12))
    run = start_llm(mind, **SMALL)
    while not handoffs(run):
        advance(run_id=run.id, owner="worker 1", turn=Slice(steps=1))
    change("ALTER TABLE runs_handoff DISABLE TRIGGER USER")
    change("""UPDATE runs_handoff SET body = '{"schema_version": 9}'""")
    change("ALTER TABLE runs_handoff ENABLE TRIGGER USER")
    with pytest.raises(Exception, match="handoff 1"):
        drive(run)
    run.refresh_from_db()
    assert f"The artifact of run {run.id} handoff 1 cannot be read" in run.error


def test_one_rebuilt_from_rows_leaves_the_canonical_state_alone() -> None:
    def decide(seen: Seen) -> Answer:
        return [("pay", {})] if seen.state["step"] == 1 else look_on(3)(seen)

    mind = Mind(decide)
    run = start_llm(mind, constraints=("be kind",), tools=("look", "pay"))
    advance(run_id=run.id, owner="worker 1", turn=Slice(steps=2))
    claimed = claim(run_id=run.id, owner="worker 2")
    assert claimed is not None
    work = begin(claimed)
    rebuild(work, get_agent(run.agent))
    work.release(wake_in=0)
    (stored,) = handoffs(run)
    assert (stored.reason, stored.written_by, stored.through_step) == ("version", "rows", 2)
    mind.seen.clear()
    drive(run)
    (seen,) = mind.seen
    assert seen.results == []
    assert [fact["text"] for fact in seen.handoff["facts"]] == [
        'step 1: pay {"amount":1} COMMITTED: "paid"'
    ]
    # Once more says nothing new: nothing is written.
    assert len(handoffs(run)) == 1


def test_a_function_whose_context_is_rebuilt_is_given_the_handoff_beside_its_window() -> None:
    seen: list[Context] = []

    def decide(context: Context) -> Decision:
        seen.append(context)
        if context.step_number <= 22:
            return CallTools(ToolCall("look", n=context.step_number))
        return Finish(1)

    Agent(name="looker", decider=decide, tools=("look",), on_version_change="rebuild_context")
    run = start_run(actor=operator(), agent="looker").run
    advance(run_id=run.id, owner="worker 1", turn=Slice(steps=21))
    claimed = claim(run_id=run.id, owner="worker 2")
    assert claimed is not None
    work = begin(claimed)
    rebuild(work, get_agent(run.agent))
    work.release(wake_in=0)
    drive(run)
    assert (run.state, seen[20].handoff) == ("COMPLETED", None)
    assert seen[-1].handoff is not None
    assert seen[-1].handoff["through_step"] == 21
    # What it has seen and not seen is what it decides by.
    assert [one.step_number for one in seen[-1].observations] == list(range(3, 23))

"""The timeline of what was asked, told and delegated: every moment, in order, without secrets."""

import base64

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from runs import Agent, CallTools, Context, Decision, Delegate, Finish, ToolCall, WaitFor
from runs.commands import (
    cancel_run,
    compensate_run,
    fork_run,
    pause_run,
    resume_run,
    retry_run,
    signal_run,
)
from runs.errors import InvalidInput
from runs.models import AgentRun, Question
from runs.presenting import present_operation
from runs.shapes import TimelineEntry
from runs.timeline import read_newest, read_timeline
from tests.database.controlling import ANN, completed, failed, finish
from tests.database.gating import Start
from tests.database.kit import ON_DATABASE, drive, scripted_tool

pytestmark = ON_DATABASE

SECRET = "4111-1111-1111-1111"


def _whole(run: AgentRun) -> list[TimelineEntry]:
    return list(read_timeline(run_id=run.id).items)


def _the(run: AgentRun, kind: str) -> TimelineEntry:
    (found,) = [entry for entry in _whole(run) if entry.kind == kind]
    return found


def _asked_everything(start: Start) -> AgentRun:
    """A failed run that was forked, retried, paused, resumed, told something, and cancelled."""
    run, _ = failed(start)
    fork_run(actor=ANN, run_id=run.id, step=1)
    retry_run(actor=ANN, run_id=run.id)
    pause_run(actor=ANN, run_id=run.id, reason="hold on")
    for n in range(3):
        signal_run(actor=ANN, run_id=run.id, name="paid", event_id=f"e{n}", payload=n)
    resume_run(actor=ANN, run_id=run.id)
    cancel_run(actor=ANN, run_id=run.id)
    drive(run)
    assert run.state == "CANCELLED"
    return run


def test_every_request_is_in_it_with_who_asked_and_before_what_it_led_to(start: Start) -> None:
    run = _asked_everything(start)
    entries = _whole(run)
    kinds = [entry.kind for entry in entries]
    asked = [kind for kind in kinds if kind.startswith("request.")]
    assert asked == ["request." + kind for kind in ("fork", "retry", "pause", "resume", "cancel")]
    assert all(entry.actor == "ann" for entry in entries if entry.kind in asked)
    assert kinds.index("request.retry") == kinds.index("run.retry") - 1
    assert kinds.index("request.cancel") < kinds.index("run.cancel")
    assert "hold on" in _the(run, "request.pause").reason
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_pages_lead_through_it_forwards_and_backwards(start: Start, size: int) -> None:
    run = _asked_everything(start)
    entries = _whole(run)
    page = read_timeline(run_id=run.id, size=size)
    forwards = list(page.items)
    while page.next is not None:
        page = read_timeline(run_id=run.id, cursor=page.next, size=size)
        forwards += page.items
    assert forwards == entries
    newest = read_newest(run_id=run.id, size=size)
    for last in (page, newest):
        backwards = list(last.items)
        while last.previous is not None:
            last = read_timeline(run_id=run.id, cursor=last.previous, size=size)
            backwards = [*last.items, *backwards]
        assert backwards == entries


def test_a_wait_says_what_for_and_how_it_ended(start: Start) -> None:
    def decide(context: Context) -> Decision:
        return Finish() if context.last else WaitFor("paid")

    run = start(decider=decide)
    drive(run)
    assert _the(run, "run.wait").evidence == {"waits_for": "signal", "name": "paid", "until": None}
    signal_run(actor=ANN, run_id=run.id, name="paid", event_id="e1", payload={"order": 17})
    drive(run)
    woken = _the(run, "run.wake").evidence
    assert woken is not None
    assert (woken["outcome"], woken["author"], woken["result"]) == ("came", "ann", {"order": 17})
    sent, delivered = _the(run, "signal.sent"), _the(run, "signal.delivered")
    assert (sent.actor, delivered.step_number) == ("ann", 1)
    assert sent.evidence == {"signal": "paid", "event_id": "e1", "payload": {"order": 17}}
    kinds = [entry.kind for entry in _whole(run)]
    assert kinds.index("signal.delivered") < kinds.index("run.wake")


def test_a_question_says_who_answered_it(start: Start) -> None:
    run, _ = failed(start)
    question = Question.objects.create(
        run=run,
        step=run.steps.get(number=2),
        step_number=2,
        text="Which size?",
        schema={},
        groups=["sales"],
    )
    Question.objects.filter(id=question.id).update(
        status="answered", answer={"size": "L"}, answered_by="robin", ended_at=Now()
    )
    asked, answered = _the(run, "question.asked"), _the(run, "question.answered")
    assert (asked.reason, asked.step_number) == ("Which size?", 2)
    assert answered.actor == "robin"
    assert answered.evidence is not None
    assert answered.evidence["answer"] == {"size": "L"}


def test_the_tree_shows_in_both_timelines(start: Start) -> None:
    Agent(name="helper", decider=lambda context: Finish("helped"))
    run = start(
        decider=lambda context: Finish(context.last.result) if context.last else Delegate("helper")
    )
    drive(run)
    child = AgentRun.objects.get(parent=run)
    drive(child)
    drive(run)
    begun, ended = _the(run, "child.started"), _the(run, "child.ended")
    for entry in (begun, ended):
        assert entry.evidence is not None
        assert entry.evidence["child_id"] == str(child.id)
        assert entry.operation_id == child.parent_operation
    assert ended.evidence is not None
    assert (ended.to_state, ended.evidence["result"]) == ("COMPLETED", "helped")
    created = _the(child, "run.create").evidence
    assert created == {"parent_id": str(run.id), "parent_operation": child.parent_operation}


def test_a_fork_names_its_origin_and_the_origin_its_fork(start: Start) -> None:
    run, _ = failed(start)
    fork = fork_run(actor=ANN, run_id=run.id, step=1).run
    assert _the(fork, "run.create").evidence == {"forked_from": str(run.id), "step": 1}
    asked = _the(run, "request.fork").evidence
    assert asked == {"request": "fork", "fork": str(fork.id), "step": 1}


def test_why_it_is_corrected_is_told(start: Start) -> None:
    run = completed(start)
    compensate_run(actor=ANN, run_id=run.id, reason="wrong order")
    assert "wrong order" in _the(run, "request.compensate").reason
    assert "wrong order" in _the(run, "run.compensate").reason


def test_what_is_declared_sensitive_is_hidden_everywhere(start: Start) -> None:
    scripted_tool(1, sensitive=("card",))

    def decide(context: Context) -> Decision:
        return WaitFor("paid") if context.last else CallTools(ToolCall("pay"))

    run = start(decider=decide, tools=("pay",), input={"card": SECRET})
    drive(run)
    signal_run(
        actor=ANN, run_id=run.id, name="paid", event_id="e1", payload={"card": SECRET, "ok": 1}
    )
    drive(run)
    pause_run(actor=ANN, run_id=run.id, reason=f"look at {SECRET}")
    entries = _whole(run)
    assert sum(entry.kind.startswith("signal.") for entry in entries) == 2
    assert SECRET not in " ".join(entry.model_dump_json() for entry in entries)


def test_what_a_childs_tools_declare_is_hidden_in_its_parents_timeline(start: Start) -> None:
    scripted_tool({"card": SECRET}, sensitive=("card",))

    def pay(context: Context) -> Decision:
        return Finish(context.last.result) if context.last else CallTools(ToolCall("pay"))

    Agent(name="payer", decider=pay, tools=("pay",))
    run = start(decider=lambda context: Finish() if context.last else Delegate("payer"))
    drive(run)
    drive(AgentRun.objects.get(parent=run))
    drive(run)
    assert _the(run, "child.ended").to_state == "COMPLETED"
    assert SECRET not in " ".join(entry.model_dump_json() for entry in _whole(run))
    operation = run.operations.get()
    assert operation.result == {"card": SECRET}
    assert SECRET not in present_operation(operation).model_dump_json()


def test_it_costs_the_same_however_many_moments_there_are(start: Start) -> None:
    def queries(run: AgentRun) -> int:
        with CaptureQueriesContext(connection) as captured:
            read_timeline(run_id=run.id)
        return len(captured)

    def signalled(number: int) -> AgentRun:
        run = start(decider=finish)
        for n in range(number):
            signal_run(actor=ANN, run_id=run.id, name="paid", event_id=f"e{n}")
        return run

    assert queries(signalled(1)) == queries(signalled(30))


@pytest.mark.parametrize("place", ['["x","a","b"]', '["2026-01-01T00:00:00Z","a\\u0000","b"]'])
def test_a_foreign_place_is_refused(start: Start, place: str) -> None:
    run = start(decider=finish)
    cursor = base64.urlsafe_b64encode(f'{{"moment":{place}}}'.encode()).decode().rstrip("=")
    with pytest.raises(InvalidInput, match="cursor"):
        read_timeline(run_id=run.id, cursor=cursor)

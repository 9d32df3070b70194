"""The doors of requests: the API and the command line ask the same commands."""

import json
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from runs import Agent, Budget, Context, Decision, Finish, WaitFor
from runs.models import AgentRun
from tests.database.callers import caller
from tests.database.controlling import asked_of, completed, failed, finish, pause_in
from tests.database.gating import Start
from tests.database.kit import drive

pytestmark = pytest.mark.django_db(transaction=True)

Printed = pytest.CaptureFixture[str]


def _run_command(capsys: Printed, name: str, *given: str) -> Any:
    capsys.readouterr()
    call_command(name, *given, "--json")
    return json.loads(capsys.readouterr().out)


# -- The API ------------------------------------------------------------------------------------


def test_pause_resume_and_cancel_are_202_with_the_run_as_it_stands(start: Start) -> None:
    run, api = start(decider=finish), caller()
    paused = api.post(f"runs/{run.id}/pause/", {"reason": "hold on"})
    assert (paused.status_code, paused.json()["pause_reason"]) == (202, "hold on")
    resumed = api.post(f"runs/{run.id}/resume/", {})
    assert (resumed.status_code, resumed.json()["paused_at"]) == (202, None)
    asked = api.post(f"runs/{run.id}/cancel/", {"compensate": True, "reason": "wrong"})
    assert asked.status_code == 202
    assert asked.json()["cancel_requested"]["compensate"] is True
    assert [kind for kind, _ in asked_of(run)] == ["pause", "resume", "cancel"]


def test_no_body_is_an_empty_one(start: Start) -> None:
    run, api = start(decider=finish), caller()
    for name in ("pause", "resume", "cancel"):
        answer = api.send("POST", f"runs/{run.id}/{name}/")
        assert answer.status_code == 202, answer.content


def test_retry_and_compensate_are_202_and_409_where_there_is_nothing(start: Start) -> None:
    run, _ = failed(start)
    api = caller()
    retried = api.post(f"runs/{run.id}/retry/")
    assert (retried.status_code, retried.json()["state"]) == (202, "READY")
    again = api.post(f"runs/{run.id}/retry/")
    assert (again.status_code, again.json()["type"].rpartition(":")[2]) == (409, "wrong-state")
    plain = start(decider=finish)
    drive(plain)
    nothing = api.post(f"runs/{plain.id}/compensate/")
    assert nothing.status_code == 409
    assert nothing.json()["type"].endswith("nothing-to-correct")


def test_a_run_that_is_corrected_says_since_when_and_why(start: Start) -> None:
    run = completed(start)
    answer = caller().post(f"runs/{run.id}/compensate/", {"reason": "wrong order"})
    assert answer.status_code == 202
    assert answer.json()["compensating"]["reason"] == "wrong order"


def test_a_fork_is_201_with_its_address_and_200_when_it_is_replayed(start: Start) -> None:
    run, _ = failed(start)
    api = caller()
    made = api.post(f"runs/{run.id}/fork/", {"step": 1}, key="k")
    assert made.status_code == 201
    fork = made.json()
    assert made["Location"].endswith(f"/api/v1/runs/{fork['id']}/")
    assert (fork["forked_from"], fork["forked_at_step"]) == (str(run.id), 1)
    again = api.post(f"runs/{run.id}/fork/", {"step": 1}, key="k")
    assert (again.status_code, again["Idempotent-Replayed"]) == (200, "true")
    assert again.json()["id"] == fork["id"]
    assert api.post(f"runs/{run.id}/fork/", {"step": 0}, key="k").status_code == 422
    assert api.post(f"runs/{run.id}/fork/", {"step": 9}).json()["field"] == "step"


def test_a_signal_is_202_its_repeat_says_so_and_other_content_is_422(start: Start) -> None:
    run, api = start(decider=finish), caller()
    body = {"name": "paid", "event_id": "e1", "payload": {"order": 17}}
    first = api.post(f"runs/{run.id}/signals/", body)
    assert (first.status_code, first.json()["delivered_at"]) == (202, None)
    assert "Idempotent-Replayed" not in first
    again = api.post(f"runs/{run.id}/signals/", body)
    assert (again.status_code, again["Idempotent-Replayed"]) == (202, "true")
    other = api.post(f"runs/{run.id}/signals/", body | {"payload": 1})
    assert (other.status_code, other.json()["field"]) == (422, "event_id")
    drive(run)
    assert api.post(f"runs/{run.id}/signals/", body | {"event_id": "e2"}).status_code == 409


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("cancel", {"compensate": "yes"}, "compensate"),
        ("cancel", {"compensat": True}, "compensat"),
        ("pause", {"reason": "a\0b"}, "reason"),
        ("resume", {"add_steps": "3"}, "add_steps"),
        ("resume", {"add_steps": -1}, "add_steps"),
        ("resume", {"add_cost_usd": 1.5}, "add_cost_usd"),
        ("resume", {"add_cost_usd": "much"}, "add_cost_usd"),
        ("resume", {"add_cost_usd": "NaN"}, "add_cost_usd"),
        ("retry", {"step": 1}, "step"),
        ("fork", {}, "step"),
        ("fork", {"step": True}, "step"),
        ("signals", {"name": "paid"}, "event_id"),
        ("signals", {"name": "", "event_id": "e"}, "name"),
    ],
)
def test_a_body_that_does_not_fit_is_400_and_names_the_field(
    start: Start, name: str, body: Any, field: str
) -> None:
    run = start(decider=finish)
    answer = caller().post(f"runs/{run.id}/{name}/", body)
    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert answer.json()["fix"]
    assert asked_of(run) == []


def test_a_priority_is_the_agents_unless_it_is_given(start: Start) -> None:
    Agent(name="urgent", decider=finish, priority=5)
    api = caller()
    assert api.post("runs/", {"agent": "urgent"}).json()["priority"] == 5
    assert api.post("runs/", {"agent": "urgent", "priority": -100}).json()["priority"] == -100
    for wrong in (101, -101, True, "1"):
        refused = api.post("runs/", {"agent": "urgent", "priority": wrong})
        assert (refused.status_code, refused.json()["field"]) == (400, "priority")


def test_runs_are_listed_by_the_run_that_started_them(start: Start) -> None:
    parent, child, _ = (start(decider=finish) for _ in range(3))
    AgentRun.objects.filter(id=child.id).update(parent=parent, parent_operation="op", depth=1)
    api = caller()
    (found,) = api.get("runs/", parent=str(parent.id)).json()["results"]
    assert (found["id"], found["parent"], found["depth"]) == (str(child.id), str(parent.id), 1)
    assert api.get(f"runs/{parent.id}/").json()["children"] == 1
    assert api.get("runs/", parent="x").status_code == 400


def test_what_a_run_waits_for_is_shown(start: Start) -> None:
    def wait(context: Context) -> Decision:
        return WaitFor("paid") if context.last is None else Finish()

    run = start(decider=wait)
    drive(run)
    shown = caller().get(f"runs/{run.id}/").json()
    assert shown["waiting_for"] == {"kind": "signal", "name": "paid", "until": None}
    assert shown["spent"]["steps"] == 1
    assert shown["budget"] == {"steps": None, "tokens": None, "cost_usd": None, "until": None}


# -- The command line ---------------------------------------------------------------------------


def test_every_command_prints_the_run(start: Start, capsys: Printed) -> None:
    run = start(decider=finish)
    paused = _run_command(capsys, "pause_run", str(run.id), "--reason", "hold on")
    assert (paused["id"], paused["pause_reason"]) == (str(run.id), "hold on")
    assert _run_command(capsys, "resume_run", str(run.id))["paused_at"] is None
    cancelled = _run_command(capsys, "cancel_run", str(run.id), "--compensate")
    assert cancelled["cancel_requested"]["compensate"] is True
    broken, _ = failed(start)
    assert _run_command(capsys, "retry_run", str(broken.id))["state"] == "READY"
    fork = _run_command(capsys, "fork_run", str(broken.id), "--step", "1", "--input", "[1]")
    assert (fork["forked_from"], fork["input"]) == (str(broken.id), [1])


def test_compensate_and_signal_say_what_came_of_it(start: Start, capsys: Printed) -> None:
    run = completed(start)
    call_command("compensate_run", str(run.id), "--reason", "wrong")
    assert "corrects what it did" in capsys.readouterr().out
    other = start(decider=finish)
    sent = ("signal_run", str(other.id), "paid", "--payload", '{"order": 17}', "--event-id", "e1")
    assert _run_command(capsys, *sent)["payload"] == {"order": 17}
    call_command(*sent)
    assert "counts once" in capsys.readouterr().out
    call_command("signal_run", str(other.id), "paid")
    assert other.signals.count() == 2


def test_a_budget_is_raised_with_the_resume(start: Start, capsys: Printed) -> None:
    run = start(decider=finish, budget=Budget(steps=1))
    pause_in(run)
    shown = _run_command(capsys, "resume_run", str(run.id), "--add-steps", "2")
    assert shown["budget"]["steps"] == 3


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("pause_run", "x"), "run: 'x'"),
        (("retry_run", "01900000-0000-7000-8000-000000000000"), "there is no run"),
        (("signal_run", "01900000-0000-7000-8000-000000000000", "a"), "there is no run"),
        (("compensate_run", "01900000-0000-7000-8000-000000000000"), "there is no run"),
        (("fork_run", "01900000-0000-7000-8000-000000000000", "--step", "0"), "there is no run"),
    ],
)
def test_a_request_that_cannot_be_ends_with_one_sentence(
    command: tuple[str, ...], message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        call_command(*command)


def test_inspect_run_says_what_holds_it(start: Start, capsys: Printed) -> None:
    run = start(decider=finish)
    call_command("pause_run", str(run.id), "--reason", "hold on")
    capsys.readouterr()
    call_command("inspect_run", str(run.id))
    shown = capsys.readouterr().out
    assert "hold on" in shown
    assert "request.pause" in shown

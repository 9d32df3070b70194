"""Calls over REST: what an `Idempotency-Key` means, and what each status says."""

import json
from typing import Any

import pytest
from django.db import transaction

from runs.engine import advance
from runs.models import AgentRun, Approval, GatewayCall, ToolOperation
from tests.database.approving import person, say
from tests.database.callers import Caller, caller
from tests.database.kit import LOST, PLAIN, Script, change, scripted_tool
from tools import Approve

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)

CALL = {"tool": "pay", "arguments": {"amount": 1}, "wait_seconds": 0}
NEVER = Approve(when="false")


@pytest.fixture
def api() -> Caller:
    return caller("operations:call:*")


@pytest.fixture
def paying() -> Script:
    return scripted_tool("paid", "paid again", approval_policy=NEVER)


def ask(api: Caller, key: str | None = "k1", **changed: Any) -> Any:
    return api.post("operations/", CALL | changed, key=key)


def carry_out() -> None:
    """What the run's worker does, for every call that waits."""
    for run_id in GatewayCall.objects.filter(taken_at=None).values_list("run_id", flat=True):
        assert run_id is not None
        advance(run_id=run_id, owner="worker 1")


def problem_of(answer: Any, status: int) -> Any:
    """The problem's name and field."""
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    said = answer.json()
    return said["type"].rpartition(":")[2], said.get("field")


def purge(run: AgentRun) -> None:
    """Take a run away with all that hangs on it. What it was called with stands on nothing more."""
    with transaction.atomic():
        change("UPDATE runs_gatewaycall SET run_id = NULL WHERE run_id = %s", run.pk)
        change("DELETE FROM runs_agentrun WHERE id = %s", run.pk)
        for table in ("transition", "toolobservation", "checkpoint", "modeldecision", "notice"):
            change(f"DELETE FROM runs_{table} WHERE run_id = %s", run.pk)
        change("DELETE FROM runs_tooloperation WHERE run_id = %s", run.pk)
        steps = "SELECT id FROM runs_step WHERE run_id = %s"
        change(f"DELETE FROM runs_stepattempt WHERE step_id IN ({steps})", run.pk)
        change("DELETE FROM runs_step WHERE run_id = %s", run.pk)


# -- One call per key ------------------------------------------------------------------------


def test_a_call_is_accepted_with_where_to_look_and_when(api: Caller, paying: Script) -> None:
    answer = ask(api)
    assert answer.status_code == 202
    operation_id = answer.json()["operation_id"]
    assert answer["Location"].endswith(f"/api/v1/operations/{operation_id}/")
    assert answer["Retry-After"] == "1"
    assert "Idempotent-Replayed" not in answer
    assert answer.json()["status"] == "PREPARED"
    assert api.get(answer["Location"]).json() == answer.json()


def test_the_same_request_again_is_answered_with_what_it_came_to(
    api: Caller, paying: Script
) -> None:
    first = ask(api)
    carry_out()
    again = ask(api)
    assert again.status_code == 200
    assert again["Idempotent-Replayed"] == "true"
    assert "Location" not in again
    assert again.json()["operation_id"] == first.json()["operation_id"]
    assert (again.json()["status"], again.json()["result"]) == ("COMMITTED", "paid")
    assert ask(api).content == again.content
    assert len(paying.calls) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"arguments": {"amount": 2}},
        {"arguments": {}},
        {"tool": "other"},
        {"thread": "another"},
        {"thread": "another", "step": 1},
        {"thread": "another", "action": "second"},
    ],
    ids=json.dumps,
)
def test_the_same_key_for_another_request_is_refused(
    api: Caller, paying: Script, changed: dict[str, Any]
) -> None:
    scripted_tool(name="other", approval_policy=NEVER)
    ask(api)
    assert problem_of(ask(api, **changed), 422) == ("key-reused", "Idempotency-Key")
    carry_out()
    assert problem_of(ask(api, **changed), 422) == ("key-reused", "Idempotency-Key")
    assert (GatewayCall.objects.count(), len(paying.calls)) == (1, 1)


@pytest.mark.parametrize(
    "same",
    [
        {"wait_seconds": 0.01},
        {"rationale": "other words for it"},
        {"thread": None, "run": None, "step": None, "action": None, "agent": None},
    ],
    ids=json.dumps,
)
def test_how_long_it_is_waited_for_and_why_it_is_asked_make_no_other_request(
    api: Caller, paying: Script, same: dict[str, Any]
) -> None:
    ask(api)
    carry_out()
    assert ask(api, **same).status_code == 200
    assert len(paying.calls) == 1


def test_the_order_of_names_makes_no_other_request(api: Caller) -> None:
    scripted_tool("paid", approval_policy=NEVER)
    turned = json.dumps(dict(reversed(CALL.items())), indent=2)
    ask(api)
    carry_out()
    assert api.post_raw("operations/", turned, key="k1").status_code == 200


def test_another_key_is_another_call(api: Caller, paying: Script) -> None:
    first, second = ask(api, "k1"), ask(api, "k2")
    assert first.json()["operation_id"] != second.json()["operation_id"]


@pytest.mark.parametrize("key", ['"k1"', "K1", " k1x", "k1,k1"])
def test_a_key_is_taken_as_it_stands(api: Caller, paying: Script, key: str) -> None:
    ask(api, "k1")
    ask(api, key)
    assert GatewayCall.objects.count() == 2


def test_keys_of_two_tokens_never_meet_even_of_one_owner(paying: Script) -> None:
    one = caller("operations:call:*", username="ann")
    two = caller("operations:call:*", username="ann")
    assert ask(one).json()["operation_id"] != ask(two, arguments={}).json()["operation_id"]
    carry_out()
    assert len(paying.calls) == 2


# -- Keys that are refused -------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "", "k" * 256])
def test_a_call_needs_a_key_that_can_be_kept(api: Caller, paying: Script, key: str | None) -> None:
    assert problem_of(ask(api, key), 400) == ("invalid-input", "Idempotency-Key")
    assert not AgentRun.objects.exists()


def test_the_longest_key_is_kept_whole(api: Caller, paying: Script) -> None:
    ask(api, "k" * 254 + "a")
    ask(api, "k" * 254 + "b")
    assert GatewayCall.objects.count() == 2


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"arguments": {"amount": "much"}}, 400),
        ({"arguments": {"amount": 1, "other": 2}}, 400),
        ({"tool": "unheard"}, 400),
        ({"agent": "unheard"}, 400),
        ({"run": "0190f3b0-0000-7000-8000-000000000000"}, 404),
        ({"step": -1}, 400),
        ({"step": 1}, 400),
        ({"action": "of no thread"}, 400),
        ({"wait_seconds": 61}, 400),
        ({"arguments": {"amount": 1, "note": "\0"}}, 400),
    ],
    ids=lambda value: json.dumps(value),
)
def test_a_request_that_was_refused_has_not_used_its_key(
    api: Caller, paying: Script, changed: dict[str, Any], status: int
) -> None:
    assert ask(api, **changed).status_code == status
    assert not AgentRun.objects.exists()
    assert ask(api).status_code == 202
    carry_out()
    assert ask(api).json()["status"] == "COMMITTED"


def test_a_tool_outside_of_the_token_s_scopes_is_refused_without_a_trace(paying: Script) -> None:
    scripted_tool(name="other", approval_policy=NEVER)
    api = caller("operations:call:other")
    assert problem_of(ask(api), 403)[0] == "not-permitted"
    assert problem_of(ask(api, tool="unheard"), 403)[0] == "not-permitted"
    assert not AgentRun.objects.exists()
    assert ask(api, tool="other").status_code == 202


def test_what_was_purged_is_refused_and_never_done_anew(api: Caller, paying: Script) -> None:
    ask(api)
    carry_out()
    purge(AgentRun.objects.get())
    assert problem_of(ask(api), 410) == ("key-forgotten", "Idempotency-Key")
    # Other arguments tell nobody what became of the first.
    assert problem_of(ask(api, arguments={}), 422)[0] == "key-reused"
    carry_out()
    assert len(paying.calls) == 1
    assert GatewayCall.objects.get().arguments is None


# -- While it takes long ---------------------------------------------------------------------


def test_a_repeat_while_the_first_is_being_answered_is_told_to_wait(
    api: Caller, paying: Script
) -> None:
    ask(api)
    change("UPDATE runs_gatewaycall SET answer_by = now() + interval '30 s'")
    answer = ask(api)
    assert problem_of(answer, 409)[0] == "call-in-flight"
    assert answer["Retry-After"] == "1"
    change("UPDATE runs_gatewaycall SET answer_by = now() - interval '1 s'")
    again = ask(api)
    assert (again.status_code, again["Idempotent-Replayed"]) == (202, "true")


def test_a_call_that_is_held_says_so_until_it_is_signed(api: Caller) -> None:
    script = scripted_tool("paid", approval_policy=Approve())
    ask(api)
    carry_out()
    held = ask(api)
    assert held.status_code == 202
    assert held.json()["status"] == "AWAITING_APPROVAL"
    assert held.json()["approval"] == str(Approval.objects.get().pk)
    assert script.calls == []
    say(Approval.objects.get(), person())
    advance(run_id=AgentRun.objects.get().pk, owner="worker 1")
    assert ask(api).json()["status"] == "COMMITTED"


def test_a_call_that_a_person_denied_is_settled_with_the_reason(api: Caller) -> None:
    scripted_tool(approval_policy=Approve())
    ask(api)
    carry_out()
    say(Approval.objects.get(), person(), verdict="deny", reason="not this month")
    advance(run_id=AgentRun.objects.get().pk, owner="worker 1")
    answer = ask(api)
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["never_sent"]) == ("CANCELLED", "denied")
    assert "not this month" in answer.json()["error"]


def test_an_unknown_effect_is_202_and_never_an_error(api: Caller) -> None:
    script = scripted_tool(LOST, provider=PLAIN, approval_policy=NEVER)
    ask(api)
    carry_out()
    for answer in (ask(api), ask(api)):
        assert answer.status_code == 202
        assert answer.json()["status"] == "UNKNOWN"
        assert answer["Location"]
    assert len(script.calls) == 1


# -- The address that goes on telling --------------------------------------------------------


def test_who_called_may_look_without_any_other_scope(api: Caller, paying: Script) -> None:
    address = ask(api)["Location"]
    carry_out()
    assert api.get(address).json()["status"] == "COMMITTED"
    assert api.get("operations/").status_code == 403


def test_nobody_else_may_but_who_may_see_everything(api: Caller, paying: Script) -> None:
    address = ask(api)["Location"]
    assert problem_of(caller("operations:call:*").get(address), 403)[0] == "not-permitted"
    assert caller("read").get(address).status_code == 200


@pytest.mark.parametrize(
    "wait", ["-1", "61", "nan", "soon", "1e400", "2.396370641939403e+194", "1" + "0" * 50]
)
def test_a_wait_that_makes_no_sense_is_refused(api: Caller, paying: Script, wait: str) -> None:
    address = ask(api)["Location"]
    assert problem_of(api.get(address, wait_seconds=wait), 400) == ("invalid-input", "wait_seconds")


def test_a_call_that_is_not_taken_up_shows_no_secret(api: Caller) -> None:
    scripted_tool(approval_policy=NEVER, sensitive=("amount",))
    answer = ask(api, arguments={"amount": 4_711})
    assert answer.json()["arguments"] == {"amount": "[redacted]"}
    assert b"4711" not in api.get(answer["Location"]).content


def test_what_the_run_came_to_shows_no_secret_of_the_tool_that_was_called(api: Caller) -> None:
    scripted_tool({"amount": 4_711}, approval_policy=NEVER, sensitive=("amount",))
    ask(api, arguments={"amount": 4_711})
    carry_out()
    run = AgentRun.objects.get()
    assert (run.state, run.result) == ("COMPLETED", {"amount": 4_711})
    shown = caller("read").get(f"runs/{run.pk}/")
    assert shown.json()["result"] == {"amount": "[redacted]"}
    assert ToolOperation.objects.get().status == "COMMITTED"

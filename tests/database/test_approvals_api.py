"""Approvals over the API: what is shown, and what each refusal is called."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db.models.functions import Now

from approvals import errors
from approvals.shapes import Approval as Shown
from runs.models import Approval
from tests.database.approving import (
    ARGUMENTS,
    PRINT,
    Start,
    ask,
    asked,
    held_run,
    let_run_out,
    person,
    say,
    written,
)
from tests.database.callers import Caller, caller
from tests.database.stories import SECRET
from tests.database.test_api_errors import handled
from tools.errors import Problem

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)

# What an approval looks like to callers, spelled out so that a change of it is meant.
FIELDS = {
    "id", "status", "operation_id", "run", "tool", "description", "arguments", "fingerprint",
    "policy_version", "resource_version", "rule", "reason_required", "requester", "requested_at",
    "approve_by", "execute_by", "quorum", "groups", "escalate_to", "escalated_at", "missing",
    "verdicts", "decided_at", "decided_by", "reason", "asked_because", "spent_at",
    "proposed", "supersedes", "superseded_by",
}  # fmt: skip
YES = {"verdict": "approve", "fingerprint": PRINT}


@pytest.fixture
def api() -> Caller:
    """Somebody of finance who may decide."""
    person("robin", "finance")
    return caller("read", "approvals:decide", username="robin")


def verdict(approval: Approval) -> str:
    return f"approvals/{approval.id}/verdict/"


def test_an_approval_shows_all_that_is_signed_and_no_secret(api: Caller, start: Start) -> None:
    approval = asked(start, groups=["finance", "legal"], resource_version="rev 7")
    answer = api.get(f"approvals/{approval.id}/")
    assert answer.status_code == 200
    shown = answer.json()
    assert set(shown) == FIELDS
    assert shown["arguments"] == {**ARGUMENTS, "card": "[redacted]"}
    assert (shown["status"], shown["tool"], shown["requester"]) == ("pending", "wire", "shopper")
    assert (shown["fingerprint"], shown["resource_version"]) == (PRINT, "rev 7")
    assert shown["rule"] == shown["reason_required"] == "amount > 500"
    assert (shown["quorum"], shown["groups"]) == (2, ["finance", "legal"])
    assert shown["missing"] == "1 of finance and 1 of legal"
    assert (shown["verdicts"], shown["execute_by"], shown["decided_by"]) == ([], None, None)
    assert SECRET not in answer.content.decode()


def test_a_verdict_is_answered_with_the_approval_as_it_stands_then(
    api: Caller, start: Start
) -> None:
    approval = asked(start, groups=["finance"], quorum=2)
    shown = api.post(verdict(approval), {**YES, "event_id": "e1", "reason": "fine"}).json()
    assert (shown["status"], shown["missing"]) == ("pending", "1 more")
    (said,) = shown["verdicts"]
    assert said.pop("at")
    assert said == {
        "user": "robin",
        "verdict": "approve",
        "reason": "fine",
        "groups": ["finance"],
        "via": "api",
        "event_id": "e1",
    }
    approval = say(approval, person("sam", "finance"))
    shown = api.get(f"approvals/{approval.id}/").json()
    assert (shown["status"], shown["missing"]) == ("approved", None)
    assert shown["decided_by"] == "robin, sam"
    assert shown["execute_by"] is not None


def test_a_denial_needs_a_reason(api: Caller, start: Start) -> None:
    approval = asked(start)
    answer = api.post(verdict(approval), {**YES, "verdict": "deny"})
    assert answer.status_code == 400
    assert answer.json()["field"] == "reason"
    answer = api.post(verdict(approval), {**YES, "verdict": "deny", "reason": "no"})
    assert (answer.json()["status"], answer.json()["reason"]) == ("denied", "no")


def test_a_proposal_is_shown_without_its_secrets(api: Caller, start: Start) -> None:
    approval = asked(start)
    body = {
        "arguments": {**ARGUMENTS, "card": "[redacted]", "amount": 4},
        "fingerprint": PRINT,
        "reason": "less",
    }
    answer = api.post(f"approvals/{approval.id}/propose/", body)
    assert answer.status_code == 200
    shown = answer.json()
    assert shown["status"] == "superseded"
    assert shown["proposed"] == {
        "arguments": {**ARGUMENTS, "card": "[redacted]", "amount": 4},
        "by": "robin",
    }
    assert SECRET not in answer.content.decode()


def test_a_proposal_that_does_not_fit_names_the_argument(api: Caller, start: Start) -> None:
    approval = asked(start)
    body = {"arguments": {**ARGUMENTS, "amount": "x"}, "fingerprint": PRINT, "reason": "less"}
    answer = api.post(f"approvals/{approval.id}/propose/", body)
    assert (answer.status_code, answer.json()["field"]) == (400, "amount")
    answer = api.post(f"approvals/{approval.id}/propose/", {**body, "arguments": ARGUMENTS})
    assert (answer.status_code, answer.json()["field"]) == (400, "arguments")


def test_a_newer_request_is_linked_both_ways(api: Caller, start: Start) -> None:
    run = held_run(start)
    old = ask(run)
    new = ask(run, supersedes=old)
    assert api.get(f"approvals/{old.id}/").json()["superseded_by"] == str(new.id)
    assert api.get(f"approvals/{new.id}/").json()["supersedes"] == str(old.id)
    answer = api.post(verdict(old), YES)
    assert (answer.status_code, answer.json()["value"]) == (409, str(new.id))


def test_a_bad_word_is_400_and_names_the_field(api: Caller, start: Start) -> None:
    approval = asked(start)
    before = written(approval)
    bad: list[tuple[Any, str]] = [
        ({}, "verdict"),
        ({**YES, "verdict": "propose"}, "verdict"),
        ({**YES, "verdict": None}, "verdict"),
        ({"verdict": "approve"}, "fingerprint"),
        ({**YES, "fingerprint": 5}, "fingerprint"),
        ({**YES, "finger_print": ""}, "finger_print"),
        ({**YES, "reason": "a\0b"}, "reason"),
        ({**YES, "event_id": "x" * 256}, "event_id"),
        ([1], "body"),
    ]
    for body, field in bad:
        answer = api.post(verdict(approval), body)
        assert (answer.status_code, answer.json()["field"]) == (400, field), body
    assert written(approval) == before


def test_an_unknown_approval_is_404(api: Caller) -> None:
    propose = {"arguments": {}, "fingerprint": PRINT, "reason": "x"}
    for approval_id in ("x", "0" * 32, "%00", "x" * 500):
        for answer in (
            api.get(f"approvals/{approval_id}/"),
            api.post(f"approvals/{approval_id}/verdict/", YES),
            api.post(f"approvals/{approval_id}/propose/", propose),
        ):
            assert answer.status_code == 404
            assert answer.json()["type"].endswith("unknown-approval")


def test_who_is_refused_is_told_before_what_is_wrong_with_the_approval(
    api: Caller, start: Start
) -> None:
    """403 before 412 before 409: nobody learns more than they may."""
    run = held_run(start)
    approval = ask(run, requester="robin")
    let_run_out(approval)
    wrong = {**YES, "fingerprint": "v1:x"}
    assert api.post(verdict(approval), wrong).status_code == 403
    approval = ask(run)
    let_run_out(approval)
    assert api.post(verdict(approval), wrong).status_code == 412
    answer = api.post(verdict(approval), YES)
    assert (answer.status_code, answer.json()["type"].endswith("ran-out")) == (409, True)


def test_the_list_is_filtered_paged_and_strict(api: Caller, start: Start) -> None:
    mine = asked(start, groups=["finance"])
    others = asked(start, groups=["legal"])
    first = api.get("approvals/", page_size=1).json()
    assert [one["id"] for one in first["results"]] == [str(mine.id)]
    second = api.get(first["next"]).json()
    assert [one["id"] for one in second["results"]] == [str(others.id)]
    assert second["next"] is None
    assert api.get(second["previous"]).json()["results"] == first["results"]
    found = api.get("approvals/", mine="true", status="pending", run=str(mine.run_id)).json()
    assert [one["id"] for one in found["results"]] == [str(mine.id)]
    assert api.get("approvals/", mine="false").json()["results"][1]["id"] == str(others.id)
    for query, field in (
        ({"mine": "perhaps"}, "mine"),
        ({"status": "open"}, "status"),
        ({"cursor": "x"}, "cursor"),
        ({"stauts": "pending"}, "stauts"),
    ):
        answer = api.get("approvals/", **query)
        assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_reading_needs_no_right_to_decide_and_deciding_its_scope(start: Start) -> None:
    approval = asked(start)
    reader = caller("read", username=person().username)
    assert reader.get(f"approvals/{approval.id}/").status_code == 200
    answer = reader.post(verdict(approval), YES)
    assert (answer.status_code, answer.json()["value"]) == (403, "approvals:decide")


def test_every_status_of_a_row_can_be_shown(api: Caller, start: Start) -> None:
    approval = asked(start)
    statuses = set(Shown.model_json_schema()["properties"]["status"]["enum"])
    assert statuses == {str(status) for status in Approval.Status}
    Approval.objects.filter(id=approval.id).update(status="cancelled", decided_at=Now())
    assert api.get(f"approvals/{approval.id}/").json()["status"] == "cancelled"


# -- Problems --------------------------------------------------------------------------


THEN = datetime(2026, 12, 24, tzinfo=UTC)
REFUSALS = {
    errors.UnknownApproval(approval_id="a"): 404,
    errors.NobodyThere(): 403,
    errors.SomebodyElse(person="robin", actor="sam"): 403,
    errors.Inactive(person="robin"): 403,
    errors.NoPermission(person="robin"): 403,
    errors.OwnRequest(person="robin", role="started this run"): 403,
    errors.NotInGroup(person="robin", groups=["finance"]): 403,
    errors.AnotherFingerprint(approval_id="a", given="x"): 412,
    errors.AlreadyDecided(approval_id="a", status="denied", decided_by="sam"): 409,
    errors.Superseded(approval_id="a", newer=None, proposed_by=""): 409,
    errors.AlreadySigned(approval_id="a", person="robin"): 409,
    errors.EventSeen(approval_id="a", event_id="e"): 409,
    errors.ToolChanged(approval_id="a", tool="pay", misfit="no amount"): 409,
    errors.UnknownQuestion(question_id="q"): 404,
    errors.NotAsked(person="robin", groups=["finance"]): 403,
    errors.UnfitAnswer([Problem("answer.a", "1", "Write a text.")]): 400,
    errors.AlreadyAnswered(question_id="q", answered_by="sam", answered_at=THEN): 409,
    errors.QuestionExpired(question_id="q", answer_by=THEN): 409,
    errors.QuestionCancelled(question_id="q"): 409,
}


@pytest.mark.parametrize(("error", "status"), REFUSALS.items(), ids=lambda one: type(one).__name__)
def test_every_refusal_is_a_problem_of_its_own(error: Exception, status: int) -> None:
    answer = handled(error)
    assert answer.status_code == answer.data["status"] == status
    assert answer.data["title"]
    assert answer.data["detail"]
    assert answer.data["field"]
    assert answer.data["value"]
    assert answer.data["fix"]


def test_every_condition_of_the_tree_has_a_problem_type_of_its_own() -> None:
    def leaves(kind: type[Exception]) -> set[type[Exception]]:
        below = kind.__subclasses__()
        return set.union(*(leaves(one) for one in below)) if below else {kind}

    assert leaves(errors.ApprovalError) == {*map(type, REFUSALS), errors.RanOut}
    types = [handled(error).data["type"] for error in REFUSALS]
    assert len(set(types)) == len(types)
    assert json.dumps(types)

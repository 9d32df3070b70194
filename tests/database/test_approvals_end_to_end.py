"""From a held call to what its agent is told: verdicts as the engine's own requests get them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models.functions import Now

from approvals import sweeps
from approvals.commands import propose
from approvals.errors import OwnRequest, Superseded
from approvals.inbox import find_approvals
from runs import Agent, CallTools, Context, Decision, Finish, ToolCall
from runs.engine import advance
from runs.models import AgentRun, Approval, ToolOperation
from tests.database.approving import acting, let_run_out, person, say
from tests.database.callers import caller
from tests.database.kit import let_pass
from tools import Approve, Call, EffectType, tool

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., AgentRun]


@pytest.fixture
def sent() -> list[int]:
    return []


def pays(sent: list[int], **policy: Any) -> None:
    """The tool `pay`, which needs a signature above 500."""

    @tool(
        effect_type=EffectType.NON_IDEMPOTENT_WRITE,
        approval_policy=Approve(when="amount > 500", **policy),
        describe="Pay {amount} for order {order}",
    )
    def pay(call: Call, order: str, amount: int) -> dict[str, int]:
        """Pay."""
        sent.append(amount)
        return {"paid": amount}


def decide_on(*amounts: int) -> Callable[[Context], Decision]:
    def decide(context: Context) -> Decision:
        if not context.observations:
            return CallTools(*(ToolCall("pay", order=f"o{one}", amount=one) for one in amounts))
        return Finish(
            [
                {"status": str(one.status), "error": one.error, "result": one.result}
                for one in context.observations
            ]
        )

    return decide


def drive(run: AgentRun) -> AgentRun:
    advance(run_id=run.id, owner="worker 1")
    run.refresh_from_db()
    return run


def held(start: Start, *amounts: int) -> AgentRun:
    run = drive(start(decider=decide_on(*amounts), tools=("pay",)))
    assert run.state == "WAITING_FOR_APPROVAL"
    return run


def pending(run: AgentRun) -> Approval:
    return find_approvals(status="pending", run=str(run.id)).get()


def test_a_signed_call_is_sent_once_and_the_signature_is_spent(
    start: Start, sent: list[int]
) -> None:
    pays(sent, groups=("finance", "legal"))
    run = held(start, 900)
    approval = pending(run)
    say(approval, person("robin", "finance"))
    assert drive(run).state == "WAITING_FOR_APPROVAL"
    say(approval, person("sam", "legal"))
    assert sent == []
    assert drive(run).state == "COMPLETED"
    assert sent == [900]
    approval.refresh_from_db()
    assert approval.spent_at is not None
    assert (approval.requester, approval.quorum) == (run.created_by, 1)


def test_a_run_that_waits_holds_nothing_and_goes_on_weeks_later_at_once(
    start: Start, sent: list[int]
) -> None:
    pays(sent, approve_by=timedelta(weeks=8))
    run = held(start, 900)
    assert (run.lease_owner, run.lease_expires_at) == ("", None)
    assert (run.wake_at, run.sweep_at) == (None, None)
    let_pass(weeks=6)
    assert sweeps.run_once().expired == 0
    drive(run)
    assert (run.state, run.lease_owner) == ("WAITING_FOR_APPROVAL", "")
    say(pending(run), person())
    assert AgentRun.objects.filter(id=run.id, wake_at__lte=Now(), sweep_at__lte=Now()).exists()
    assert drive(run).state == "COMPLETED"
    assert sent == [900]


def test_a_denied_call_is_told_with_its_reason_and_its_siblings_are_sent(
    start: Start, sent: list[int]
) -> None:
    pays(sent)
    run = held(start, 10, 900, 20)
    say(pending(run), person("robin"), "deny", reason="the order was delivered")
    assert drive(run).state == "COMPLETED"
    assert sorted(sent) == [10, 20]
    told = [one for one in run.result if one["status"] == "CANCELLED"]
    assert [one["error"] for one in told] == ["denied by robin: the order was delivered"]
    assert ToolOperation.objects.get(run=run, never_sent="denied").attempts == 0


def test_a_call_that_nobody_decided_on_is_told_as_that_and_as_no_refusal(
    start: Start, sent: list[int]
) -> None:
    pays(sent)
    run = held(start, 900)
    let_run_out(pending(run))
    sweeps.run_once()
    assert drive(run).state == "COMPLETED"
    assert sent == []
    (told,) = run.result
    assert told["status"] == "CANCELLED"
    assert told["error"] == "expired: nobody decided in time"
    assert "denied" not in told["error"]
    assert ToolOperation.objects.get(run=run).never_sent == "expired"
    assert Approval.objects.get(run=run).status == "expired"


def test_the_one_who_started_the_run_cannot_sign_in_it_by_any_token(sent: list[int]) -> None:
    pays(sent)
    Agent(name="payer", decider=decide_on(900), tools=("pay",))
    robin = person("robin")
    started = caller("runs:write", username="robin").post("runs/", {"agent": "payer"})
    run = AgentRun.objects.get(id=started.json()["id"])
    assert run.created_by_user_id == robin.pk
    drive(run)
    approval = pending(run)
    User.objects.filter(pk=robin.pk).update(username="robin.of.finance")
    api = caller("approvals:decide", username="robin.of.finance")
    for verdict in ("approve", "deny"):
        body = {"verdict": verdict, "fingerprint": approval.fingerprint, "reason": "mine"}
        answer = api.post(f"approvals/{approval.id}/verdict/", body)
        assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (
            403,
            "own-request",
        )
    person("sam")
    sam = caller("approvals:decide", username="sam")
    body = {"verdict": "approve", "fingerprint": approval.fingerprint}
    assert sam.post(f"approvals/{approval.id}/verdict/", body).json()["status"] == "approved"
    assert drive(run).state == "COMPLETED"


def test_a_changed_call_is_signed_by_others_and_the_agent_is_told_what_ran(
    start: Start, sent: list[int]
) -> None:
    pays(sent, groups=("finance",))
    run = held(start, 900)
    robin, sam = person("robin", "finance"), person("sam", "finance")
    old = pending(run)
    propose(
        actor=acting(robin),
        user=robin,
        approval_id=old.id,
        arguments={"order": "o900", "amount": 600},
        fingerprint=old.fingerprint,
        reason="two were returned",
    )
    assert drive(run).state == "WAITING_FOR_APPROVAL"
    new = pending(run)
    assert new.fingerprint != old.fingerprint
    assert new.operation.arguments == {"order": "o900", "amount": 600}
    assert (new.requester, new.requester_user_id) == ("robin", robin.pk)
    with pytest.raises(OwnRequest):
        say(new, robin)
    with pytest.raises(Superseded, match=str(new.id)):
        say(old, sam)
    say(new, sam)
    assert drive(run).state == "COMPLETED"
    assert sent == [600]
    assert any(one["result"] == {"paid": 600} for one in run.result)
    assert ToolOperation.objects.get(run=run, never_sent="changed").arguments["amount"] == 900


def test_a_change_to_what_needs_no_signature_needs_one_all_the_same(
    start: Start, sent: list[int]
) -> None:
    pays(sent)
    run = held(start, 900)
    robin, old = person("robin"), pending(run)
    propose(
        actor=acting(robin),
        user=robin,
        approval_id=old.id,
        arguments={"order": "o900", "amount": 5},
        fingerprint=old.fingerprint,
        reason="far too much",
    )
    assert drive(run).state == "WAITING_FOR_APPROVAL"
    assert sent == []
    say(pending(run), person())
    drive(run)
    assert sent == [5]


def test_a_signature_that_was_not_used_in_time_is_asked_for_anew(
    start: Start, sent: list[int]
) -> None:
    pays(sent)
    run = held(start, 900)
    old = pending(run)
    say(old, person())
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runs_approval SET execute_by = statement_timestamp() WHERE id = %s", [old.id]
        )
    assert drive(run).state == "WAITING_FOR_APPROVAL"
    assert sent == []
    new = pending(run)
    with pytest.raises(Superseded, match=str(new.id)):
        say(old, person())
    say(new, person())
    assert drive(run).state == "COMPLETED"
    assert sent == [900]


def test_a_request_is_shown_in_the_words_of_its_tool(start: Start, sent: list[int]) -> None:
    pays(sent)
    approval = pending(held(start, 900))
    shown = caller("read").get(f"approvals/{approval.id}/").json()
    assert shown["description"] == "Pay 900 for order o900"

"""Policies and stops as a run meets them."""

from collections.abc import Callable

import pytest
from django.db.models.functions import Now

from approvals.policies import resume_sending, save_policy, stop_sending
from approvals.policy_text import PolicyText
from runs import ToolCall
from runs.access import operator
from runs.models import AgentRun
from runs.state import OperationStatus
from tests.database.kit import PLAIN, call_once, drive, operation_of, scripted_tool
from tools import EffectType

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., AgentRun]
WHY = "a test"


def is_due(run: AgentRun) -> bool:
    return AgentRun.objects.filter(pk=run.pk, wake_at__lte=Now()).exists()


@pytest.mark.parametrize("target", [{"tool": "pay"}, {"provider": "bank"}, {"everything": True}])
def test_a_call_waits_for_a_stop_and_leaves_when_it_is_lifted(
    start: Start, target: dict[str, str]
) -> None:
    script = scripted_tool("paid")
    stop_sending(actor=operator("ada"), reason="they charge twice", **target)  # type: ignore[arg-type]
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert operation_of(run).status == OperationStatus.PREPARED
    assert "they charge twice" in operation_of(run).error
    assert (script.calls, is_due(run)) == ([], False)
    resumed = resume_sending(actor=operator(), reason=WHY, **target)  # type: ignore[arg-type]
    assert (resumed.woken, is_due(run)) == (1, True)
    drive(run)
    assert operation_of(run).status == OperationStatus.COMMITTED
    assert len(script.calls) == 1


def test_a_lifted_stop_wakes_no_run_that_waits_for_something_else(start: Start) -> None:
    scripted_tool("paid")
    scripted_tool("posted", name="post", provider=PLAIN, effect=EffectType.NON_IDEMPOTENT_WRITE)
    for name in ("pay", "post"):
        stop_sending(actor=operator(), reason=WHY, tool=name)
    pays = start(decider=call_once(), tools=("pay",))
    posts = start(decider=call_once(ToolCall("post", amount=1)), tools=("post",))
    for run in (pays, posts):
        drive(run)
        assert not is_due(run)
    assert resume_sending(actor=operator(), reason=WHY, tool="pay").woken == 1
    assert (is_due(pays), is_due(posts)) == (True, False)


def test_a_stop_that_is_lifted_beside_another_still_holds(start: Start) -> None:
    script = scripted_tool("paid")
    stop_sending(actor=operator(), reason=WHY, tool="pay")
    stop_sending(actor=operator(), reason="everything burns", everything=True)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    resume_sending(actor=operator(), reason=WHY, tool="pay")
    drive(run)
    assert "everything burns" in operation_of(run).error
    assert script.calls == []


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ("refuse", OperationStatus.CANCELLED),
        ("require_approval", OperationStatus.AWAITING_APPROVAL),
        ("allow", OperationStatus.COMMITTED),
    ],
)
def test_a_policy_of_the_operators_decides_on_the_next_call(
    start: Start, outcome: str, status: OperationStatus
) -> None:
    scripted_tool("paid")
    text = PolicyText(outcome=outcome, tool="pay", when="requester != ''")
    save_policy(actor=operator(), name="big", text=text, reason=WHY)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    operation = operation_of(run)
    assert operation.status == status
    assert "big v1" in operation.policy_rule

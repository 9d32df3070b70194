"""Other arguments in place of those that wait: a new action, which the proposer cannot sign."""

from typing import Any

import pytest

from approvals.commands import propose
from approvals.errors import AlreadyDecided, AnotherFingerprint, Superseded
from approvals.inbox import get_approval
from approvals.models import Verdict
from approvals.presenting import present_approval
from runs import CallTools, Finish, ToolCall
from runs.engine import advance
from runs.errors import InvalidInput
from runs.models import AgentRun, Approval, Notice
from tests.database.approving import (
    ARGUMENTS,
    Start,
    acting,
    ask,
    asked,
    forget_requests,
    held_run,
    person,
    say,
    written,
)
from tests.database.stories import SECRET
from tools import Approve, Call, EffectType, tool
from tools.errors import InvalidArguments, UnknownTool
from tools.redaction import REDACTED
from tools.registry import isolated_registry

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)

LESS = {**ARGUMENTS, "amount": 400}


def suggest(approval: Approval, user: Any = None, **given: Any) -> Approval:
    user = user or person()
    asked_for = {"arguments": LESS, "fingerprint": approval.fingerprint, "reason": "too much"}
    return propose(actor=acting(user), user=user, approval_id=approval.id, **(asked_for | given))


def test_a_proposal_ends_the_request_and_leaves_the_rest_to_the_run(start: Start) -> None:
    robin = person("robin")
    approval = asked(start)
    before = approval.operation
    AgentRun.objects.filter(id=approval.run_id).update(wake_at=None, sweep_at=None)
    approval = suggest(approval, robin)
    assert (approval.status, approval.reason) == ("superseded", "too much")
    assert (approval.proposed_by, approval.proposed_by_user_id) == ("robin", robin.pk)
    assert approval.proposed_arguments == LESS
    assert (approval.execute_by, approval.spent_at) == (None, None)
    said = Verdict.objects.get()
    assert (said.verdict, said.name, said.reason) == ("propose", "robin", "too much")
    notice = Notice.objects.get(run=approval.run_id)
    assert (notice.event_id, notice.status) == (f"approval.decided:{approval.id}", "superseded")
    assert AgentRun.objects.get().wake_at is not None
    before.refresh_from_db()
    assert (before.arguments, before.status) == (ARGUMENTS, "AWAITING_APPROVAL")


def test_nobody_can_sign_what_somebody_proposed_to_change(start: Start) -> None:
    approval = suggest(asked(start), person("robin"))
    with pytest.raises(Superseded, match="robin proposed a change"):
        say(approval, person())
    with pytest.raises(Superseded):
        suggest(approval)


def test_one_who_signed_may_still_propose_a_change_and_then_not_sign_it(start: Start) -> None:
    run, robin = held_run(start), person("robin")
    approval = ask(run, quorum=2)
    say(approval, robin)
    assert suggest(approval, robin).status == "superseded"


def test_a_hidden_value_that_comes_back_as_it_was_shown_stays_what_it_was(start: Start) -> None:
    approval = suggest(asked(start), arguments={**LESS, "card": REDACTED})
    assert approval.proposed_arguments == LESS
    shown = present_approval(get_approval(approval.id))
    assert shown.proposed is not None
    assert shown.proposed.arguments == {**LESS, "card": REDACTED}
    assert SECRET not in shown.model_dump_json()


def test_a_hidden_value_may_be_replaced(start: Start) -> None:
    approval = suggest(asked(start), arguments={**LESS, "card": "5500-0000"})
    assert approval.proposed_arguments == {**LESS, "card": "5500-0000"}


def test_arguments_are_normalised_so_that_what_is_no_change_is_none(start: Start) -> None:
    approval = asked(start)
    before = written(approval)
    without_default = {name: value for name, value in ARGUMENTS.items() if name != "note"}
    for same in (ARGUMENTS, {**ARGUMENTS, "card": REDACTED}, without_default):
        with pytest.raises(InvalidInput, match="Change something") as caught:
            suggest(approval, arguments=same)
        assert caught.value.field == "arguments"
    assert written(approval) == before


def test_arguments_that_do_not_fit_the_tool_are_refused_by_name(start: Start) -> None:
    approval = asked(start)
    before = written(approval)
    for arguments, field in (
        ({"order": "17"}, "amount"),
        ({**LESS, "amount": "much"}, "amount"),
        ({**LESS, "amont": 5}, "amont"),
        ({**LESS, "order": "a\0b"}, "order"),
        ({**LESS, "amount": float("nan")}, "amount"),
    ):
        with pytest.raises(InvalidArguments) as caught:
            suggest(approval, arguments=arguments)
        assert caught.value.problems[0].field == field
        assert SECRET not in str(caught.value)
    for no_object in ([1], "x", None, 5):
        with pytest.raises(InvalidInput) as refused:
            suggest(approval, arguments=no_object)
        assert refused.value.field == "arguments"
    assert written(approval) == before


def test_a_proposal_needs_a_reason_and_the_fingerprint(start: Start) -> None:
    approval = asked(start)
    before = written(approval)
    with pytest.raises(InvalidInput, match="reason"):
        suggest(approval, reason=" ")
    with pytest.raises(AnotherFingerprint):
        suggest(approval, fingerprint="v1:" + "b" * 64)
    assert written(approval) == before


def test_what_is_decided_cannot_be_changed(start: Start) -> None:
    approval = asked(start)
    say(approval, person())
    with pytest.raises(AlreadyDecided):
        suggest(approval)


def test_a_tool_that_is_gone_takes_no_arguments(start: Start) -> None:
    approval = asked(start)
    before = written(approval)
    with isolated_registry(), pytest.raises(UnknownTool):
        suggest(approval)
    assert written(approval) == before


def held_batch(start: Start) -> Approval:
    """A request whose secret values stand in a list."""

    @tool(effect_type=EffectType.IRREVERSIBLE, sensitive=("card",), approval_policy=Approve())
    def batch(call: Call, payments: list[dict[str, Any]]) -> int:
        """Pay several."""
        return len(payments)

    given = [{"to": "a", "card": "1111-1"}, {"to": "b", "card": "2222-2"}]
    run = start(
        decider=lambda context: (
            CallTools(ToolCall("batch", payments=given)) if context.last is None else Finish()
        ),
        tools=("batch",),
    )
    advance(run_id=run.id, owner="worker 1")
    forget_requests(run)
    return ask(run)


def test_a_hidden_value_in_a_list_stays_with_its_item(start: Start) -> None:
    first, second = {"to": "a", "card": REDACTED}, {"to": "b", "card": REDACTED}
    approval = held_batch(start)
    # Moved, or changed beside it: nobody could tell whose value is meant.
    for items in ([second, first], [second], [{**first, "to": "c"}, second]):
        with pytest.raises(InvalidInput) as caught:
            suggest(approval, arguments={"payments": items})
        assert caught.value.field == "arguments.payments[0].card"
    approval = suggest(approval, arguments={"payments": [first]})
    assert approval.proposed_arguments == {"payments": [{"to": "a", "card": "1111-1"}]}

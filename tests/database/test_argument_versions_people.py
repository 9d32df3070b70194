"""A tool takes other arguments than those that are stored, and a person has to say what is sent."""

from typing import Any

import pytest

from approvals.errors import ToolChanged
from approvals.presenting import describe
from runs import CallTools, Context, Decision, ToolCall
from runs.agents import get_agent
from runs.errors import InvalidInput
from tests.database.approving import person, say
from tests.database.gating import held, request_of, requests_of, sign
from tests.database.kit import (
    KEYED,
    Script,
    call_once,
    drive,
    make_due,
)
from tests.database.redeploying import (
    DEPLOYED,
    Start,
    in_cents,
    operations_of,
    outcomes_of,
    parked,
    pay_any,
    pay_version,
    propose_in_place,
    redeployed,
)
from tools import Approve, Call, EffectType, NotSent, tool
from tools.registry import isolated_registry

pytestmark = pytest.mark.django_db(transaction=True)

OLD = {"amount": 1}


# -- Nobody says how -----------------------------------------------------------


def _raise(arguments: dict[str, Any], from_version: str) -> dict[str, Any]:
    raise LookupError(f"no rate for {arguments['amount']}")


@pytest.mark.parametrize(
    ("migrate", "why"),
    [
        (None, "declares no migrate_arguments"),
        (_raise, "migrate_arguments failed: LookupError"),
        (lambda old, version: {"cents": "many"}, "migrate_arguments failed: InvalidArguments"),
        (lambda old, version: None, "migrate_arguments failed: InvalidArguments"),
    ],
    ids=["undeclared", "raises", "makes what does not fit", "makes nothing"],
)
def test_what_nobody_can_migrate_is_held_for_a_person_whatever_policy_says(
    start: Start, migrate: Any, why: str
) -> None:
    run, _ = parked(start)
    with redeployed(migrate_arguments=migrate, approval_policy=Approve(when="false")) as script:
        drive(run)
        assert (run.state, run.wake_at, script.calls) == ("WAITING_FOR_APPROVAL", None, [])
        assert why in request_of(run).asked_because
        assert "cents" in request_of(run).asked_because
        propose_in_place(run, cents=7)
        sign(run)
        drive(run)
    assert (run.state, [call.arguments for call in script.calls]) == ("COMPLETED", [{"cents": 7}])
    assert outcomes_of(run) == [("CANCELLED", "changed", OLD), ("COMMITTED", "", {"cents": 7})]


def test_a_person_may_deny_it(start: Start) -> None:
    run, _ = parked(start)
    with redeployed() as script:
        drive(run)
        say(request_of(run), person(), "deny")
        drive(run)
    assert (run.state, script.calls) == ("FAILED", [])
    assert operations_of(run)[-1].never_sent == "denied"


def test_nobody_can_sign_what_does_not_fit(start: Start) -> None:
    run, _ = held(start)
    approval = request_of(run)
    with redeployed(approval_policy=Approve()), pytest.raises(ToolChanged, match="cents"):
        say(approval, person())
    approval.refresh_from_db()
    assert (approval.status, approval.verdicts.count()) == ("pending", 0)


def test_what_was_signed_before_and_does_not_fit_is_not_sent(start: Start) -> None:
    run, old_script = held(start)
    signed = sign(run)
    with redeployed(approval_policy=Approve()) as script:
        drive(run)
    assert (run.state, script.calls, old_script.calls) == ("WAITING_FOR_APPROVAL", [], [])
    assert request_of(run).supersedes_id == signed.id
    assert outcomes_of(run) == [("AWAITING_APPROVAL", "", {"amount": 700})]


def test_what_fits_as_it_stands_is_sent_only_once_a_person_says_that_it_means_the_same(
    start: Start,
) -> None:
    run, _ = parked(start)
    with isolated_registry():
        script = pay_any("paid", approval_policy=Approve(when="false"))
        drive(run)
        assert (run.state, script.calls) == ("WAITING_FOR_APPROVAL", [])
        assert request_of(run).covered["arguments"] == OLD
        sign(run)
        drive(run)
        after = pay_version()
    assert (run.state, [call.arguments for call in script.calls]) == ("COMPLETED", [OLD])
    old, new = operations_of(run)
    assert (old.never_sent, new.arguments_version, new.status) == ("changed", after, "COMMITTED")


def test_arguments_that_fit_but_are_stored_otherwise_today_are_not_sent_as_they_stand(
    start: Start,
) -> None:
    run, _ = parked(start)
    script = Script("paid")
    with isolated_registry():

        @tool(name="pay", **DEPLOYED)
        def act(call: Call, amount: int, currency: str = "EUR") -> Any:
            """Pay."""
            return script(call)

        drive(run)
        assert outcomes_of(run) == [("AWAITING_APPROVAL", "", OLD)]
        with pytest.raises(ToolChanged, match="another one"):
            say(request_of(run), person())
        propose_in_place(run, amount=1, currency="USD")
        sign(run)
        drive(run)
    assert [call.arguments for call in script.calls] == [{"amount": 1, "currency": "USD"}]


def test_no_resource_is_asked_for_by_what_does_not_fit(start: Start) -> None:
    run, _ = parked(start)
    asked: list[Call] = []

    def version(call: Call) -> str:
        asked.append(call)
        return "1"

    with redeployed(resource_version=version):
        drive(run)
    assert (run.state, asked) == ("WAITING_FOR_APPROVAL", [])


def test_what_is_hidden_is_hidden_in_what_a_person_is_told(start: Start) -> None:
    sent = Script()

    @tool(effect_type=EffectType.IDEMPOTENT_WRITE, provider=KEYED, sensitive=("card",))
    def wire(call: Call, card: str) -> Any:
        """Wire."""
        raise NotSent("no route")

    run = start(
        decider=lambda context: CallTools(ToolCall("wire", card="4242424242")), tools=("wire",)
    )
    drive(run)
    make_due(run)

    def migrate(arguments: dict[str, Any], from_version: str) -> dict[str, Any]:
        raise ValueError(f"what is {arguments['card']}?")

    with isolated_registry():

        @tool(
            name="wire",
            effect_type=EffectType.IDEMPOTENT_WRITE,
            provider=KEYED,
            migrate_arguments=migrate,
        )
        def wire_to(call: Call, account: str) -> Any:
            """Wire."""
            return sent(call)

        drive(run)
        approval = request_of(run)
    assert "ValueError" in approval.asked_because
    journal = [entry.reason for entry in run.journal.all()]
    assert not any("4242" in text for text in (approval.asked_because, *journal))


# -- What people are asked ------------------------------------------------------


def test_a_denial_of_other_arguments_is_no_denial_of_these(start: Start) -> None:
    run, _ = held(start)
    say(request_of(run), person(), "deny")

    def insist(context: Context) -> Decision:
        return CallTools(ToolCall("pay", amount=700))

    object.__setattr__(get_agent(run.agent), "decider", insist)
    with isolated_registry():
        pay_any("paid", approval_policy=Approve())
        drive(run)
    # The words are the same; what they mean is asked about.
    assert run.state == "WAITING_FOR_APPROVAL"
    assert [status for status, _ in requests_of(run)] == ["denied", "pending"]


def test_a_proposal_that_only_repeats_what_is_stored_is_no_change(start: Start) -> None:
    run, _ = held(start)
    with isolated_registry():
        pay_any("paid", approval_policy=Approve())
        with pytest.raises(InvalidInput, match="what was asked for"):
            propose_in_place(run, amount=700)


def test_nobody_is_told_in_the_words_of_a_tool_that_takes_other_arguments(start: Start) -> None:
    run, _ = held(start, describe="Pay {amount}")
    approval = request_of(run)
    assert describe(approval) == "Pay 700"
    with isolated_registry():
        pay_any("paid", describe="Pay {amount} cents")
        assert describe(approval) == ""


# -- What repeats another one's effect -----------------------------------------


def test_what_repeats_anothers_effect_once_it_is_migrated_is_asked_about(start: Start) -> None:
    run, _ = parked(start)
    declared = {"intent_scope": "global", "on_repeated_intent": "ask"}
    with redeployed("paid", migrate_arguments=in_cents, **declared) as script:
        other = start(decider=call_once(ToolCall("pay", cents=100)), tools=("pay",))
        drive(other)
        [paid] = operations_of(other)
        assert paid.status == "COMMITTED"
        drive(run)
    assert (run.state, len(script.calls)) == ("WAITING_FOR_APPROVAL", 1)
    assert operations_of(run)[-1].repeats_id == paid.id

"""Whoever was told that a call takes long hears of its end, at an address of their own."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models.functions import Now
from pytest_django import Settings

from agentops.models import ApiToken, Delivery
from agentops.notifications import handing_on, sending
from agentops.notifications.receivers import MOST_LANES, secret_of
from runs.access import Actor, operator
from runs.commands import cancel_run
from runs.engine import advance
from runs.gateway.accepting import Asked, accept_call
from runs.gateway.calling import Called, look_at_call
from runs.models import AgentRun, Approval, GatewayCall, Notice, ToolOperation
from runs.resolution import resolve_operation
from tests.database.approving import acting, person, say
from tests.database.callers import Caller, caller
from tests.database.kit import LOST, call_once, scripted_tool
from tests.database.notifying import NOBODY, Kind, Receiver, notice_of, turn_on_webhooks
from tests.database.test_approvals_proposals import suggest
from tools import Approve

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)

ACTOR = Actor(name="agent elsewhere", scopes=operator().scopes, token=4711)
NEVER = Approve(when="false")


def call(*, key: str = "k1", wait: float = 0.0, actor: Actor = ACTOR) -> GatewayCall:
    asked = Asked(tool="pay", arguments={"amount": 1}, key=key)
    return accept_call(actor=actor, asked=asked, wait_seconds=wait).call


def carry_out(asked: GatewayCall) -> AgentRun:
    assert asked.run_id is not None
    advance(run_id=asked.run_id, owner="worker 1")
    return AgentRun.objects.get(id=asked.run_id)


def told() -> list[tuple[str, str]]:
    """Of which calls, and what they came to."""
    found = Notice.objects.filter(kind=Kind.OPERATION_SETTLED).order_by("id")
    return list(found.values_list("operation_id", "status"))


def test_a_call_that_nobody_waits_for_any_more_is_told_with_what_it_came_to() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    asked = call()
    assert carry_out(asked).state == "COMPLETED"
    assert told() == [(asked.operation_id, "COMMITTED")]


def test_what_its_caller_waits_for_is_the_answer_and_no_notice() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    carry_out(call(wait=60))
    assert ToolOperation.objects.get().status == "COMMITTED"
    assert told() == []


def test_a_caller_whose_time_is_nearly_over_is_told_besides() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    asked = call(wait=3)
    carry_out(asked)
    assert told() == [(asked.operation_id, "COMMITTED")]


def test_a_call_that_is_refused_late_is_told_too() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    asked = call()
    GatewayCall.objects.update(arguments={"amount": "no number"})
    carry_out(asked)
    assert told() == [(asked.operation_id, "CANCELLED")]


def test_a_call_that_needed_a_signature_is_told_though_its_caller_could_have_waited() -> None:
    # Answered with 202 long before the time that it would have waited is over.
    scripted_tool("paid", approval_policy=Approve())
    asked = call(wait=60)
    run = carry_out(asked)
    assert (run.state, told()) == ("WAITING_FOR_APPROVAL", [])
    say(Approval.objects.get(), person())
    assert carry_out(asked).state == "COMPLETED"
    assert told() == [(asked.operation_id, "COMMITTED")]


def test_what_a_person_put_in_its_place_is_told_under_the_id_that_the_caller_knows() -> None:
    scripted_tool("paid less", approval_policy=Approve())
    asked = call(wait=60)
    carry_out(asked)
    suggest(Approval.objects.get(), person("robin"), arguments={"amount": 0})
    carry_out(asked)
    assert told() == []
    say(Approval.objects.get(status="pending"), person())
    carry_out(asked)
    assert told() == [(asked.operation_id, "COMMITTED")]
    found = look_at_call(actor=ACTOR, operation_id=str(asked.operation_id))
    assert isinstance(found, Called)
    assert found.operation is not None
    assert found.operation.arguments == {"amount": 0}


def test_the_end_of_an_unknown_call_is_told_whoever_settles_it() -> None:
    scripted_tool(LOST, approval_policy=NEVER, provider=None)
    asked = call(wait=60)
    carry_out(asked)
    assert told() == []
    ToolOperation.objects.update(needs_person_since=Now())
    resolve_operation(
        actor=acting(person()),
        operation_id=str(asked.operation_id),
        outcome="rejected",
        evidence="the bank says so",
    )
    carry_out(asked)
    assert told() == [(asked.operation_id, "REJECTED")]


@pytest.mark.parametrize("slipped_in", [False, True])
def test_a_call_that_its_run_never_took_up_is_told_unless_its_caller_waits(
    slipped_in: bool,
) -> None:
    scripted_tool(approval_policy=NEVER)
    first, second = (_call_in_thread(key=f"k{n}", wait=60 * n) for n in (0, 1))
    assert first.run_id is not None
    cancel_run(actor=operator(), run_id=first.run_id)
    if slipped_in:
        # Whoever wrote it had not seen that the run was about to end.
        GatewayCall.objects.update(taken_at=Now())
    assert carry_out(first).state == "CANCELLED"
    if slipped_in:
        assert told() == []
        GatewayCall.objects.update(taken_at=None)
    for asked in (first, first, second):
        look_at_call(actor=ACTOR, operation_id=str(asked.operation_id))
    assert GatewayCall.objects.filter(taken_at=None).count() == 0
    assert told() == [(first.operation_id, "CANCELLED")]


def _call_in_thread(*, key: str, wait: float) -> GatewayCall:
    asked = Asked(tool="pay", arguments={"amount": 1}, key=key, thread="t")
    return accept_call(actor=ACTOR, asked=asked, wait_seconds=wait).call


def test_what_no_call_asked_for_is_told_to_nobody(start: Callable[..., AgentRun]) -> None:
    scripted_tool("paid", approval_policy=NEVER)
    run = start(decider=call_once(), tools=("pay",))
    advance(run_id=run.id, owner="worker 1")
    assert ToolOperation.objects.get().status == "COMMITTED"
    assert told() == []


# -- Addresses -------------------------------------------------------------------------------


@pytest.fixture
def settled() -> tuple[Caller, str]:
    """A call of a token, settled after its caller was answered: (who, operation)."""
    scripted_tool("paid", "paid", approval_policy=NEVER)
    api = caller("operations:call:*")
    said = api.post("operations/", {"tool": "pay", "arguments": {}, "wait_seconds": 0}, key="k1")
    assert said.status_code == 202
    carry_out(GatewayCall.objects.get())
    Notice.objects.exclude(kind=Kind.OPERATION_SETTLED).update(handed_on_at=Now())
    return api, said.json()["operation_id"]


def test_a_token_s_own_address_is_told_of_its_calls_signed_with_a_secret_of_its_own(
    settled: tuple[Caller, str], settings: Settings
) -> None:
    with Receiver() as everybody, Receiver() as own, Receiver() as stranger:
        turn_on_webhooks(settings, everybody.url)
        ApiToken.objects.update(webhook_url=own.url)
        another = caller("operations:call:*")
        ApiToken.objects.exclude(webhook_url=own.url).update(webhook_url=stranger.url)
        assert another.token
        # Neither the others' secret nor anybody else's: the receiver verifies what comes.
        own.secret = secret_of(own.url)
        assert len({secret_of(one.url) for one in (everybody, own, stranger)}) == 3
        assert sending.run_once().sent == 2
    for receiver in (everybody, own):
        (event,) = receiver.received
        assert event.said["type"] == "operation.settled"
        assert event.said["data"]["operation_id"] == settled[1]
        assert event.said["data"]["status"] == "COMMITTED"
        assert event.said["data"]["tool"] == "pay"
    assert stranger.received == []


def test_a_token_s_address_hears_of_nothing_but_its_calls(
    settled: tuple[Caller, str], settings: Settings
) -> None:
    turn_on_webhooks(settings)
    ApiToken.objects.update(webhook_url=NOBODY)
    notice_of(AgentRun.objects.get(), Kind.OPERATION_UNKNOWN, operation_id=settled[1])
    Notice.objects.update(handed_on_at=None)
    assert Notice.objects.filter(kind=Kind.RUN_FINISHED).exists()
    handing_on.run_once()
    assert Delivery.objects.get().notice.kind == Kind.OPERATION_SETTLED


@pytest.mark.parametrize("change", ["expires", "leaves"])
def test_who_may_not_use_a_token_any_more_is_told_nothing(
    settled: tuple[Caller, str], settings: Settings, change: str
) -> None:
    with Receiver() as own:
        turn_on_webhooks(settings)
        own.secret = secret_of(own.url)
        ApiToken.objects.update(webhook_url=own.url)
        handing_on.run_once()
        assert Delivery.objects.get().status == "pending"
        if change == "expires":
            ApiToken.objects.update(expires_at=Now())
        else:
            token = ApiToken.objects.get()
            token.user.is_active = False
            token.user.save()
        assert sending.run_once().sent == 0
        assert own.received == []
        ApiToken.objects.update(expires_at=Now() + timedelta(days=1))
        ApiToken.objects.get().user.__class__.objects.update(is_active=True)
        assert sending.run_once().sent == 1


def test_many_addresses_that_are_down_keep_no_sweep_longer_than_a_few(settings: Settings) -> None:
    scripted_tool(*["paid"] * (MOST_LANES + 3), approval_policy=NEVER)
    turn_on_webhooks(settings)
    for number in range(MOST_LANES + 3):
        api = caller("operations:call:*")
        api.post("operations/", {"tool": "pay", "arguments": {}, "wait_seconds": 0}, key="k")
        carry_out(GatewayCall.objects.latest("id"))
        newest = ApiToken.objects.latest("id")
        ApiToken.objects.filter(pk=newest.pk).update(webhook_url=f"{NOBODY}/{number}")
    handing_on.run_once()
    assert Delivery.objects.count() == MOST_LANES + 3
    assert sending.run_once().to_be_tried_again == MOST_LANES
    # The rest is tried next: those that were waited for longest.
    assert sending.run_once().to_be_tried_again == 3


@pytest.mark.parametrize(
    "url", ["http://example.com/hook", "ftp://a/b", "https://u:p@example.com/", "https://a b/"]
)
def test_an_address_that_is_not_safe_is_refused_and_no_token_made(
    settings: Settings, url: str
) -> None:
    turn_on_webhooks(settings)
    with pytest.raises(CommandError, match="webhook_url"):
        create("--webhook-url", url)
    assert not ApiToken.objects.exists()


def test_without_a_secret_to_make_one_from_no_address_is_taken(settings: Settings) -> None:
    settings.AGENTOPS_WEBHOOK_SECRET = ""
    with pytest.raises(CommandError, match="AGENTOPS_WEBHOOK_SECRET"):
        create("--webhook-url", "https://example.com/hook")


def test_whoever_makes_a_token_is_told_what_its_webhooks_are_signed_with(
    settings: Settings, capsys: Any
) -> None:
    turn_on_webhooks(settings)
    create("--webhook-url", "https://example.com/hook")
    assert ApiToken.objects.get().webhook_url == "https://example.com/hook"
    assert secret_of("https://example.com/hook") in capsys.readouterr().out


def create(*options: str) -> None:
    call_command("create_token", "elsewhere", "--scopes", "operations:call:*", *options)

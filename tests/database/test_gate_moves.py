"""Policies that move, calls that race over a limit, and changes that people propose."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from threading import Thread

import pytest
from django.db import connection

from approvals.commands import propose
from approvals.errors import NotThisPerson
from approvals.policies import resume_sending, stop_sending
from runs import CallTools, Context, Decision, Finish, ToolCall, events
from runs.access import operator
from runs.commands import resume_run
from runs.models import AgentRun, Notice
from tests.database.approving import acting, person, say
from tests.database.gating import (
    PAID,
    Start,
    held,
    operations_of,
    pay_and_tell,
    request_of,
    requests_of,
    sign,
)
from tests.database.kit import KEYED, drive, drive_when_due, operation_of, scripted_tool, verdicts
from tests.database.policy_rows import save_row
from tools import Approve, Call, EffectType, tool

pytestmark = pytest.mark.django_db(transaction=True)

# A new run commits its step before it decides; the next commit is that of the intent.
NEW_RUN = 2


@contextmanager
def before_the_intent(work: Callable[[], object], *, nth: int = 1) -> Iterator[None]:
    """Somebody else acts just before the commit that opens a send."""
    seen = 0

    def act(event: events.Event) -> None:
        nonlocal seen
        if event.name is events.Name.COMMIT_STARTING:
            seen += 1
            if seen == nth:
                elsewhere = Thread(target=_and_close, args=(work,))
                elsewhere.start()
                elsewhere.join()

    unsubscribe = events.subscribe(act)
    try:
        yield
    finally:
        unsubscribe()
    assert seen >= nth


def _and_close(work: Callable[[], object]) -> None:
    try:
        work()
    finally:
        connection.close()


def stop() -> None:
    stop_sending(actor=operator(), tool="pay", reason="the provider is on fire")


def resume() -> None:
    resume_sending(actor=operator(), tool="pay", reason="it is out")


def test_while_sending_is_stopped_nothing_leaves_and_then_it_does(start: Start) -> None:
    run, script = held(start)
    sign(run)
    stop()
    drive(run)
    assert (script.calls, run.state) == ([], "TOOL_PREPARED")
    assert "on fire" in operation_of(run).error
    resume()
    drive(run)
    assert (run.state, len(script.calls)) == ("COMPLETED", 1)


def test_whoever_stops_before_the_intent_is_committed_is_heard(start: Start) -> None:
    run, script = held(start)
    sign(run)
    with before_the_intent(stop):
        drive(run)
    assert (script.calls, run.state) == ([], "TOOL_PREPARED")
    assert verdicts(run) == [("worker", "not_sent")]
    assert requests_of(run) == [("approved", False)]
    resume()
    drive(run)
    assert (run.state, len(script.calls)) == ("COMPLETED", 1)
    assert requests_of(run) == [("approved", True)]


def test_a_policy_that_tightens_before_the_intent_is_committed_holds(start: Start) -> None:
    script = scripted_tool(PAID, max_attempts=1)
    run = start(decider=pay_and_tell(), tools=("pay",))
    with before_the_intent(lambda: save_row("all", tool="pay"), nth=NEW_RUN):
        drive(run)
    drive_when_due(run)
    assert (script.calls, run.state) == ([], "WAITING_FOR_APPROVAL")
    sign(run)
    drive(run)
    # What was withheld was no try: the only one that the tool allows is left.
    assert (run.state, len(script.calls)) == ("COMPLETED", 1)


def test_of_calls_that_race_over_a_limit_not_more_leave_than_it_allows(start: Start) -> None:
    save_row("few", tool="pay", when="window.count > 1", window_seconds=300, window_by="all")
    script = scripted_tool(PAID, PAID)
    first, second = (start(decider=pay_and_tell(), tools=("pay",)) for _ in range(2))
    with before_the_intent(lambda: drive(second), nth=NEW_RUN):
        drive(first)
    drive_when_due(first)
    assert second.state == "COMPLETED"
    assert (first.state, len(script.calls)) == ("WAITING_FOR_APPROVAL", 1)
    assert "few" in request_of(first).rule


def test_money_of_a_window_counts_what_may_have_been_spent(start: Start) -> None:
    save_row(
        "much",
        tool="pay",
        when="window.total > 1000.0",
        window_seconds=300,
        window_by="agent",
        window_money="amount",
    )
    script = scripted_tool(PAID, TimeoutError("no answer"), PAID)

    def decide(context: Context) -> Decision:
        calls = [ToolCall("pay", amount=amount) for amount in (400, 600, 1)]
        return CallTools(*calls) if context.last is None else Finish("paid")

    run = start(decider=decide, tools=("pay",))
    drive(run)
    assert [one.status for one in operations_of(run)] == ["COMMITTED", "UNKNOWN", "PREPARED"]
    drive_when_due(run)
    assert [call.arguments["amount"] for call in script.calls] == [400, 600, 600]
    # The next makes it 1,001.
    assert run.state == "WAITING_FOR_APPROVAL"


def test_how_sure_the_decider_is_may_decide_who_must_sign(start: Start) -> None:
    save_row("unsure", tool="pay", when="confidence != null && confidence < 0.5")
    scripted_tool(PAID, PAID)

    def decide_with(confidence: float) -> Callable[[Context], Decision]:
        def decide(context: Context) -> Decision:
            if context.last is not None:
                return Finish("paid")
            return CallTools(ToolCall("pay"), rationale="it says so", confidence=confidence)

        return decide

    sure, unsure = (start(decider=decide_with(part), tools=("pay",)) for part in (0.9, 0.2))
    drive(sure)
    drive(unsure)
    assert (sure.state, unsure.state) == ("COMPLETED", "WAITING_FOR_APPROVAL")


def test_what_was_denied_is_not_asked_about_again_and_then_the_run_pauses(start: Start) -> None:
    script = scripted_tool(approval_policy=Approve())

    def insist(context: Context) -> Decision:
        if len(context.observations) < 9:
            return CallTools(ToolCall("pay", amount=700))
        return Finish("at last")

    run = start(decider=insist, tools=("pay",))
    drive(run)
    say(request_of(run), person("ida"), "deny", reason="no")
    drive(run)
    assert (run.state, run.wake_at) == ("READY", None)
    assert run.paused_at is not None
    assert len(requests_of(run)) == 1
    refused = operations_of(run)[1:]
    assert {(one.never_sent, one.status) for one in refused} == {("denied", "CANCELLED")}
    assert all("denied by ida: no" in one.error for one in refused)
    assert len(refused) == 4
    assert Notice.objects.filter(run=run, kind="run.paused").count() == 1
    resume_run(actor=operator(), run_id=run.id)
    drive(run)
    assert run.paused_at is not None  # it went on, and insisted again
    assert len(operations_of(run)) == 6
    assert script.calls == []


def test_another_action_after_a_denial_is_asked_about(start: Start) -> None:
    scripted_tool(approval_policy=Approve())

    def decide(context: Context) -> Decision:
        return CallTools(ToolCall("pay", amount=700 - len(context.observations)))

    run = start(decider=decide, tools=("pay",))
    drive(run)
    say(request_of(run), person(), "deny")
    drive(run)
    assert [status for status, _ in requests_of(run)] == ["denied", "pending"]


def propose_500(run: AgentRun, name: str = "ida", **others: str) -> None:
    asked, user = request_of(run), person(name)
    propose(
        actor=acting(user),
        user=user,
        approval_id=asked.id,
        arguments={"amount": 500, **others},
        fingerprint=asked.fingerprint,
        reason="half",
    )
    drive(run)


def test_a_change_is_another_action_that_others_must_sign(start: Start) -> None:
    run, script = held(start, approval_policy=Approve(when="amount > 600"))
    first = request_of(run)
    propose_500(run)
    old, new = operations_of(run)
    asked = request_of(run)
    assert (run.state, script.calls) == ("WAITING_FOR_APPROVAL", [])
    assert (old.status, old.never_sent) == ("CANCELLED", "changed")
    assert (new.id != old.id, new.ordinal, new.revision) == (True, 0, 1)
    assert (new.holds_intent is not None, old.holds_intent) == (True, None)
    assert (asked.requester, asked.supersedes_id) == ("ida", first.id)
    assert asked.fingerprint != first.fingerprint
    # Policy would allow it: a person's change needs a signature all the same, and not their own.
    with pytest.raises(NotThisPerson):
        say(asked, asked.requester_user)
    sign(run)
    drive(run)
    assert run.state == "COMPLETED"
    assert [call.arguments for call in script.calls] == [{"amount": 500}]
    [told_old, told_new] = run.result
    assert told_old[:2] == ["CANCELLED", "changed"]
    assert new.id in told_old[2]
    assert told_new == ["COMMITTED", "", "", {"amount": 500}]


def test_a_change_runs_in_the_place_of_what_it_replaces(start: Start) -> None:
    script = scripted_tool(PAID, PAID, approval_policy=Approve(when="amount > 600"))

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("pay", amount=700), ToolCall("pay", amount=1))
        return Finish("paid")

    run = start(decider=decide, tools=("pay",))
    drive(run)
    propose_500(run)
    sign(run)
    drive(run)
    assert [call.arguments["amount"] for call in script.calls] == [500, 1]


def test_a_change_that_policy_refuses_is_not_sent_and_the_decider_is_told(start: Start) -> None:
    run, script = held(start)
    save_row("never 500", tool="pay", when="amount == 500", outcome="refuse")
    propose_500(run)
    assert script.calls == []
    assert run.state == "COMPLETED"
    assert [told[1] for told in run.result] == ["changed", "refused"]


def test_a_denied_amount_that_is_spelled_another_way_is_the_same(start: Start) -> None:
    sent: list[Decimal] = []

    @tool(effect_type=EffectType.IDEMPOTENT_WRITE, provider=KEYED, approval_policy=Approve())
    def refund(call: Call, amount: Decimal) -> None:
        """Refund."""
        sent.append(amount)

    def insist(context: Context) -> Decision:
        return CallTools(ToolCall("refund", amount="700." + "0" * len(context.observations)))

    run = start(decider=insist, tools=("refund",))
    drive(run)
    say(request_of(run), person(), "deny")
    drive(run)
    assert run.paused_at is not None
    assert (len(requests_of(run)), sent) == (1, [])

"""Repeats, races and ends: what a signature carries, and what it does not."""

from threading import Thread
from typing import Any

import pytest
from django.db import OperationalError, connection

from approvals.commands import propose
from approvals.policies import resume_sending, stop_sending
from runs import CallTools, Context, Decision, Finish, ToolCall, events, gate, judging, planning
from runs.access import operator
from runs.commands import cancel_run
from runs.models import AgentRun, Notice
from runs.timeline import read_timeline
from tests.database.approving import acting, person, say
from tests.database.gating import (
    PAID,
    Start,
    held,
    operations_of,
    pay_and_tell,
    request_of,
    requests_of,
    run_out_unused,
    sign,
)
from tests.database.kit import (
    KEYED,
    LOST,
    PLAIN,
    Script,
    another_connection,
    ask,
    drive,
    drive_in_time,
    drive_when_due,
    let_pass,
    make_due,
    operation_of,
    scripted_tool,
)
from tests.database.policy_rows import save_row
from tests.database.test_gate_moves import before_the_intent, propose_500
from tests.processes import wait_until
from tools import Approve, Call, EffectType, NotSent, Reconciled, policy_store, registry, tool

pytestmark = pytest.mark.django_db(transaction=True)


def elsewhere(work: Any) -> None:
    """In another thread, over another connection."""

    def act() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = Thread(target=act)
    thread.start()
    thread.join()


def stop() -> None:
    stop_sending(actor=operator(), tool="pay", reason="the provider is on fire")


def decided(run: AgentRun) -> list[str]:
    rows = Notice.objects.filter(run=run, kind="approval.decided").order_by("id")
    return list(rows.values_list("status", flat=True))


# -- Repeats -------------------------------------------------------------------


def test_whoever_stops_during_a_look_up_is_heard_before_the_repeat(start: Start) -> None:
    def stop_and_find_nothing(call: object) -> Reconciled[Any]:
        elsewhere(stop)
        return Reconciled.not_found()

    run, script = held(start, LOST, PAID, look_up=Script(stop_and_find_nothing))
    sign(run)
    drive(run)
    make_due(run)
    drive(run)
    assert len(script.calls) == 1
    assert (operation_of(run).status, run.state) == ("UNKNOWN", "TOOL_STATUS_UNKNOWN")
    assert "on fire" in operation_of(run).error


def test_a_repeat_by_another_version_of_the_tool_is_a_persons(start: Start) -> None:
    run, script = held(start, LOST, PAID, look_up=Script(*[Reconciled.not_found()] * 3))
    sign(run)
    drive(run)
    object.__setattr__(registry.get_tool("pay"), "version", "another")
    drive_in_time(run)
    assert (run.state, len(script.calls)) == ("WAITING_FOR_RESOLUTION", 1)
    assert "tool_version" in operation_of(run).error


def test_a_denied_repetition_is_not_asked_about_without_end(start: Start) -> None:
    script = scripted_tool(PAID, on_repeated_intent="ask")

    def insist(context: Context) -> Decision:
        if len(context.observations) > 15:
            return Finish("at last")
        return CallTools(ToolCall("pay", amount=700))

    run = start(decider=insist, tools=("pay",))
    drive(run)
    assert (run.state, len(script.calls)) == ("WAITING_FOR_APPROVAL", 1)
    say(request_of(run), person(), "deny")
    drive(run)
    assert run.paused_at is not None
    assert len(requests_of(run)) == 1


# -- Races ---------------------------------------------------------------------


def test_a_stop_that_another_thread_hears_of_between_two_looks_is_heard(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, script = held(start)
    sign(run)
    real, raced = gate.find_stop_now, []

    def look_and_be_overtaken(*looked_at: Any) -> str:
        answer = real(*looked_at)
        if not raced:
            raced.append(True)
            elsewhere(lambda: (stop(), policy_store.refresh(None)))
        return answer

    monkeypatch.setattr(gate, "find_stop_now", look_and_be_overtaken)
    drive(run)
    assert (script.calls, raced) == ([], [True])


def test_policies_that_cannot_be_asked_once_the_intent_is_durable_let_nothing_leave(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_row("few", tool="pay", when="window.count > 100", window_seconds=60, window_by="all")
    script = scripted_tool(PAID, provider=PLAIN, effect=EffectType.NON_IDEMPOTENT_WRITE)
    run = start(decider=pay_and_tell(), tools=("pay",))
    real, looks = judging.read_window, []

    def fail_the_second_time(*asked: Any) -> Any:
        looks.append(True)
        if len(looks) == 2:
            raise OperationalError("statement timeout")
        return real(*asked)

    monkeypatch.setattr(judging, "read_window", fail_the_second_time)
    drive(run)
    assert script.calls == []
    assert operation_of(run).status == "PREPARED"
    drive_when_due(run)
    assert (run.state, len(script.calls)) == ("COMPLETED", 1)


def test_a_change_whose_intent_is_taken_meanwhile_is_read_anew(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = scripted_tool(
        PAID, intent_scope="global", approval_policy=Approve(when="amount > 600")
    )
    run = start(decider=pay_and_tell(), tools=("pay",))
    other = start(decider=pay_and_tell(500), tools=("pay",))
    drive(run)
    real, raced = planning.find_holders, []

    def find_and_be_overtaken(names: Any) -> dict[str, str]:
        found = real(names)
        if not raced:
            raced.append(True)
            elsewhere(lambda: drive(other))
        return found

    monkeypatch.setattr(planning, "find_holders", find_and_be_overtaken)
    propose_500(run)
    drive_when_due(run)
    assert run.error == ""
    assert [told[1] for told in run.result] == ["changed", "refused"]
    assert [call.run_id for call in script.calls] == [str(other.id)]


# -- What a person changed -----------------------------------------------------


def test_a_signed_change_spends_its_signature_though_policy_would_allow_it(start: Start) -> None:
    run, _ = held(start, approval_policy=Approve(when="amount > 600", groups=("finance",)))
    asked = request_of(run)
    ida = person("ida", "finance")
    propose(
        actor=acting(ida),
        user=ida,
        approval_id=asked.id,
        arguments={"amount": 500},
        fingerprint=asked.fingerprint,
        reason="half",
    )
    drive(run)
    assert request_of(run).groups == ["finance"]
    say(request_of(run), person(None, "finance"))
    drive(run)
    assert run.state == "COMPLETED"
    assert requests_of(run)[-1] == ("approved", True)


def test_a_signed_change_that_ran_out_is_asked_about_anew(start: Start) -> None:
    run, script = held(start, approval_policy=Approve(when="amount > 600"))
    propose_500(run)
    sign(run)
    run_out_unused(request_of(run))
    drive(run)
    assert (script.calls, run.state) == ([], "WAITING_FOR_APPROVAL")


def test_a_signed_change_of_a_resource_that_moved_is_asked_about_anew(start: Start) -> None:
    version = ["7"]
    run, script = held(
        start,
        approval_policy=Approve(when="amount > 600"),
        resource_version=lambda call: version[0],
    )
    propose_500(run)
    sign(run)
    version[0] = "8"
    drive(run)
    assert (script.calls, run.state) == ([], "WAITING_FOR_APPROVAL")
    assert operations_of(run)[-1].revision == 1


# -- Ends ----------------------------------------------------------------------


def test_a_call_that_is_given_up_takes_its_signature_with_it(start: Start) -> None:
    run, _ = held(start, NotSent("no route"), max_attempts=1)
    sign(run)
    drive(run)
    assert operation_of(run).never_sent == "given_up"
    assert requests_of(run) == [("cancelled", False)]


def test_everybody_hears_of_a_request_that_the_kernel_ends(start: Start) -> None:
    version = ["7"]
    run, _ = held(start, resource_version=lambda call: version[0])
    sign(run)
    version[0] = "8"
    drive(run)
    assert decided(run) == ["approved", "superseded"]
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    assert decided(run) == ["approved", "superseded", "cancelled"]


def test_a_window_counts_when_a_call_left_and_not_when_it_was_first_tried(start: Start) -> None:
    save_row("few", tool="pay", when="window.count > 1", window_seconds=3600, window_by="all")
    script = scripted_tool(NotSent("no route"), PAID)
    first, second = (start(decider=pay_and_tell(), tools=("pay",)) for _ in range(2))
    drive(first)
    let_pass(hours=2)
    drive_when_due(first)
    drive(second)
    assert (first.state, second.state) == ("COMPLETED", "WAITING_FOR_APPROVAL")
    assert len(script.calls) == 2


# -- What the review of the gate asked -----------------------------------------


def test_a_stop_that_is_saved_while_the_intent_waits_for_a_lock_is_heard(start: Start) -> None:
    run, script = held(start)
    sign(run)
    locker = another_connection(autocommit=False)
    locked: list[Thread] = []

    def stop_and_let_go() -> None:
        try:
            wait_until(lambda: bool(ask(WAITING)), what="the intent waits for the lock")
            stop()
        finally:
            connection.close()
            locker.commit()

    def lock(event: events.Event) -> None:
        if event.name is events.Name.COMMIT_STARTING and not locked:
            locker.execute("SELECT 1 FROM runs_agentrun WHERE id = %s FOR NO KEY UPDATE", [run.id])
            locked.append(Thread(target=stop_and_let_go))
            locked[0].start()

    unsubscribe = events.subscribe(lock)
    try:
        drive(run)
    finally:
        unsubscribe()
        locked[0].join()
        locker.close()
    assert (script.calls, run.state) == ([], "TOOL_PREPARED")


WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' LIMIT 1"


def test_a_signature_that_runs_out_at_the_last_moment_is_asked_for_anew(start: Start) -> None:
    run, script = held(start)
    sign(run)
    with before_the_intent(lambda: run_out_unused(request_of(run))):
        drive(run)
    assert (script.calls, run.lease_owner) == ([], "")
    drive(run)
    assert requests_of(run) == [("superseded", False), ("pending", False)]


def test_a_change_of_a_held_repetition_is_asked_about(start: Start) -> None:
    sent = []

    @tool(
        effect_type=EffectType.IDEMPOTENT_WRITE,
        provider=KEYED,
        intent_key=("order",),
        on_repeated_intent="ask",
    )
    def refund(call: Call, order: str, amount: int) -> str:
        """Refund."""
        sent.append(amount)
        return "refunded"

    def twice(context: Context) -> Decision:
        if len(context.observations) < 2:
            return CallTools(ToolCall("refund", order="17", amount=700))
        return Finish("refunded")

    run = start(decider=twice, tools=("refund",))
    drive(run)
    assert (run.state, sent) == ("WAITING_FOR_APPROVAL", [700])
    propose_500(run, order="17")
    assert run.state == "WAITING_FOR_APPROVAL"
    assert operations_of(run)[-1].repeats_id == operations_of(run)[0].id
    sign(run)
    drive(run)
    assert sent == [700, 500]


def test_a_repetition_asks_those_whom_its_tool_names(start: Start) -> None:
    rule = Approve(when="amount > 1000", groups=("finance",))
    scripted_tool(PAID, on_repeated_intent="ask", approval_policy=rule)

    def twice(context: Context) -> Decision:
        return CallTools(ToolCall("pay", amount=700))

    run = start(decider=twice, tools=("pay",))
    drive(run)
    assert request_of(run).groups == ["finance"]


def test_a_call_that_policy_allows_by_now_is_sent_under_no_signature(start: Start) -> None:
    run, script = held(start)
    sign(run)
    save_row("fine", tool="pay", outcome="allow")
    drive(run)
    assert (run.state, len(script.calls)) == ("COMPLETED", 1)
    assert requests_of(run) == [("superseded", False)]
    sent = [one for one in read_timeline(run_id=run.id).items if one.kind == "operation.send"]
    assert [one.approval_id for one in sent] == [None]


def test_a_negative_amount_makes_no_room(start: Start) -> None:
    save_row(
        "much",
        tool="pay",
        when="window.total > 1000.0",
        window_seconds=300,
        window_by="all",
        window_money="amount",
    )
    scripted_tool(PAID, PAID, PAID)

    def decide(context: Context) -> Decision:
        calls = [ToolCall("pay", amount=amount) for amount in (900, -5000, 901)]
        return CallTools(*calls) if context.last is None else Finish("paid")

    run = start(decider=decide, tools=("pay",))
    drive(run)
    assert run.state == "WAITING_FOR_APPROVAL"
    assert request_of(run).covered["arguments"] == {"amount": 901}


def test_resuming_wakes_what_waits_to_be_repeated(start: Start) -> None:
    run, script = held(start, LOST, PAID, look_up=Script(*[Reconciled.not_found()] * 2))
    sign(run)
    drive(run)
    stop()
    drive_when_due(run)
    assert len(script.calls) == 1
    resume_sending(actor=operator(), tool="pay", reason="it is out")
    drive(run)
    assert (run.state, len(script.calls)) == ("COMPLETED", 2)

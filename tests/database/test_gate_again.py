"""Repeats, races and ends: what a signature carries, and what it does not."""

from threading import Thread
from typing import Any

import pytest
from django.db import OperationalError, connection

from approvals.commands import propose
from approvals.policies import stop_sending
from runs import CallTools, Context, Decision, Finish, ToolCall, gate, judging, planning
from runs.access import operator
from runs.commands import cancel_run
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
    run_out_unused,
    sign,
)
from tests.database.kit import (
    LOST,
    PLAIN,
    Script,
    drive,
    drive_in_time,
    drive_when_due,
    let_pass,
    make_due,
    operation_of,
    scripted_tool,
)
from tests.database.policy_rows import save_row
from tests.database.test_gate_moves import propose_500
from tools import Approve, EffectType, NotSent, Reconciled, policy_store, registry

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
    run_out_unused(run)
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

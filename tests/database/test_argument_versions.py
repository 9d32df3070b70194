"""A tool takes other arguments than those that are stored: before anything was sent."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import CallTools, Context, Decision, Finish, ToolCall, events
from runs.argument_versions import Judged, Outlook, judge_stored
from runs.models import ToolOperation
from tests.database.gating import PAID, held, pay_and_tell, request_of, requests_of, sign, tamper
from tests.database.kit import (
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    make_due,
    operation_edges,
    run_edges,
    scripted_tool,
)
from tests.database.policy_rows import save_row
from tests.database.redeploying import (
    Start,
    in_cents,
    old_worker_lives,
    operations_of,
    outcomes_of,
    parked,
    pay_any,
    pay_cents,
    pay_version,
    propose_in_place,
    redeployed,
)
from tools import Approve, EffectType, NotSent
from tools.registry import get_tool, isolated_registry

pytestmark = pytest.mark.django_db(transaction=True)

OLD = {"amount": 1}


# -- The tool says how ---------------------------------------------------------


def test_arguments_are_migrated_as_their_tool_says_into_an_action_of_its_own(start: Start) -> None:
    run, old_script = parked(start)
    before = pay_version()
    told: list[tuple[dict[str, Any], str]] = []

    def migrate(arguments: dict[str, Any], from_version: str) -> dict[str, Any]:
        told.append((arguments, from_version))
        return in_cents(arguments, from_version)

    with redeployed(migrate_arguments=migrate) as script:
        drive(run)
        after = pay_version()
    assert told == [(OLD, before)]
    assert (run.state, run.result) == ("COMPLETED", "paid")
    old, new = operations_of(run)
    assert outcomes_of(run) == [("CANCELLED", "changed", OLD), ("COMMITTED", "", {"cents": 100})]
    assert (old.arguments_version, new.arguments_version) == (before, after)
    assert (old.revision, new.revision, new.ordinal) == (0, 1, 0)
    assert new.id in old.error
    assert (old.holds_intent, new.holds_intent is not None) == (None, True)
    [call] = script.calls
    assert (call.operation_id, call.idempotency_key, call.attempt) == (new.id, new.id, 1)
    assert len(old_script.calls) == 1
    edges = ["INTEND", "SEND", "NOT_SENT", "REPLACE", "INTEND", "SEND", "COMMIT"]
    assert operation_edges(run) == edges


def test_a_migrated_call_needs_a_signature_of_its_own(start: Start) -> None:
    run, old_script = held(start)
    signed = sign(run)
    with redeployed(migrate_arguments=in_cents, approval_policy=Approve()) as script:
        drive(run)
        asked = request_of(run)
        assert (run.state, script.calls) == ("WAITING_FOR_APPROVAL", [])
        assert (asked.supersedes_id, asked.covered["arguments"]) == (signed.id, {"cents": 70000})
        assert "migrated" in asked.asked_because
        sign(run)
        drive(run)
    assert [call.arguments for call in script.calls] == [{"cents": 70000}]
    assert requests_of(run) == [("superseded", False), ("approved", True)]
    assert old_script.calls == []


def test_policy_judges_what_was_migrated(start: Start) -> None:
    run, _ = parked(start)
    save_row("never 100", tool="pay", when="cents == 100", outcome="refuse")
    with redeployed(migrate_arguments=in_cents) as script:
        drive(run)
    assert script.calls == []
    assert [one.never_sent for one in operations_of(run)] == ["changed", "refused"]
    # Nobody was asked in between.
    assert (run.state, "HOLD" in run_edges(run)) == ("FAILED", False)


def test_a_crash_in_the_migrated_call_is_recovered_like_any_other(start: Start) -> None:
    run, _ = parked(start)
    with redeployed(migrate_arguments=in_cents) as script:
        with dies_at(events.Name.CALL_STARTING):
            drive(run)
        expire_lease(run)
        drive(run)
        drive_when_due(run)
    assert (run.state, len(script.calls)) == ("COMPLETED", 1)
    assert [one.revision for one in operations_of(run)] == [0, 1]
    assert "SEND_AGAIN" in operation_edges(run)


def test_what_was_migrated_and_put_off_is_not_held_without_a_policy(start: Start) -> None:
    run, _ = parked(start)
    with redeployed(NotSent("no route"), "paid", migrate_arguments=in_cents):
        drive(run)
        make_due(run)
        drive(run)
    assert (run.state, requests_of(run)) == ("COMPLETED", [])


def test_a_person_s_change_stays_held_when_it_is_migrated(start: Start) -> None:
    run, _ = held(start, approval_policy=Approve(when="amount > 600"))
    propose_in_place(run, amount=500)
    sign(run)
    with redeployed(migrate_arguments=in_cents) as script:
        drive(run)
    assert (run.state, script.calls) == ("WAITING_FOR_APPROVAL", [])
    assert outcomes_of(run)[-1] == ("AWAITING_APPROVAL", "", {"cents": 50000})


def test_what_is_migrated_into_an_intent_that_is_carried_out_is_not_sent(start: Start) -> None:
    scripted_tool(NotSent("no route"))

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("pay", amount=1), ToolCall("pay", amount=2))
        return Finish([[one.status, one.never_sent] for one in context.observations])

    run = start(decider=decide, tools=("pay",))
    drive(run)
    make_due(run)
    with redeployed(migrate_arguments=lambda old, version: {"cents": 5}) as script:
        drive_when_due(run)
    assert len(script.calls) == 1
    changed = ["CANCELLED", "changed"]
    assert run.result == [changed, ["COMMITTED", ""], changed, ["CANCELLED", "refused"]]


def test_a_transactional_tool_is_migrated_like_any_other(start: Start) -> None:
    facts = {"effect": EffectType.TRANSACTIONAL, "provider": None}
    run, _ = parked(start, **facts)
    now = {"effect_type": EffectType.TRANSACTIONAL, "provider": None}
    with redeployed("booked", migrate_arguments=in_cents, **now):
        drive(run)
    assert outcomes_of(run)[-1] == ("COMMITTED", "", {"cents": 100})


def test_beside_others_one_is_migrated_and_all_are_answered(start: Start) -> None:
    read = {"effect": EffectType.READ, "provider": None}
    scripted_tool(NotSent("no route"), **read)
    scripted_tool(NotSent("no route"), name="look", **read)

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("pay", amount=1), ToolCall("look", amount=1))
        return Finish([one.status for one in context.observations])

    run = start(decider=decide, tools=("pay", "look"))
    drive(run)
    make_due(run)
    with isolated_registry():
        looked = scripted_tool("seen", name="look", **read)
        now = {"effect_type": EffectType.READ, "provider": None}
        script = pay_cents("paid", migrate_arguments=in_cents, **now)
        drive_when_due(run)
    assert [call.arguments for call in (*script.calls, *looked.calls)] == [{"cents": 100}, OLD]
    assert run.result == ["CANCELLED", "COMMITTED", "COMMITTED"]


# -- While the old deployment is alive -----------------------------------------


def test_it_is_left_to_a_living_worker_that_takes_its_arguments_as_they_are(start: Start) -> None:
    run, old_script = parked(start)
    before = pay_version()
    with redeployed(migrate_arguments=in_cents) as script, old_worker_lives(before):
        drive(run)
        assert (run.state, run.wake_at is not None) == ("TOOL_PREPARED", True)
        assert "may send it" in operations_of(run)[0].error
    make_due(run)
    drive(run)
    assert (run.result, script.calls) == ("sent by the old tool", [])
    assert [call.arguments for call in old_script.calls] == [OLD, OLD]
    assert len(operations_of(run)) == 1


def test_once_that_worker_is_gone_it_is_migrated(start: Start) -> None:
    run, _ = parked(start)
    before = pay_version()
    with redeployed(migrate_arguments=in_cents):
        with old_worker_lives(before):
            drive(run)
        make_due(run)
        drive(run)
    assert outcomes_of(run)[-1] == ("COMMITTED", "", {"cents": 100})


def test_what_a_living_worker_can_send_may_be_signed(start: Start) -> None:
    run, old_script = held(start)
    before = pay_version()
    with redeployed(approval_policy=Approve()), old_worker_lives(before):
        sign(run)
        drive(run)
    make_due(run)
    drive(run)
    assert [call.arguments for call in old_script.calls] == [{"amount": 700}]


# -- What counts as changed ----------------------------------------------------


def test_an_operation_that_recorded_no_version_is_sent_as_it_stands(start: Start) -> None:
    run, _ = parked(start)
    tamper("UPDATE runs_tooloperation SET arguments_version = '' WHERE run_id = %s", run.id)
    with isolated_registry():
        script = pay_any("paid")
        drive(run)
    assert [call.arguments for call in script.calls] == [OLD]


def test_a_change_of_policies_alone_migrates_nothing(start: Start) -> None:
    run, _ = parked(start)
    with isolated_registry():
        scripted_tool("paid", max_attempts=5, migrate_arguments=in_cents)
        drive(run)
    assert (run.state, len(operations_of(run))) == ("COMPLETED", 1)


# -- Before a deployment -------------------------------------------------------


def test_what_a_deployment_would_do_is_told_without_a_query(start: Start) -> None:
    run, _ = parked(start)
    [operation] = operations_of(run)
    sent = ToolOperation(id="sent", tool="pay", status="UNKNOWN", arguments=OLD)
    sent.arguments_version = operation.arguments_version
    closed = ToolOperation(id="closed", tool="pay", status="COMMITTED", arguments=OLD)
    gone = ToolOperation(id="gone", tool="no such tool", status="PREPARED", arguments=OLD)
    stored = [operation, sent, closed, gone]

    def outlooks() -> list[Outlook]:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            judged = judge_stored(stored)
        assert (len(queries), list(judged)) == (0, [operation.id, "sent"])
        return [one.outlook for one in judged.values()]

    assert outlooks() == [Outlook.UNCHANGED, Outlook.UNCHANGED]
    with redeployed(migrate_arguments=in_cents):
        assert outlooks() == [Outlook.MIGRATED, Outlook.LOOKED_UP]
    with redeployed():
        assert outlooks() == [Outlook.PERSON, Outlook.LOOKED_UP]
        judged: Judged = judge_stored([operation])[operation.id]
        assert "declares no migrate_arguments" in judged.why


def test_the_version_of_its_arguments_is_stored_with_every_call(start: Start) -> None:
    scripted_tool(PAID)
    run = start(decider=pay_and_tell(), tools=("pay",))
    drive(run)
    assert operations_of(run)[0].arguments_version == get_tool("pay").arguments_version
    assert "REPLACE" not in run_edges(run)

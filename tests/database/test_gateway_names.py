"""What names a call outlives what it was used for: keys, threads, steps and actions."""

from dataclasses import replace
from threading import Barrier, Thread
from typing import Any

import pytest
from django.db import connection

from runs.access import READ, Actor, operator
from runs.commands import fork_run, retry_run, start_run
from runs.errors import InvalidInput, KeyReused, NotPermitted, OneCall
from runs.gateway.accepting import accept_finish
from runs.gateway.calling import call_operation, raise_if_unanswerable
from runs.gateway.errors import ActionReused, CallInFlight, KeyForgotten
from runs.gateway.naming import Asked
from runs.models import AgentRun, Approval, GatewayCall
from tests.database.approving import person, say
from tests.database.calling import (
    ELSEWHERE,
    NEVER,
    carry_out,
    carry_out_when_due,
    operation,
    run_of,
    send,
)
from tests.database.kit import change, scripted_tool
from tools import Approve, Rejected

# The signatures need a user.
pytestmark = pytest.mark.django_db(transaction=True)

# Of the same user, and with another token that may do little.
WEAK = Actor(name=ELSEWHERE.name, scopes=frozenset({"operations:call:look", READ}), token=4713)


def purge(sent: Any) -> None:
    """Leave what a purge leaves."""
    run_id = run_of(sent).pk
    GatewayCall.objects.filter(run=run_id).update(run=None)
    change("UPDATE runs_agentrun SET idempotency_key = NULL WHERE id = %s", run_id)


def test_another_token_of_the_same_user_neither_ends_nor_calls_in_a_run() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    scripted_tool("seen", name="look", approval_policy=NEVER)
    sent = send(thread="t")
    carry_out(sent)
    with pytest.raises(NotPermitted):
        accept_finish(actor=WEAK, run_id=run_of(sent).pk, error="sabotage")
    with pytest.raises(NotPermitted):
        send("k2", "look", actor=WEAK, run=run_of(sent).pk)
    # Whoever called in it needs nothing more.
    own = replace(ELSEWHERE, scopes=frozenset({"operations:call:pay"}))
    accept_finish(actor=own, run_id=run_of(sent).pk)
    assert carry_out(sent).state == "COMPLETED"


def test_an_end_is_heard_again_after_a_retry() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    sent = send(thread="t")
    for _ in range(2):
        for _ in range(2):
            accept_finish(actor=ELSEWHERE, run_id=run_of(sent).pk, error="stuck")
        assert carry_out_when_due(sent).state == "FAILED"
        assert accept_finish(actor=ELSEWHERE, run_id=run_of(sent).pk, error="stuck")
        retry_run(actor=operator(), run_id=run_of(sent).pk)
        assert carry_out(sent).state == "READY"
    assert GatewayCall.objects.filter(kind="finish").count() == 2


def test_a_thread_stays_its_tokens_own_when_the_user_is_renamed() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    sent = send(thread="t", step=1)
    carry_out(sent)
    renamed = replace(ELSEWHERE, name="renamed")
    again = send("k2", actor=renamed, thread="t", step=1)
    assert (again.replayed, again.call.pk) == (True, sent.call.pk)


def test_nobody_starts_a_run_under_the_name_of_a_thread() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    key = run_of(send(thread="t")).idempotency_key
    with pytest.raises(InvalidInput, match="Threads"):
        start_run(actor=operator("somebody"), agent="external", idempotency_key=key)
    assert AgentRun.objects.count() == 1


def test_a_step_of_a_purged_thread_is_never_done_anew() -> None:
    script = scripted_tool("paid", "two", approval_policy=NEVER)
    sent = send(thread="t", step=1)
    carry_out(sent)
    purge(sent)
    with pytest.raises(KeyForgotten, match="action"):
        send("new key", thread="t", step=1)
    # What it has not done yet is done in a new run, and no run was left behind by the refusal.
    carry_out(send("next", thread="t", step=2, amount=2))
    assert (len(script.calls), AgentRun.objects.count()) == (2, 2)


def test_a_key_that_was_answered_by_its_action_is_remembered() -> None:
    script = scripted_tool("paid", approval_policy=NEVER)
    sent = send(thread="t", step=1)
    carry_out(sent)
    for _ in range(2):
        again = send("other", thread="t", step=1)
        assert (again.replayed, again.call.pk) == (True, sent.call.pk)
    with pytest.raises(KeyReused):
        send("other", thread="t", step=2, amount=5)
    purge(sent)
    with pytest.raises(KeyForgotten, match="Idempotency-Key"):
        send("other", thread="t", step=1)
    assert len(script.calls) == 1


def test_a_step_is_the_same_whether_its_run_is_named_or_its_thread() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    sent = send(thread="t", step=1)
    run_id = run_of(sent).pk
    carry_out(sent)
    for number, names in enumerate(
        [{"run": run_id}, {"run": run_id, "agent": "external"}, {"thread": "t", "action": "pay"}]
    ):
        again = send(f"again {number}", step=1, **names)
        assert (again.replayed, again.call.pk) == (True, sent.call.pk)
    with pytest.raises(ActionReused):
        send("other", run=run_id, step=1, amount=2)


def test_whoever_loses_the_race_for_a_thread_is_waited_for_all_the_same() -> None:
    scripted_tool(approval_policy=NEVER)
    together, failed = Barrier(8), []

    def begin(number: int) -> None:
        try:
            together.wait()
            send(f"k{number}", thread="t", amount=number, wait=10)
        except Exception as error:
            failed.append(error)
        finally:
            connection.close()

    threads = [Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    calls = list(GatewayCall.objects.all())
    assert len(calls) == 8
    assert {round((one.answer_by - one.received_at).total_seconds()) for one in calls} == {10}  # type: ignore[operator]


def test_a_run_of_one_call_ends_though_another_joined_after_it_was_taken_up() -> None:
    scripted_tool("one", "two", approval_policy=Approve(when="amount == 1"))
    first = send()
    carry_out(first)
    second = send("k2", run=run_of(first).pk, amount=2)
    say(Approval.objects.get(status="pending"), person())
    carry_out(first)
    assert carry_out_when_due(first).state == "COMPLETED"
    assert operation(second).status == "COMMITTED"


def test_a_run_of_one_call_is_neither_retried_nor_forked() -> None:
    script = scripted_tool(Rejected("closed"), approval_policy=NEVER)
    sent = send()
    assert carry_out(sent).state == "FAILED"
    with pytest.raises(OneCall, match="new key"):
        retry_run(actor=operator(), run_id=run_of(sent).pk)
    with pytest.raises(OneCall, match="new key"):
        fork_run(actor=operator(), run_id=run_of(sent).pk, step=0)
    assert (run_of(sent).state, len(script.calls)) == ("FAILED", 1)


def test_a_repeat_is_in_flight_only_while_the_first_who_asked_waits() -> None:
    in_flight: list[bool] = []

    def ask_again(call: Any) -> str:
        for wait in ("1 hour", "-1 hour"):
            change("UPDATE runs_gatewaycall SET answer_by = now() + %s::interval", wait)
            asked = Asked(tool="pay", arguments={"amount": 1}, key="k1")
            called = call_operation(actor=ELSEWHERE, asked=asked, wait_seconds=0)
            assert called.operation is not None
            assert called.operation.status == "RUNNING"
            try:
                raise_if_unanswerable(called)
            except CallInFlight:
                in_flight.append(True)
            else:
                in_flight.append(False)
        return "paid"

    scripted_tool(ask_again, approval_policy=NEVER)
    carry_out(send())
    assert in_flight == [True, False]

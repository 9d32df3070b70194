"""Calls from outside before the gate: signatures, intents, and effects that are not known."""

import threading
from typing import Annotated, Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from pydantic import AfterValidator

from runs import events
from runs.engine import advance
from runs.gateway.accepting import Asked
from runs.gateway.calling import Called, call_operation, look_at_call, raise_if_unanswerable
from runs.gateway.errors import PolicyRefuses
from runs.gateway.waiting import Watch, board
from runs.models import Approval, GatewayCall, ToolOperation
from runs.resolution import resolve_operation
from runs.state import OperationStatus
from tests.database.approving import acting, person, say
from tests.database.calling import (
    ELSEWHERE,
    NEVER,
    carry_out,
    carry_out_when_due,
    operation,
    run_of,
    send,
)
from tests.database.kit import KEYED, LOST, Script, found, incidents, listening, scripted_tool
from tests.database.test_approvals_proposals import suggest
from tools import Approve, Call, EffectType, NotSent, Reconciled, tool

# People sign, and they are rows too.
pytestmark = pytest.mark.django_db(transaction=True)
STANDS = events.Name.OPERATION_STANDS


def look(sent: Any) -> Called:
    seen = look_at_call(actor=ELSEWHERE, operation_id=str(sent.call.operation_id))
    assert isinstance(seen, Called)
    return seen


def everybodys(*answers: Any, **declared: Any) -> Script:
    given = {"intent_key": ("amount",), "intent_scope": "global", "approval_policy": NEVER}
    return scripted_tool(*answers, **given | declared)


def test_a_held_call_is_told_as_such_and_made_once_it_is_signed() -> None:
    script = scripted_tool("paid", approval_policy=Approve())
    sent = send()
    run = carry_out(sent)
    asked = Approval.objects.get()
    held = look(sent)
    assert held.operation is not None
    assert (run.state, held.operation.status, held.is_settled) == (
        "WAITING_FOR_APPROVAL",
        "AWAITING_APPROVAL",
        False,
    )
    assert (asked.requester, script.calls) == (ELSEWHERE.name, [])
    # Asked for again it is the same request to people.
    assert send().replayed
    carry_out(sent)
    say(asked, person())
    assert carry_out(sent).state == "COMPLETED"
    assert (operation(sent).status, len(script.calls)) == ("COMMITTED", 1)
    assert Approval.objects.count() == 1


def test_what_a_person_denied_is_never_sent_and_its_run_fails() -> None:
    script = scripted_tool(approval_policy=Approve())
    sent = send()
    carry_out(sent)
    say(Approval.objects.get(), person(), "deny")
    run = carry_out(sent)
    denied = look(sent)
    assert denied.operation is not None
    assert (run.state, denied.operation.never_sent, denied.is_settled) == ("FAILED", "denied", True)
    raise_if_unanswerable(denied)
    assert script.calls == []


def test_a_denied_call_does_not_end_the_thread_that_it_is_part_of() -> None:
    script = scripted_tool("small", approval_policy=Approve(when="amount > 100"))
    first = send("k1", thread="t", amount=700)
    behind = send("k2", thread="t", amount=2)
    carry_out(first)
    say(Approval.objects.get(), person(), "deny")
    assert carry_out(first).state == "READY"
    assert [operation(one).status for one in (first, behind)] == ["CANCELLED", "COMMITTED"]
    assert len(script.calls) == 1


def test_what_a_person_put_in_its_place_is_what_its_caller_is_told() -> None:
    script = scripted_tool("paid less", approval_policy=Approve())
    sent = send(amount=9)
    carry_out(sent)
    suggest(Approval.objects.get(), person("robin"), arguments={"amount": 3})
    carry_out(sent)
    say(Approval.objects.get(status="pending"), person())
    assert carry_out(sent).state == "COMPLETED"
    told = look(send(amount=9))
    assert told.operation is not None
    assert (told.operation.arguments, told.operation.revision) == ({"amount": 3}, 1)
    assert operation(sent).never_sent == "changed"
    assert [call.arguments["amount"] for call in script.calls] == [3]


def test_two_keys_with_one_intent_are_one_effect() -> None:
    script = everybodys({"id": 7})
    first, second = send("k1"), send("k2")
    carry_out(first)
    run = carry_out(second)
    told = operation(second)
    assert (told.status, told.result, told.repeats_id) == (
        "COMMITTED",
        {"id": 7},
        operation(first).pk,
    )
    assert (run.state, len(script.calls)) == ("COMPLETED", 1)


def test_two_calls_of_a_thread_with_one_intent_that_wait_together_are_one_effect() -> None:
    script = scripted_tool({"id": 7}, approval_policy=NEVER, intent_key=("amount",))
    first, second = send("k1", thread="t"), send("k2", thread="t")
    carry_out(first)
    assert operation(second).repeats_id == operation(first).pk
    assert (operation(second).result, len(script.calls)) == ({"id": 7}, 1)


def test_what_a_tool_says_of_a_repeated_intent_holds_for_callers_elsewhere() -> None:
    script = everybodys("paid", on_repeated_intent="refuse")
    carry_out(send("k1"))
    second = send("k2")
    carry_out(second)
    with pytest.raises(PolicyRefuses, match="same intent"):
        raise_if_unanswerable(look(second))
    assert len(script.calls) == 1


def test_a_repeat_of_what_is_not_known_waits_for_it() -> None:
    script = everybodys(LOST, look_up=Script(found({"id": 7})))
    first, second = send("k1"), send("k2")
    carry_out(first)
    carry_out(second)
    assert operation(first).status == "UNKNOWN"
    assert not look(second).is_settled
    carry_out_when_due(first)
    carry_out_when_due(second)
    assert [operation(one).result for one in (first, second)] == [{"id": 7}] * 2
    assert len(script.calls) == 1


def test_an_intent_that_is_taken_between_plan_and_commit_is_planned_anew() -> None:
    """The call is taken up by the very commit that is refused, and by the next one then."""
    sent: list[Any] = []
    paid: list[int] = []

    def meet(amount: int) -> int:
        # The first time that the second call is planned, the first one is made meanwhile.
        if len(sent) == 2 and threading.current_thread() is threading.main_thread():
            _elsewhere(sent.pop(0))
        return amount

    @tool(
        name="pay",
        effect_type=EffectType.IDEMPOTENT_WRITE,
        provider=KEYED,
        intent_key=("amount",),
        intent_scope="global",
        approval_policy=NEVER,
    )
    def pay(call: Call, amount: Annotated[int, AfterValidator(meet)]) -> dict[str, int]:
        """Pay."""
        paid.append(amount)
        return {"id": 7}

    first, second = send("k1"), send("k2")
    sent += [first, second]
    with listening() as heard:
        carry_out(second, owner="worker 2")
    told = operation(second)
    assert (told.status, told.result, told.repeats_id) == (
        "COMMITTED",
        {"id": 7},
        operation(first).pk,
    )
    assert paid == [1]
    assert [one.fields["run_id"] for one in heard if one.name is events.Name.REPLAYED]
    assert GatewayCall.objects.filter(taken_at=None).count() == 0


def _elsewhere(sent: Any) -> None:
    """Another worker, on a connection of its own."""

    def work() -> None:
        advance(run_id=sent.call.run_id, owner="worker 1")
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_an_unknown_effect_is_looked_up_and_its_caller_told_what_it_was() -> None:
    script = scripted_tool(LOST, approval_policy=NEVER, look_up=Script(found({"id": 7}, "re_7")))
    sent = send(wait=60)
    assert carry_out(sent).state == "TOOL_STATUS_UNKNOWN"
    unknown = look(sent)
    assert unknown.operation is not None
    assert (unknown.operation.status, unknown.is_settled) == ("UNKNOWN", False)
    run = carry_out_when_due(sent)
    told = operation(sent)
    assert (told.status, told.external_ref, run.state) == ("COMMITTED", "re_7", "COMPLETED")
    assert (len(script.calls), incidents(run)) == (1, [])


def test_not_found_is_sent_again_under_the_same_name() -> None:
    look_up = Script(Reconciled.not_found())
    script = scripted_tool(LOST, "paid", approval_policy=NEVER, look_up=look_up)
    sent = send()
    carry_out(sent)
    for _ in range(3):
        carry_out_when_due(sent)
    assert operation(sent).status == "COMMITTED"
    assert {call.idempotency_key for call in script.calls} == {sent.call.operation_id}
    assert len(script.calls) == 2


def test_what_never_left_is_tried_again_by_whoever_is_next() -> None:
    script = scripted_tool(NotSent("no route"), "paid", approval_policy=NEVER)
    sent = send()
    carry_out(sent)
    assert not look(sent).is_settled
    assert carry_out_when_due(sent, owner="worker 2").state == "COMPLETED"
    assert len(script.calls) == 2


def test_a_person_settles_what_nobody_can_look_up() -> None:
    script = scripted_tool(LOST, approval_policy=NEVER, provider=None)
    sent = send()
    carry_out(sent)
    ToolOperation.objects.update(needs_person_since=Now())
    resolve_operation(
        actor=acting(person()),
        operation_id=str(sent.call.operation_id),
        outcome="committed",
        result={"id": 7},
        external_ref="re_7",
        evidence="the bank's statement",
    )
    assert carry_out(sent).state == "COMPLETED"
    told = look(send())
    assert told.operation is not None
    assert (told.operation.result, len(script.calls)) == ({"id": 7}, 1)


def test_a_caller_that_waits_is_answered_when_another_process_has_done_it() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    with listening() as heard:
        started = threading.Event()

        def work() -> None:
            started.wait(20)
            advance(run_id=GatewayCall.objects.get().run_id, owner="worker 1")
            connection.close()

        worker = threading.Thread(target=work)
        worker.start()
        asked = Asked(tool="pay", arguments={"amount": 1}, key="k1")
        first = call_operation(actor=ELSEWHERE, asked=asked, wait_seconds=0)
        assert not first.is_settled
        started.set()
        seen = look_at_call(
            actor=ELSEWHERE, operation_id=str(first.call.operation_id), wait_seconds=20
        )
        worker.join()
    assert isinstance(seen, Called)
    assert seen.is_settled
    assert events.Name.OPERATION_STANDS in {event.name for event in heard}
    assert run_of(seen.call).state == "COMPLETED"


def stands(watch: Watch) -> str:
    watch.look()
    return str(watch.status)


def test_who_waits_for_a_changed_call_waits_for_what_stands_in_its_place() -> None:
    scripted_tool("paid less", approval_policy=Approve())
    sent = send(amount=9)
    carry_out(sent)
    with board.watching(str(sent.call.operation_id)) as watch, listening() as heard:
        assert watch is not None
        suggest(Approval.objects.get(), person("robin"), arguments={"amount": 3})
        carry_out(sent)
        assert operation(sent).status == "CANCELLED"
        # The change itself is no end, and what is held again is none.
        told = [one.fields["status"] for one in heard if one.name is STANDS]
        assert told == [OperationStatus.AWAITING_APPROVAL]
        assert stands(watch) == "AWAITING_APPROVAL"
        say(Approval.objects.get(status="pending"), person("kim"))
        carry_out(sent)
        assert stands(watch) == "COMMITTED"

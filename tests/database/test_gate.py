"""What needs a signature is held, and what leaves is what was signed, once."""

import pytest
from django.db import IntegrityError, transaction

from approvals.errors import TooLate
from approvals.sweeps import run_once
from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.access import operator
from runs.commands import cancel_run
from runs.fingerprint import fingerprint
from runs.models import AgentRun, Approval, Notice, StepAttempt, ToolOperation
from runs.resolution import resolve_operation
from tests.database.approving import let_run_out, person, say
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
    tamper,
)
from tests.database.kit import (
    LOST,
    PLAIN,
    Script,
    change,
    drive,
    drive_in_time,
    drive_when_due,
    let_pass,
    operation_of,
    run_edges,
    scripted_tool,
)
from tests.database.policy_rows import save_row
from tools import Approve, EffectType, NotSent, Reconciled, registry

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_held_call_waits_for_people_and_holds_nothing(start: Start) -> None:
    run, script = held(start)
    operation, asked = operation_of(run), request_of(run)
    assert (run.lease_owner, run.wake_at, script.calls) == ("", None, [])
    assert (operation.status, operation.approval_id) == ("AWAITING_APPROVAL", asked.id)
    assert asked.fingerprint == fingerprint(asked.covered)
    assert asked.covered["arguments"] == {"amount": 700}
    assert asked.approve_by > asked.requested_at
    kinds = Notice.objects.filter(run=run).values_list("kind", "approval_id")
    assert list(kinds) == [("approval.requested", asked.id)]
    drive_when_due(run)
    assert Approval.objects.count() == 1


def test_what_was_signed_is_sent_once_and_spends_its_signature(start: Start) -> None:
    run, script = held(start)
    sign(run)
    drive(run)
    asked = request_of(run)
    assert run.state == "COMPLETED"
    assert len(script.calls) == 1
    assert asked.spent_under == script.calls[0].fence_token
    assert requests_of(run) == [("approved", True)]
    assert "APPROVE" in run_edges(run)
    attempts = StepAttempt.objects.filter(step__run=run, step__number=1).order_by("number")
    tokens = list(attempts.values_list("fence_token", flat=True))
    assert (len(tokens), tokens[-1]) == (2, script.calls[0].fence_token)


def test_a_denial_is_a_typed_answer_with_its_reason_and_siblings_stand(start: Start) -> None:
    script = scripted_tool(PAID, approval_policy=Approve(when="amount > 500"))

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("pay", amount=900), ToolCall("pay", amount=5))
        return Finish([[seen.never_sent, seen.error] for seen in context.observations])

    run = start(decider=decide, tools=("pay",))
    drive(run)
    say(request_of(run), person("ida"), "deny", reason="not this customer")
    drive(run)
    assert run.result == [["denied", "denied by ida: not this customer"], ["", ""]]
    assert [call.arguments for call in script.calls] == [{"amount": 5}]


def test_what_nobody_decided_in_time_is_expired_and_not_denied(start: Start) -> None:
    run, script = held(start)
    let_run_out(request_of(run))
    run_once()
    drive(run)
    [[status, why, error, _]] = run.result
    assert (status, why) == ("CANCELLED", "expired")
    assert "denied" not in error
    assert script.calls == []


def test_arguments_that_changed_after_the_signature_are_asked_about_anew(start: Start) -> None:
    run, script = held(start)
    first = sign(run)
    tamper(
        "UPDATE runs_tooloperation SET arguments = '{\"amount\": 7000}' WHERE run_id = %s", run.id
    )
    drive(run)
    second = request_of(run)
    assert script.calls == []
    assert run.state == "WAITING_FOR_APPROVAL"
    assert requests_of(run) == [("superseded", False), ("pending", False)]
    assert second.supersedes_id == first.id
    assert second.covered["arguments"] == {"amount": 7000}
    assert "arguments.amount" in second.asked_because
    sign(run)
    drive(run)
    assert [call.arguments for call in script.calls] == [{"amount": 7000}]


def test_a_resource_that_changed_is_asked_about_anew(start: Start) -> None:
    version = ["7"]
    run, script = held(start, resource_version=lambda call: version[0])
    assert request_of(run).resource_version == "7"
    sign(run)
    version[0] = "8"
    drive(run)
    assert (script.calls, request_of(run).resource_version) == ([], "8")
    assert "resource_version" in request_of(run).asked_because
    sign(run)
    drive(run)
    assert run.state == "COMPLETED"


def test_a_version_that_cannot_be_read_lets_nothing_leave(start: Start) -> None:
    answers = ["7"]

    def version(call: object) -> str:
        return answers[0] if answers[0] else _raise()

    run, script = held(start, resource_version=version)
    sign(run)
    answers[0] = ""
    drive(run)
    assert script.calls == []
    assert requests_of(run) == [("approved", False)]
    assert "could not be read" in operation_of(run).error
    answers[0] = "7"
    drive_when_due(run)
    assert run.state == "COMPLETED"


def _raise() -> str:
    raise ConnectionError("gone")


def test_a_policy_that_changed_while_it_waited_is_asked_about_anew(start: Start) -> None:
    run, script = held(start)
    sign(run)
    save_row("also-audit", tool="pay", groups=["audit"])
    drive(run)
    assert script.calls == []
    assert request_of(run).groups == ["audit"]
    assert requests_of(run) == [("superseded", False), ("pending", False)]


def test_a_policy_about_something_else_changes_nothing(start: Start) -> None:
    run, script = held(start)
    sign(run)
    save_row("elsewhere", tool="other", groups=["audit"])
    drive(run)
    assert (run.state, len(script.calls)) == ("COMPLETED", 1)


def test_another_description_is_the_same_action(start: Start) -> None:
    run, _ = held(start)
    sign(run)
    object.__setattr__(registry.get_tool("pay"), "description", "Pay gladly.")
    drive(run)
    assert requests_of(run) == [("approved", True)]


def test_a_tool_whose_arguments_changed_is_asked_about_anew(start: Start) -> None:
    run, script = held(start)
    sign(run)
    object.__setattr__(registry.get_tool("pay"), "version", "another")
    drive(run)
    assert script.calls == []
    assert "tool_version" in request_of(run).asked_because


def test_a_signature_that_ran_out_unused_is_asked_for_anew(start: Start) -> None:
    run, script = held(start)
    sign(run)
    run_out_unused(request_of(run))
    drive(run)
    assert script.calls == []
    assert requests_of(run) == [("superseded", False), ("pending", False)]


def test_a_send_that_did_not_leave_gives_its_signature_back(start: Start) -> None:
    run, script = held(start, NotSent("no route"), PAID)
    sign(run)
    drive(run)
    assert requests_of(run) == [("approved", False)]
    drive_when_due(run)
    assert run.state == "COMPLETED"
    assert len(script.calls) == 2
    assert requests_of(run) == [("approved", True)]


def test_a_repeat_under_the_same_key_is_the_same_use(start: Start) -> None:
    look_up = Script(Reconciled.not_found(), Reconciled.not_found())
    run, script = held(start, LOST, PAID, look_up=look_up)
    sign(run)
    drive(run)
    assert requests_of(run) == [("approved", True)]
    drive_in_time(run)
    assert (run.state, len(script.calls)) == ("COMPLETED", 2)
    assert requests_of(run) == [("approved", True)]


def test_a_repeat_that_the_provider_cannot_join_needs_a_signature_of_its_own(start: Start) -> None:
    look_up = Script(*[Reconciled.not_found()] * 20)
    run, script = held(
        start,
        LOST,
        PAID,
        look_up=look_up,
        provider=PLAIN,
        effect=EffectType.NON_IDEMPOTENT_WRITE,
    )
    sign(run)
    drive(run)
    drive_in_time(run)
    assert run.state == "WAITING_FOR_APPROVAL"
    assert len(script.calls) == 1
    assert requests_of(run) == [("approved", True), ("pending", False)]
    assert "earlier send" in request_of(run).asked_because
    sign(run)
    drive(run)
    assert (run.state, len(script.calls)) == ("COMPLETED", 2)


def test_after_a_persons_word_that_nothing_happened_it_is_asked_about_anew(start: Start) -> None:
    run, script = held(start, LOST, PAID, effect=EffectType.IRREVERSIBLE)
    sign(run)
    drive(run)
    drive_in_time(run)
    assert run.state == "WAITING_FOR_RESOLUTION"
    let_pass(hours=1)
    resolve_operation(
        actor=operator(),
        operation_id=operation_of(run).id,
        outcome="not_committed",
        evidence="the provider's books",
    )
    drive_when_due(run)
    assert (run.state, len(script.calls)) == ("WAITING_FOR_APPROVAL", 1)


def test_a_cancelled_run_takes_its_request_with_it(start: Start) -> None:
    run, script = held(start)
    asked = request_of(run)
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    assert (run.state, requests_of(run)) == ("CANCELLED", [("cancelled", False)])
    with pytest.raises(TooLate):
        say(asked, person())
    assert script.calls == []


def test_the_database_lets_nothing_run_that_is_not_signed_for(start: Start) -> None:
    run, _ = held(start)
    with pytest.raises(IntegrityError, match="without a signature"), transaction.atomic():
        _send_past_the_gate(run)


def _send_past_the_gate(run: AgentRun) -> None:
    # Its own law: without it, that of the journal would speak first.
    [other] = [
        one for one in ToolOperation._meta.triggers if one.name == "operation_moved_with_journal"
    ]
    change(f"ALTER TABLE runs_tooloperation DISABLE TRIGGER {other.get_pgid(ToolOperation)}")
    change(
        "UPDATE runs_tooloperation SET status = 'RUNNING', attempts = 1, fence_token = 9,"
        " first_sent_at = now() WHERE run_id = %s",
        run.id,
    )


def test_what_was_to_be_signed_never_changes(start: Start) -> None:
    run, _ = held(start)
    for column, value in (
        ("fingerprint", "v1:x"),
        ("quorum", 0),
        ("covered", "{}"),
        ("rule", "none"),
        ("escalate_to", '["anybody"]'),
        ("execute_within", "30 days"),
    ):
        with pytest.raises(IntegrityError, match="cannot change"):
            change(f"UPDATE runs_approval SET {column} = %s WHERE run_id = %s", value, run.id)
    say(request_of(run), person(), "deny")
    with pytest.raises(IntegrityError, match="not possible any more"):
        change(
            "UPDATE runs_approval SET status = 'approved', execute_by = now() WHERE run_id = %s",
            run.id,
        )


def test_a_finished_result_tells_what_ran(start: Start) -> None:
    scripted_tool(PAID, approval_policy=Approve(when="amount > 1000"))
    run = start(decider=pay_and_tell(), tools=("pay",))
    drive(run)
    assert run.result == [["COMMITTED", "", "", {"amount": 700}]]
    assert operations_of(run)[0].approval_id is None

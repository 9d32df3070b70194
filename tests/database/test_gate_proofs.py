"""What was sent once, is asked about anew, and then turns out to have happened."""

from typing import Any

import pytest

from approvals.commands import propose
from approvals.sweeps import run_once
from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.access import operator
from runs.commands import cancel_run
from runs.models import AgentRun, Approval, ToolOperation
from runs.resolution import resolve_operation
from tests.database.approving import acting, let_run_out, person, say
from tests.database.gating import (
    Start,
    held,
    operations_of,
    request_of,
    requests_of,
    run_out_unused,
    sign,
)
from tests.database.kit import (
    LOST,
    PLAIN,
    drive,
    drive_in_time,
    drive_when_due,
    hear_late,
    let_pass,
    operation_of,
    scripted_tool,
)
from tests.database.test_gate_moves import before_the_intent
from tools import Approve, EffectType, NotSent

pytestmark = pytest.mark.django_db(transaction=True)

LATE = {"result": {"id": "re_late"}, "external_ref": "re_late"}


@pytest.fixture
def asked_anew(start: Start) -> AgentRun:
    """A call that was signed, sent and lost, of which a person said that it did not happen."""
    run, _ = held(start, LOST, effect=EffectType.IRREVERSIBLE)
    sign(run)
    drive(run)
    drive_in_time(run)
    let_pass(hours=1)
    resolve_operation(
        actor=operator(),
        operation_id=operation_of(run).id,
        outcome="not_committed",
        evidence="the provider's books",
    )
    drive_when_due(run)
    assert run.state == "WAITING_FOR_APPROVAL"
    return run


def assert_recorded(run: AgentRun) -> None:
    operation = operations_of(run)[0]
    assert (operation.status, operation.external_ref) == ("COMMITTED", "re_late")
    assert len(operations_of(run)) == 1


def test_evidence_wakes_the_run_and_ends_the_question(asked_anew: AgentRun) -> None:
    hear_late(asked_anew, "committed", **LATE)
    drive(asked_anew)
    assert asked_anew.state == "COMPLETED"
    assert_recorded(asked_anew)
    assert requests_of(asked_anew)[-1] == ("superseded", False)


def test_a_denial_does_not_deny_what_happened(asked_anew: AgentRun) -> None:
    say(request_of(asked_anew), person(), "deny")
    hear_late(asked_anew, "committed", **LATE)
    drive(asked_anew)
    assert_recorded(asked_anew)


def test_an_end_without_a_verdict_does_not_either(asked_anew: AgentRun) -> None:
    let_run_out(request_of(asked_anew))
    run_once()
    hear_late(asked_anew, "committed", **LATE)
    drive(asked_anew)
    assert_recorded(asked_anew)


def test_nothing_is_sent_in_the_place_of_what_happened(asked_anew: AgentRun) -> None:
    user, asked = person("ida"), request_of(asked_anew)
    propose(
        actor=acting(user),
        user=user,
        approval_id=asked.id,
        arguments={"amount": 5},
        fingerprint=asked.fingerprint,
        reason="half",
    )
    hear_late(asked_anew, "committed", **LATE)
    drive(asked_anew)
    assert_recorded(asked_anew)


def test_a_cancelled_run_keeps_what_happened(asked_anew: AgentRun) -> None:
    hear_late(asked_anew, "committed", **LATE)
    cancel_run(actor=operator(), run_id=asked_anew.id)
    drive(asked_anew)
    assert asked_anew.state == "CANCELLED"
    assert_recorded(asked_anew)


def test_a_tool_that_was_wrong_about_not_sending_is_corrected(start: Start) -> None:
    run, script = held(start, NotSent("says the tool"))
    sign(run)
    drive(run)
    hear_late(run, "committed", **LATE)
    drive_when_due(run)
    assert (run.state, len(script.calls)) == ("COMPLETED", 1)
    assert_recorded(run)


# -- The answers of siblings ---------------------------------------------------


def two_calls(context: Context) -> Decision:
    if context.last is None:
        return CallTools(ToolCall("pay", amount=1), ToolCall("pay", amount=2))
    return Finish([seen.status for seen in context.observations])


@pytest.fixture
def two_signed(start: Start) -> tuple[AgentRun, Any]:
    """A run with two signed calls at a provider that joins nothing."""
    script = scripted_tool(
        {"id": "re_1"},
        {"id": "re_2"},
        approval_policy=Approve(),
        provider=PLAIN,
        effect=EffectType.NON_IDEMPOTENT_WRITE,
    )
    run = start(decider=two_calls, tools=("pay",))
    drive(run)
    for approval in Approval.objects.filter(run=run):
        say(approval, person())
    return run, script


def test_an_answer_is_kept_though_the_next_signature_runs_out_at_that_moment(
    two_signed: tuple[AgentRun, Any],
) -> None:
    run, script = two_signed
    later = operations_of(run)[1].approval
    with before_the_intent(lambda: run_out_unused(later), nth=3):
        drive(run)
    first, second = operations_of(run)
    assert (first.status, first.result) == ("COMMITTED", {"id": "re_1"})
    assert second.attempts == 0
    assert len(script.calls) == 1


def test_an_answer_is_written_before_the_next_version_is_asked_for(start: Start) -> None:
    seen: list[list[str]] = []

    def version(call: object) -> str:
        rows = ToolOperation.objects.order_by("ordinal")
        seen.append(list(rows.values_list("status", flat=True)))
        return "7"

    answers = ({"id": "re_1"}, {"id": "re_2"})
    scripted_tool(*answers, approval_policy=Approve(), resource_version=version)
    run = start(decider=two_calls, tools=("pay",))
    drive(run)
    for approval in Approval.objects.filter(run=run):
        say(approval, person())
    drive(run)
    assert run.state == "COMPLETED"
    assert seen[-1][0] == "COMMITTED"

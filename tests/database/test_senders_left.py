"""What ends a call, or takes its place, while its sender may wake up: nothing, until it has ended.

Another call would have another key, which joins it to nothing.
"""

from dataclasses import replace
from typing import Any

import pytest

from runs import Finish, Script, events
from runs.access import operator
from runs.adoption import make_signatures_due
from runs.models import AgentRun
from runs.resolution import resolve_operation
from tests.database.approving import person, say
from tests.database.deploying import deploy
from tests.database.gating import request_of, sign
from tests.database.kit import (
    KEYED,
    call_once,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    let_pass,
    scripted_tool,
)
from tests.database.policy_rows import save_row
from tests.database.redeploying import Start, in_cents, operations_of, propose_in_place, redeployed
from tests.database.settling import end_worker
from tools import Approve
from tools.registry import isolated_registry

pytestmark = pytest.mark.django_db(transaction=True)


def _denied_beside_its_sender(start: Start, **declared: Any) -> AgentRun:
    """A run whose `pay(amount=1)` did not happen, a person says; its sender is still in the call.

    The word is taken, because a repeat would be joined by its key.
    """
    scripted_tool("never heard", max_attempts=1, **declared)
    run = start(decider=call_once(), tools=("pay",))
    if declared:
        drive(run)
        sign(run)
    with dies_at(events.Name.CALL_STARTING):
        drive(run, owner="sleeper")
    expire_lease(run)
    let_pass(hours=1)
    drive(run)
    [operation] = operations_of(run)
    resolve_operation(
        actor=operator(), operation_id=operation.id, outcome="not_committed", evidence="none"
    )
    run.refresh_from_db()
    return run


def test_what_its_sender_may_yet_send_is_not_sent_under_another_key_after_a_deployment(
    start: Start,
) -> None:
    run = _denied_beside_its_sender(start)
    with redeployed(migrate_arguments=in_cents) as script:
        drive(run)
        [operation] = operations_of(run)
        assert (operation.status, script.calls) == ("PREPARED", [])
        assert "worker sleeper is not known to have ended" in operation.error
        end_worker("sleeper")
        drive_when_due(run)
    assert [call.arguments for call in script.calls] == [{"cents": 100}]


def test_what_its_sender_may_yet_send_is_not_replaced_by_what_a_person_proposes(
    start: Start,
) -> None:
    run = _denied_beside_its_sender(start, approval_policy=Approve())
    drive(run)
    propose_in_place(run, amount=2)
    [operation] = operations_of(run)
    assert operation.status == "AWAITING_APPROVAL"
    assert "worker sleeper is not known to have ended" in operation.error
    end_worker("sleeper")
    drive_when_due(run)
    assert [one.arguments for one in operations_of(run)] == [{"amount": 1}, {"amount": 2}]


def test_what_its_sender_may_yet_send_is_not_over_because_a_person_denies_it(start: Start) -> None:
    run = _denied_beside_its_sender(start, approval_policy=Approve())
    drive(run)
    say(request_of(run), person(), "deny")
    drive(run)
    [operation] = operations_of(run)
    assert operation.status == "AWAITING_APPROVAL"
    end_worker("sleeper")
    drive_when_due(run)
    [operation] = operations_of(run)
    assert (operation.status, operation.never_sent) == ("CANCELLED", "denied")


def test_what_its_sender_may_yet_send_is_not_given_up(start: Start) -> None:
    run = _denied_beside_its_sender(start)
    moved = replace(KEYED, account="another")
    with isolated_registry():
        scripted_tool("paid", provider=moved)
        drive(run)
        [operation] = operations_of(run)
        assert operation.status == "PREPARED"
        end_worker("sleeper")
        drive_when_due(run)
    [operation] = operations_of(run)
    assert (operation.status, operation.never_sent) == ("CANCELLED", "given_up")


def test_what_its_sender_may_yet_send_is_not_over_because_policy_refuses_it_by_now(
    start: Start,
) -> None:
    run = _denied_beside_its_sender(start)
    save_row("never again", tool="pay", when="true", outcome="refuse")
    drive(run)
    assert [one.status for one in operations_of(run)] == ["PREPARED"]
    end_worker("sleeper")
    drive_when_due(run)
    assert [one.never_sent for one in operations_of(run)] == ["refused"]


def test_what_its_sender_may_yet_send_is_not_replaced_when_it_is_signed_anew(start: Start) -> None:
    run = _denied_beside_its_sender(start, approval_policy=Approve())
    drive(run)
    with redeployed("paid", migrate_arguments=in_cents, approval_policy=Approve()) as script:
        deploy(Script(Finish("new")), rule="reapprove", name=run.agent)
        assert make_signatures_due(left=()) == 1
        drive(run)
        # Its signature is asked for anew all the same.
        assert [one.status for one in operations_of(run)] == ["AWAITING_APPROVAL"]
        assert request_of(run).supersedes_id is not None
        sign(run)
        drive(run)
        assert [one.status for one in operations_of(run)] == ["PREPARED"]
        end_worker("sleeper")
        drive_when_due(run)
        sign(run)
        drive(run)
    assert [call.arguments for call in script.calls] == [{"cents": 100}]

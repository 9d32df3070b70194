"""Who gets an e-mail: people who can do something about it, and never who asked."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agentops.models import Delivery
from agentops.notifications import handing_on
from approvals.models import Verdict
from runs.models import AgentRun, Notice
from tests.database.admin_pages import define_tools, finished_run
from tests.database.kit import change
from tests.database.notifying import (
    Kind,
    approval_of,
    asked,
    forget_notices,
    notice_of,
    payment_of,
    scans,
    somebody,
    turn_on_mail,
    turn_on_webhooks,
)

# Permissions are asked for, so all tables are emptied and filled anew after each test.
pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., AgentRun]
EMAIL = Delivery.Channel.EMAIL
ONE = "https://one.example/hook"


@pytest.fixture
def run(start: Start, settings: Settings) -> AgentRun:
    """A run with a payment; mail is on."""
    define_tools()
    run = finished_run(start)
    forget_notices()
    turn_on_mail(settings)
    return run


def mailed(notice: Notice) -> list[str]:
    """The names that an e-mail goes to."""
    handing_on.run_once()
    rows = Delivery.objects.filter(notice=notice, channel=EMAIL).values_list("address", flat=True)
    return sorted(address.partition("@")[0] for address in rows)


def test_without_groups_whoever_may_sign_is_asked(run: AgentRun) -> None:
    somebody("may", "decide_approval")
    somebody("root", is_superuser=True)
    somebody("maynot", "resolve_operation")
    assert mailed(asked(run)) == ["may", "root"]


def test_with_groups_their_members_are_asked(run: AgentRun) -> None:
    somebody("finance", groups=("finance",))
    somebody("both", groups=("finance", "legal"))
    somebody("other", "decide_approval", groups=("sales",))
    assert mailed(asked(run, groups=["finance", "legal"])) == ["both", "finance"]


@pytest.mark.parametrize("known_by", ["id", "name"])
@pytest.mark.parametrize("role", ["requester", "starter"])
@pytest.mark.parametrize("kind", [Kind.APPROVAL_REQUESTED, Kind.APPROVAL_REMINDER])
@pytest.mark.parametrize("groups", [[], ["finance"]])
def test_who_asks_or_started_the_run_is_not_asked(
    run: AgentRun, known_by: str, role: str, kind: Notice.Kind, groups: list[str]
) -> None:
    somebody("other", "decide_approval", groups=("finance",))
    own = somebody("own", "decide_approval", groups=("finance",))
    fields: dict[str, object] = {}
    match role, known_by:
        case "requester", "id":
            fields = {"requester_user": own}
        case "requester", "name":
            fields = {"requester": "own"}
        case "starter", "id":
            change("UPDATE runs_agentrun SET created_by_user_id = %s", own.pk)
        case "starter", "name":
            change("UPDATE runs_agentrun SET created_by = 'own'")
    approval = approval_of(run, groups=groups, **fields)
    assert mailed(notice_of(run, kind, approval=approval)) == ["other"]


def test_an_escalation_asks_the_second_group_and_a_later_reminder_asks_both(run: AgentRun) -> None:
    somebody("first", groups=("finance",))
    somebody("second", groups=("board",))
    own = somebody("own", groups=("board",))
    approval = approval_of(run, groups=["finance"], escalate_to=["board"], requester_user=own)
    early = notice_of(run, Kind.APPROVAL_REMINDER, approval=approval)
    assert mailed(early) == ["first"]
    change("UPDATE runs_approval SET escalated_at = now()")
    escalated = notice_of(run, Kind.APPROVAL_ESCALATED, approval=approval)
    assert mailed(escalated) == ["second"]
    late = notice_of(run, Kind.APPROVAL_REMINDER, approval=approval)
    assert mailed(late) == ["first", "second"]


def test_who_has_signed_is_not_reminded(run: AgentRun) -> None:
    signed = somebody("signed", groups=("finance",))
    somebody("missing", groups=("finance",))
    approval = approval_of(run, groups=["finance"], quorum=2)
    Verdict.objects.create(
        approval=approval,
        run=run,
        user=signed,
        name="signed",
        verdict=Verdict.Kind.APPROVE,
        fingerprint="v1:0",
        via=Verdict.Via.PYTHON,
    )
    assert mailed(notice_of(run, Kind.APPROVAL_REMINDER, approval=approval)) == ["missing"]


def test_a_verdict_is_told_to_who_asked_and_who_started_the_run(run: AgentRun) -> None:
    asker, starter = somebody("asker"), somebody("starter")
    somebody("signer", "decide_approval")
    change("UPDATE runs_agentrun SET created_by_user_id = %s", starter.pk)
    approval = approval_of(run, requester_user=asker)
    assert mailed(notice_of(run, Kind.APPROVAL_DECIDED, approval=approval)) == ["asker", "starter"]


@pytest.mark.parametrize("kind", [Kind.OPERATION_NEEDS_PERSON, Kind.RUN_PAUSED])
def test_what_needs_a_person_is_told_to_those_who_can_settle_it(
    run: AgentRun, kind: Notice.Kind
) -> None:
    somebody("settles", "resolve_operation")
    somebody("signs", "decide_approval")
    assert mailed(notice_of(run, kind, operation_id=payment_of(run).pk)) == ["settles"]


@pytest.mark.parametrize("kind", [Kind.OPERATION_UNKNOWN, Kind.RUN_FINISHED])
def test_what_needs_nobody_is_for_programs_only(run: AgentRun, kind: Notice.Kind) -> None:
    somebody("root", is_superuser=True)
    assert mailed(notice_of(run, kind)) == []


def test_nobody_is_written_to_who_left_or_has_no_address(run: AgentRun) -> None:
    for groups in ((), ("finance",)):
        tag = "".join(groups)
        somebody(f"left{tag}", "decide_approval", groups=groups, is_active=False)
        somebody(f"nowhere{tag}", "decide_approval", groups=groups, email="")
        somebody(f"here{tag}", "decide_approval", groups=groups)
    left = User.objects.get(username="left")
    approval = approval_of(run, groups=["finance"], requester_user=left)
    assert mailed(notice_of(run, Kind.APPROVAL_REQUESTED, approval=approval)) == ["herefinance"]
    assert mailed(notice_of(run, Kind.APPROVAL_DECIDED, approval=approval)) == []


def test_two_people_with_one_address_get_one_e_mail(run: AgentRun) -> None:
    somebody("one", "decide_approval", email="team@example.com")
    somebody("two", "decide_approval", email="Team@Example.com")
    assert mailed(asked(run)) == ["team"]


def test_a_batch_costs_as_many_queries_as_a_single_notice(
    run: AgentRun, settings: Settings
) -> None:
    turn_on_webhooks(settings, ONE)
    for number in range(8):
        somebody(f"p{number}", "decide_approval", "resolve_operation", groups=(f"g{number}",))
    approval = approval_of(run, groups=["g1", "g2"], escalate_to=["g3"])

    def handing_on_costs(times: int) -> int:
        for _ in range(times):
            for kind in Kind:
                notice_of(run, kind, approval=approval)
        with CaptureQueriesContext(connection) as captured:
            assert handing_on.run_once().notices == times * len(Kind)
        return len(captured)

    handing_on_costs(1)  # the first sweep ever makes the row of its sign
    assert handing_on_costs(1) == handing_on_costs(7)


def test_handing_on_scans_no_table(run: AgentRun, settings: Settings) -> None:
    turn_on_webhooks(settings, ONE)
    somebody("may", "decide_approval", "resolve_operation", groups=("finance",))
    approval = approval_of(run, groups=["finance"])
    for kind in Kind:
        notice_of(run, kind, approval=approval)
    with CaptureQueriesContext(connection) as captured:
        handing_on.run_once()
    assert scans(captured) == []

"""The inbox: what is on top, whose it is, and what a page costs."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from approvals import commands, sweeps
from approvals.eligibility import find_person, require_may_sign
from approvals.errors import NotThisPerson
from approvals.inbox import find_approvals, get_approval, read_page
from approvals.presenting import present_approval
from runs.errors import InvalidInput
from runs.models import AgentRun, Approval
from tests.database.approving import (
    Start,
    acting,
    ask,
    asked,
    held_run,
    let_run_out,
    person,
    say,
)

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)


def in_hours(hours: int) -> object:
    return Now() + timedelta(hours=hours)


def listed(size: int = 50, **filters: object) -> list[object]:
    page = read_page(find_approvals(**filters), cursor=None, size=size)  # type: ignore[arg-type]
    return [approval.id for approval in page.items]


@pytest.fixture
def mixed(start: Start) -> list[Approval]:
    """In the order of the inbox: three pending, then three that are decided."""
    late, soon, later = (asked(start, approve_by=in_hours(hours)) for hours in (20, 1, 30))
    decided = [asked(start) for _ in range(3)]
    for approval in decided:
        say(approval, person(), "deny")
    return [soon, late, later, *reversed(decided)]


def test_pending_ones_come_first_the_nearest_to_its_end_on_top(mixed: list[Approval]) -> None:
    assert listed() == [approval.id for approval in mixed]
    assert listed(status="pending") == [approval.id for approval in mixed[:3]]
    assert listed(status="DENIED") == [approval.id for approval in mixed[3:]]
    assert listed(run=str(mixed[4].run_id)) == [mixed[4].id]
    assert listed(tool="wire", size=2) == [approval.id for approval in mixed[:2]]
    assert listed(tool="other") == []


def test_pages_follow_each_other_forwards_and_back(mixed: list[Approval]) -> None:
    for size in range(1, 8):
        _leaf_through(mixed, size=size)


def _leaf_through(mixed: list[Approval], *, size: int) -> None:
    found, cursor, pages = find_approvals(), None, []
    while True:
        page = read_page(found, cursor=cursor, size=size)
        pages.append([approval.id for approval in page.items])
        if (cursor := page.next) is None:
            break
    assert [one for page in pages for one in page] == [approval.id for approval in mixed]
    back: list[list[object]] = []
    while page.previous is not None:
        page = read_page(found, cursor=page.previous, size=size)
        back.insert(0, [approval.id for approval in page.items])
    assert back == pages[:-1]


@pytest.mark.parametrize("cursor", ["", "x", "eyJhIjoxfQ", "é"])
def test_a_foreign_cursor_is_refused_by_name(cursor: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_page(find_approvals(), cursor=cursor, size=5)
    assert caught.value.field == "cursor"


@pytest.mark.parametrize(
    ("filters", "field"),
    [({"status": "open"}, "status"), ({"run": "7"}, "run"), ({"tool": "a\0b"}, "tool")],
)
def test_a_filter_that_cannot_match_is_refused_by_name(filters: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        find_approvals(**filters)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_mine_is_exactly_what_decide_would_hear_me_on(start: Start) -> None:
    """Every kind of request against every kind of person: the list and the door agree."""
    robin = person("robin", "finance")
    people = [
        robin,
        person("kim", "board"),
        person("sam"),
        person("root", is_superuser=True),
        person("lee", "finance", may_decide=False),
        person("max", "finance", is_active=False),
    ]
    run = held_run(start)
    started_by_robin = held_run(start)
    AgentRun.objects.filter(id=started_by_robin.id).update(created_by_user=robin)
    started_by_name = held_run(start)
    AgentRun.objects.filter(id=started_by_name.id).update(created_by="kim")
    requests = [
        ask(run),
        ask(started_by_robin),
        ask(started_by_name),
        asked(start, requester="sam"),
        asked(start, requester_user=robin),
        asked(start, groups=["finance"]),
        asked(start, groups=["finance"], escalate_to=["board"]),
        asked(start, groups=["finance"], escalate_to=["board"], escalated_at=Now()),
        asked(start, groups=["legal"], quorum=2),
        asked(start, quorum=3),
        asked(start, escalate_to=["board"]),
    ]
    over = [asked(start), asked(start)]
    let_run_out(over[0])
    say(over[1], person(), "deny")
    say(requests[9], robin)
    agreed = 0
    for user in people:
        mine = set(listed(mine=user))
        for approval in requests + over:
            assert (approval.id in mine) is _would_hear(approval.id, user), (user, approval)
            agreed += approval.id in mine
    assert agreed == 27


def _would_hear(approval_id: object, user: object) -> bool:
    approval = get_approval(str(approval_id))
    try:
        person_now = find_person(actor=acting(user), user=user)  # type: ignore[arg-type]
        require_may_sign(person_now, approval)
        is_open = approval.status == "pending" and approval.id not in set(
            Approval.objects.filter(approve_by__lte=Now()).values_list("id", flat=True)
        )
        signed = approval.verdicts.filter(name=person_now.name).exists()
    except NotThisPerson:
        return False
    return is_open and not signed


def test_a_page_costs_the_same_however_many_rows_it_has(start: Start) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as captured:
            page = read_page(find_approvals(mine=reader), cursor=None, size=50)
            assert [present_approval(approval) for approval in page.items]
        return len(captured.captured_queries)

    reader = person()
    asked(start, quorum=2)
    few = cost()
    for _ in range(4):
        say(asked(start, quorum=3), person())
    assert cost() == few


def test_no_query_of_approvals_scans_a_table(start: Start) -> None:
    run = held_run(start)
    old = ask(run, quorum=2)
    new = ask(run, supersedes=old, quorum=2, groups=["finance"])
    robin = person("robin", "finance")
    ran_out = asked(start, remind_at=Now(), escalate_at=Now())
    let_run_out(ran_out)
    reminded = asked(start, remind_at=Now(), escalate_at=Now())
    with CaptureQueriesContext(connection) as captured:
        for filters in ({}, {"status": "pending"}, {"status": "denied"}, {"run": str(run.id)}):
            read_page(find_approvals(**filters), cursor=None, size=1)
        page = read_page(find_approvals(mine=robin), cursor=None, size=1)
        read_page(find_approvals(), cursor=page.next, size=1)
        present_approval(get_approval(new.id))
        commands.decide(
            actor=acting(robin),
            user=robin,
            approval_id=new.id,
            verdict="deny",
            reason="no",
            fingerprint=new.fingerprint,
        )
        assert sweeps.run_once() == sweeps.Swept(expired=1, reminded=1, escalated=1)
    assert reminded.status == "pending"
    sql = " ".join(query["sql"] for query in captured.captured_queries)
    assert all(name in sql for name in ("runs_approval", "approvals_verdict", "runs_notice"))
    assert scans(captured) == []


def scans(captured: CaptureQueriesContext) -> list[str]:
    """The captured statements that would read a table from end to end for want of an index."""
    found = []
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        for query in captured.captured_queries:
            sql = query["sql"]
            if sql.lstrip().startswith(("SELECT", "UPDATE")):
                cursor.execute(f"EXPLAIN {sql}")
                plan = " | ".join(row[0] for row in cursor.fetchall())
                if "Seq Scan on runs_" in plan or "Seq Scan on approvals_" in plan:
                    found.append(f"{sql}\n    {plan}")
        cursor.execute("SET enable_seqscan = on")
    return found

"""The inbox's list and the page of one request: who sees what, and what it says."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from uuid_utils.compat import uuid7

from runs.models import AgentRun, Approval, ModelDecision, ToolOperation
from tests.database.admin_pages import HOSTILE, browser_of, counting
from tests.database.approval_pages import (
    INBOX,
    batch_of,
    clerk,
    form_in,
    opened,
    page_of,
    part_of,
    proposal_of,
    text_of,
    verdict_of,
)
from tests.database.approving import (
    Start,
    ask,
    asked,
    held_run,
    let_run_out,
    person,
    say,
    written,
)
from tests.database.stories import SECRET
from tools import registry

pytestmark = pytest.mark.django_db(transaction=True)

MOST_QUERIES = 20


# -- Who may come in ---------------------------------------------------------------------


def test_whoever_may_neither_see_nor_decide_is_let_in_nowhere(start: Start) -> None:
    approval = asked(start)
    client = browser_of(person(may_decide=False, is_staff=True))
    before = written(approval)
    addresses = [page_of(approval), proposal_of(approval), batch_of(approval), reverse(INBOX)]
    for address in addresses:
        assert client.get(address).status_code == 403
    for address in (*addresses, verdict_of(approval)):
        refused = client.post(address, {"verdict": "approve"})
        assert refused.status_code in {403, 405}
        assert "these arguments" not in refused.content.decode()
        lost = Client().post(address)
        assert lost.headers["Location"].startswith(reverse("admin:login"))
    assert written(approval) == before


def test_a_post_from_another_site_says_nothing(start: Start) -> None:
    approval = asked(start)
    user, client = clerk()
    form = form_in(opened(client, page_of(approval)), button="Approve")
    before = written(approval)
    strict = browser_of(user, enforce_csrf_checks=True)
    for address in (verdict_of(approval), proposal_of(approval), batch_of(approval)):
        assert strict.post(address, form).status_code == 403
    assert written(approval) == before


def test_looking_changes_nothing(start: Start) -> None:
    approval = asked(start)
    _, client = clerk()
    form = form_in(opened(client, page_of(approval)), button="Approve")
    before = written(approval)
    addresses = (reverse(INBOX), page_of(approval), proposal_of(approval), batch_of(approval))
    for address in addresses:
        assert client.get(address, form | {"pick": str(approval.pk)}).status_code == 200
        assert client.put(address).status_code == 405
    assert client.get(verdict_of(approval), form).headers["Location"] == page_of(approval)
    assert client.put(verdict_of(approval)).status_code == 405
    assert written(approval) == before


def test_who_may_not_sign_reads_why_in_place_of_the_buttons(start: Start) -> None:
    run = held_run(start)
    signed, _ = clerk("signer")
    AgentRun.objects.filter(id=run.id).update(created_by="starter")
    approval = ask(run, requester="asker", groups=["finance"], quorum=2)
    signed.groups.add(person(None, "finance").groups.get())
    say(approval, signed)
    told = {
        "asker": "asker asked for this action, and so may neither approve nor deny it.",
        "starter": "starter started this run",
        "outsider": "outsider is in none of the groups that may sign: finance.",
    }
    for name, why in told.items():
        page = opened(clerk(name)[1], page_of(approval))
        assert why in text_of(page)
        assert "</button>" not in part_of(page, 'id="decide"', "</aside>")
    watcher = browser_of(_watcher())
    assert "lacks the permission runs.decide_approval" in text_of(
        opened(watcher, page_of(approval))
    )
    again = part_of(opened(browser_of(signed), page_of(approval)), 'id="decide"', "</aside>")
    assert "You have signed it" in again
    assert "</button>" not in again
    # Whoever has signed may still think better of it.
    assert "Propose changes" in again


def _watcher() -> User:
    user = person(may_decide=False, is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_approval"))
    return user


# -- The list ----------------------------------------------------------------------------


def test_what_is_nearest_to_its_end_stands_on_top_and_decided_ones_come_last(start: Start) -> None:
    hours = {name: Now() + timedelta(hours=left) for name, left in (("a", 9), ("b", 1), ("c", 5))}
    rows = {name: asked(start, requester=name, approve_by=by) for name, by in hours.items()}
    done = asked(start, requester="d", approve_by=Now() + timedelta(minutes=5))
    say(done, person(), "deny")
    _, client = clerk()
    assert _requesters(client, show="mine") == ["b", "c", "a"]
    assert _requesters(client, show="pending") == ["b", "c", "a"]
    assert _requesters(client, show="all") == ["b", "c", "a", "d"]
    assert _requesters(client, show="all", status="denied") == ["d"]
    assert _requesters(client, show="all", tool="wire") == ["b", "c", "a", "d"]
    assert _requesters(client, tool="nothing") == []
    let_run_out(rows["b"])
    assert _requesters(client) == ["c", "a"]


def _requesters(client: Client, **query: str) -> list[str]:
    page = opened(client, reverse(INBOX, query=query))
    return re.findall(r'data-label="asked for by"><div class="ao-cell">(\w+)<', page)


def test_the_list_opens_with_what_the_person_may_sign(start: Start) -> None:
    for_all = asked(start, requester="a")
    asked(start, requester="b", groups=["finance"])
    asked(start, requester="me")
    _, client = clerk("me")
    assert _requesters(client) == ["a"]
    assert sorted(_requesters(client, show="pending")) == ["a", "b", "me"]
    assert "ao-pick" not in opened(client, reverse(INBOX, query={"show": "pending"}))
    assert str(for_all.pk) in opened(client, reverse(INBOX))
    _, paula = clerk("paula", "finance")
    assert sorted(_requesters(paula)) == ["a", "b", "me"]


def test_the_list_says_how_many_signed_and_who_is_missing(start: Start) -> None:
    approval = asked(start, groups=["finance"], quorum=2)
    say(approval, person(None, "finance"))
    page = text_of(opened(clerk(None, "finance")[1], reverse(INBOX)))
    assert "1 of 2, still needs 1 more" in page


@pytest.mark.parametrize(
    ("show", "words"),
    [
        ("mine", "Nothing waits for your signature. See what waits for others"),
        ("pending", "Nothing waits for a signature. A request appears here when a policy"),
        ("all", "No request yet: one appears when a policy"),
    ],
)
def test_an_empty_list_says_what_fills_it(show: str, words: str) -> None:
    assert words in text_of(opened(clerk()[1], reverse(INBOX, query={"show": show})))


def test_a_page_of_the_list_costs_the_same_few_queries_and_counts_nothing(start: Start) -> None:
    _, client = clerk()
    costs = {}
    for rows in (1, 12):
        while Approval.objects.filter(status="pending").count() < rows:
            say(asked(start), person(), "deny")
            say(asked(start, quorum=2), person())
        for show in ("mine", "pending", "all"):
            with CaptureQueriesContext(
                connection,
            ) as sent:
                opened(client, reverse(INBOX, query={"show": show}))
            costs[show, rows] = len(sent)
            assert len(sent) <= MOST_QUERIES
            assert not counting(one["sql"] for one in sent)
    for show in ("mine", "pending", "all"):
        assert costs[show, 1] == costs[show, 12], show


def test_the_list_is_read_on_by_place(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("approvals.admin.inbox.PER_PAGE", 2)
    for name in "abcde":
        asked(start, requester=name)
    _, client = clerk()
    seen, address = [], reverse(INBOX, query={"show": "pending"})
    while address:
        page = opened(client, address)
        seen += re.findall(r'data-label="asked for by"><div class="ao-cell">(\w+)<', page)
        found = re.search(r'rel="next" href="([^"]+)"', page)
        address = found[1].replace("&amp;", "&") if found else ""
    assert seen == list("abcde")
    odd = client.get(reverse(INBOX, query={"cursor": "<b>"}), follow=True)
    assert "cursor: Follow the" in text_of(odd.content.decode())


def test_the_sidebar_leads_to_the_inbox_and_says_how_many_wait(start: Start) -> None:
    _, client = clerk()
    entry = re.compile(rf'href="{re.escape(reverse(INBOX))}".*?</a>', re.DOTALL)
    calm = entry.search(opened(client, reverse(INBOX)))
    asked(start)
    told = entry.search(opened(client, reverse(INBOX)))
    assert calm is not None
    assert told is not None
    assert not re.search(r">\s*\d+\s*<", calm[0])
    assert re.search(r">\s*1\s*<", told[0])


# -- The page of one request -------------------------------------------------------------


def test_a_request_shows_everything_in_the_order_in_which_it_is_weighed(start: Start) -> None:
    run = held_run(start, describe="Wire {amount} for order {order}")
    AgentRun.objects.filter(id=run.id).update(objective="Make the customer whole.")
    old = ask(run, covered={"arguments": {"amount": 800, "gone": 1}, "tool_version": "1"})
    approval = ask(
        run,
        supersedes=old,
        rule="large-sums v3: amount > 500",
        asked_because="changed since it was signed: arguments.amount",
        resource_version="etag-7",
        covered={"arguments": {"amount": 900, "order": "17"}, "tool_version": "1"},
    )
    page = opened(clerk()[1], page_of(approval))
    told = text_of(page)
    places = [
        told.index(words)
        for words in (
            "Wire 900 for order 17",
            "Exactly these arguments would be sent",
            "What is different from what was asked before",
            "Why it is asked anew: changed since it was signed: arguments.amount",
            "Rule large-sums v3: amount > 500",
            "Make the customer whole.",
            "What has happened in this run so far",
            "etag-7",
            "Written by the agent: not checked",
            "Your decision",
        )
    ]
    assert places == sorted(places)
    changes = part_of(page, "What is different", "</table>")
    for words in ("Argument amount ± changed 800 900", "Argument gone − removed 1 –"):
        assert words in text_of(changes)
    assert 'Argument order + added – "17"' in text_of(changes)


def test_a_request_costs_few_queries_however_much_happened(start: Start) -> None:
    run = held_run(start)
    approval = ask(run, supersedes=ask(run), quorum=3)
    _, client = clerk()
    with CaptureQueriesContext(connection) as before:
        opened(client, page_of(approval))
    for _ in range(2):
        say(approval, person())
    with CaptureQueriesContext(connection) as after:
        opened(client, page_of(approval))
    assert len(before) == len(after) <= MOST_QUERIES


def test_arguments_are_shown_complete_however_long_and_what_cannot_be_seen_is_written_out(
    start: Start,
) -> None:
    run = held_run(start)
    long = "x" * 150_000 + "end"
    _change_arguments(run, note=long, order=f"17\u202e{HOSTILE}", amount=900)
    page = opened(clerk()[1], page_of(ask(run)))
    assert f"&quot;{long}&quot;</pre>" in page
    assert "150,005 characters" in page
    assert "&quot;17\\u202e&lt;script&gt;" in page
    assert "\u202e" not in page
    assert "<script>alert" not in page
    assert "It has characters that cannot be seen" in page


def test_a_secret_stands_on_no_page_and_its_change_is_told_without_it(start: Start) -> None:
    run = held_run(start, describe="Wire {amount} from {card}")
    other = "4242-4242-4242-4242"
    AgentRun.objects.filter(id=run.id).update(objective=f"use {SECRET}")
    arguments = run.operations.get().arguments
    old = ask(run, covered={"arguments": {**arguments, "card": other}})
    approval = ask(
        run, supersedes=old, covered={"arguments": arguments}, asked_because=f"was {SECRET}"
    )
    _say_of(approval, rationale=f"charge {SECRET} now")
    user, client = clerk()
    say(ask(held_run(start), quorum=2), person(), reason=f"{SECRET} is fine")
    addresses = [reverse(INBOX), page_of(approval), proposal_of(approval), batch_of(approval)]
    for address in addresses:
        page = opened(client, address)
        assert SECRET not in page
        assert other not in page
    page = text_of(opened(client, page_of(approval)))
    assert "Argument card ± changed [redacted] [redacted]" in page
    assert "What the tool declared secret is hidden here; the signature covers it." in page
    refused = client.post(verdict_of(approval), {"verdict": "deny", "reason": f"not {SECRET}"})
    assert refused.status_code == 412
    say(approval, user, "deny", reason=f"not with {SECRET}")
    for address in addresses[:2]:
        assert SECRET not in opened(client, address)


def test_what_the_agent_wrote_is_escaped_bounded_and_stands_in_its_box_alone(start: Start) -> None:
    approval = asked(start)
    words = f"{HOSTILE}\nYour decision: approved by finance " + "z" * 10_000
    _say_of(approval, rationale=words, confidence=0.5)
    page = opened(clerk()[1], page_of(approval))
    box = part_of(page, '<section class="ao-words"', "</section>")
    assert "Written by the agent: not checked" in box
    assert "&lt;script&gt;alert(1)&lt;/script&gt; \\u202egnp.exe\\u202c" in box
    assert "sure" in box
    assert len(box) < 6_000
    assert not re.search(r"<(a|form|button|script|img)\b", box)
    assert "approved by finance" not in page.replace(box, "")
    _say_of(approval, rationale=["no", "text"], confidence=True)
    assert "It gave no reason." in opened(clerk()[1], page_of(approval))


def test_a_request_whose_tool_is_not_known_here_can_be_read_and_denied(start: Start) -> None:
    approval = asked(start)
    _, client = clerk()
    with registry.isolated_registry():
        page = opened(client, page_of(approval))
        assert "Call wire with" in text_of(page)
        assert SECRET not in page
        lost = client.get(proposal_of(approval), follow=True)
        assert "No tool wire is known here" in text_of(lost.content.decode())


def test_a_request_that_is_not_there_is_named(start: Start) -> None:
    _, client = clerk()
    for key in (str(uuid7()), "<b>", "0"):
        for view in ("change", "propose"):
            address = reverse(f"admin:runs_approval_{view}", args=[key])
            answer = client.get(address, follow=True)
            assert "There is no approval" in answer.content.decode()
        posted = client.post(reverse("admin:runs_approval_verdict", args=[key]), {}, follow=True)
        assert "There is no approval" in posted.content.decode()


def _change_arguments(run: AgentRun, **arguments: Any) -> None:
    """Other arguments on the held operation. They are fixed, so their trigger rests."""
    operation = run.operations.get()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runs_tooloperation DISABLE TRIGGER USER")
        cursor.execute(
            "UPDATE runs_tooloperation SET arguments = %s WHERE id = %s",
            [json.dumps({**operation.arguments, **arguments}), operation.id],
        )
        cursor.execute("ALTER TABLE runs_tooloperation ENABLE TRIGGER USER")


def _say_of(approval: Approval, **said: Any) -> None:
    """What the decider wrote beside its call; the decision is fixed too."""
    operation = ToolOperation.objects.get(pk=approval.operation_id)
    body = ModelDecision.objects.get(pk=operation.step_id).body
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runs_modeldecision DISABLE TRIGGER USER")
        cursor.execute(
            "UPDATE runs_modeldecision SET body = %s WHERE step_id = %s",
            [json.dumps({**body, **said}), operation.step_id],
        )
        cursor.execute("ALTER TABLE runs_modeldecision ENABLE TRIGGER USER")

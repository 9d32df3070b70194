"""Policies in the admin: what is shown to whom, and that every change is a new version."""

import re
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

import approvals.admin.policies  # noqa: F401 (registers the pages)
from approvals.policies import (
    current_stops,
    find_policy,
    history_of,
    retire_policy,
    save_policy,
    stop_sending,
)
from approvals.policy_text import PolicyText
from runs.access import operator
from tests.database.admin_pages import browser_of, person
from tests.database.policy_rows import PAYMENTS
from tools import Call, EffectType, tool
from tools.models import ToolPolicy

pytestmark = pytest.mark.django_db

LIST = "admin:tools_toolpolicy_changelist"
HOSTILE = "<script>alert(1)</script>"
TYPED = {
    "name": "big",
    "outcome": "require_approval",
    "tool": "refund",
    "when": "amount > 500",
    "groups": ["finance"],
    "quorum": "1",
    "approve_by": "24h",
    "execute_by": "1h",
    "window_by": "agent",
    "reason": "auditors asked",
    "based_on": "0",
}


@pytest.fixture(autouse=True)
def _shop() -> None:
    @tool(effect_type=EffectType.IDEMPOTENT_WRITE, provider=PAYMENTS, name="refund")
    def refund(call: Call, amount: Decimal) -> None: ...

    Group.objects.create(name="finance")


@pytest.fixture
def editor() -> Client:
    return browser_of(person("edit_policies"))


@pytest.fixture
def viewer() -> Client:
    return browser_of(person("view_toolpolicy"))


def save(**given: Any) -> ToolPolicy:
    text = PolicyText(outcome="require_approval", tool="refund", when="amount > 500")
    return save_policy(
        **{"actor": operator("bob"), "name": "big", "text": text, "reason": "first", **given}
    )


def page_of(row: ToolPolicy, what: str = "change") -> str:
    return reverse(f"admin:tools_toolpolicy_{what}", args=[row.pk])


def of(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


WRITE = "admin:tools_toolpolicy_write"
STOPS = "admin:tools_toolpolicy_stops"

# -- Who sees and who may ----------------------------------------------------------------


def test_nobody_without_a_permission_sees_or_changes_anything() -> None:
    row = save()
    stranger = browser_of(person("view_agentrun"))
    for address in (
        reverse(LIST),
        page_of(row),
        reverse(WRITE),
        reverse(STOPS),
        page_of(row, "rewrite"),
        page_of(row, "retire"),
    ):
        assert stranger.get(address).status_code == 403, address
        assert stranger.post(address, {**TYPED, "kind": "everything"}).status_code in (403, 405)
    assert ToolPolicy.objects.count() == 1


def test_whoever_may_only_look_changes_nothing_and_is_offered_nothing(viewer: Client) -> None:
    row = save()
    stop_sending(actor=operator("bob"), everything=True, reason="fire")
    assert reverse(WRITE) not in of(viewer, reverse(LIST))
    assert page_of(row, "rewrite") not in of(viewer, page_of(row))
    shown = of(viewer, reverse(STOPS))
    assert "fire" in shown
    assert 'name="reason"' not in shown
    for address in (reverse(WRITE), page_of(row, "rewrite"), page_of(row, "retire")):
        assert viewer.get(address).status_code == 403
        assert viewer.post(address, TYPED).status_code == 403
    resume = {"do": "resume", "kind": "everything", "reason": "x"}
    assert viewer.post(reverse(STOPS), resume).status_code == 403
    assert (len(current_stops()), len(history_of("big"))) == (1, 1)


def test_looking_changes_nothing(editor: Client) -> None:
    row = save()
    before = ToolPolicy.objects.count()
    for address in (
        reverse(WRITE),
        reverse(STOPS),
        page_of(row, "rewrite"),
        page_of(row, "retire"),
        page_of(row),
    ):
        of(editor, address)
        editor.get(address, TYPED)
        assert editor.put(address).status_code == 405, address
    assert ToolPolicy.objects.count() == before


def test_a_post_from_another_site_changes_nothing() -> None:
    row = save()
    client = browser_of(person(superuser=True), enforce_csrf_checks=True)
    stop = {"do": "stop", "kind": "everything", "reason": "x"}
    assert client.post(reverse(WRITE), {**TYPED, "name": "new"}).status_code == 403
    assert client.post(page_of(row, "retire"), {"reason": "x"}).status_code == 403
    assert client.post(reverse(STOPS), stop).status_code == 403
    assert ToolPolicy.objects.count() == 1


def test_no_version_is_edited_or_deleted_in_place_not_even_by_a_superuser() -> None:
    row = save()
    client = browser_of(person(superuser=True))
    assert client.post(page_of(row), TYPED).status_code == 405
    assert client.post(page_of(row, "delete"), {"post": "yes"}).status_code == 403
    assert client.post(reverse("admin:tools_toolpolicy_add"), TYPED).status_code == 403
    assert ToolPolicy.objects.get() == row


# -- Writing -----------------------------------------------------------------------------


def test_a_policy_is_written_and_shown_with_its_author_and_reason() -> None:
    user = person("edit_policies")
    client = browser_of(user)
    answer = client.post(reverse(WRITE), TYPED)
    row = find_policy("big")
    assert row is not None
    assert answer.headers["Location"] == page_of(row)
    assert (row.author, row.reason, row.groups) == (user.username, "auditors asked", ["finance"])
    shown = of(client, page_of(row))
    for words in ("amount &gt; 500", user.username, "auditors asked", "first version", "finance"):
        assert words in shown


def test_an_edit_is_the_next_version_and_the_history_says_what_changed(editor: Client) -> None:
    row = save()
    form = of(editor, page_of(row, "rewrite"))
    assert "amount &gt; 500</textarea>" in form
    assert 'name="based_on" value="1"' in form
    editor.post(page_of(row, "rewrite"), {**TYPED, "when": "amount > 100", "based_on": "1"})
    assert [one.version for one in history_of("big")] == [2, 1]
    newest = history_of("big")[0]
    assert "when: amount &gt; 500 → amount &gt; 100" in of(editor, page_of(newest))
    old = of(editor, page_of(row))
    assert "This version does not count any more" in old
    assert page_of(newest) in old


@pytest.mark.parametrize(
    ("wrong", "field", "told"),
    [
        ({"when": "amout > 500"}, "when", "unknown argument amout"),
        ({"tool": "refnd"}, "tool", "Did you mean"),
        ({"groups": ["nobody"]}, "groups", "Make the group"),
        ({"quorum": "many"}, "quorum", "Write a number"),
        ({"quorum": "0"}, "quorum", "Write a number"),
        ({"approve_by": "soon"}, "approve_by", "90s, 15m, 4h or 3d"),
        ({"window_seconds": "1y"}, "window_seconds", "90s, 15m, 4h or 3d"),
        ({"outcome": "stop"}, "outcome", "Use one of"),
        ({"name": "Big!"}, "name", "small letters"),
        ({"reason": " "}, "reason", "Say why"),
    ],
)
def test_what_does_not_fit_is_named_at_its_field_and_nothing_typed_is_lost(
    editor: Client, wrong: dict[str, Any], field: str, told: str
) -> None:
    answer = editor.post(reverse(WRITE), {**TYPED, "reason": f"my words {HOSTILE}", **wrong})
    page = answer.content.decode()
    assert answer.status_code == 400
    error = re.search(rf'id="{field}-error">(.*?)</p>', page)
    assert error is not None
    assert told in error[1]
    assert f'href="#id_{field}"' in page
    assert f'id="id_{field}"' in page
    assert HOSTILE not in page
    if field != "reason":
        assert "my words &lt;script&gt;" in page
    if field != "groups":
        assert re.search(r'name="groups" value="finance" checked', page)
    assert not ToolPolicy.objects.exists()


def test_whoever_comes_second_is_shown_what_changed_and_asked_again(editor: Client) -> None:
    row = save()
    save(text=PolicyText(outcome="refuse", tool="refund"), reason="enough")
    typed = {**TYPED, "when": "amount > 7", "based_on": "1"}
    answer = editor.post(page_of(row, "rewrite"), typed)
    page = answer.content.decode()
    assert answer.status_code == 409
    assert "bob saved version 2" in page
    assert "Require approval" in page
    assert "amount &gt; 7</textarea>" in page
    assert len(history_of("big")) == 2
    assert 'name="based_on" value="2"' in page
    assert editor.post(page_of(row, "rewrite"), {**typed, "based_on": "2"}).status_code == 302


def test_a_new_policy_never_replaces_one_that_has_its_name(editor: Client) -> None:
    save()
    for _ in range(2):
        answer = editor.post(reverse(WRITE), TYPED)
        page = answer.content.decode()
        assert answer.status_code == 409
        assert "A policy has this name" in page
        assert 'name="based_on" value="0"' in page
    assert len(history_of("big")) == 1


def test_another_outcome_leaves_out_what_is_about_signing(editor: Client) -> None:
    editor.post(reverse(WRITE), {**TYPED, "outcome": "refuse", "quorum": "3"})
    row = find_policy("big")
    assert row is not None
    assert (row.outcome, row.groups, row.quorum) == ("refuse", [], 1)


# -- Retiring ----------------------------------------------------------------------------


def test_a_policy_is_retired_after_a_question_and_a_reason(editor: Client) -> None:
    row = save()
    assert "Retire" in of(editor, page_of(row))
    assert editor.post(page_of(row, "retire"), {"reason": ""}).status_code == 400
    assert editor.post(page_of(row, "retire"), {"reason": "done"}).status_code == 302
    newest = history_of("big")[0]
    assert (newest.active, newest.reason) == (False, "done")
    assert "Retired" in of(editor, reverse(LIST))
    # A second click finds it done.
    assert editor.post(page_of(row, "retire"), {"reason": "done"}).status_code == 409
    assert len(history_of("big")) == 2
    assert "Bring it back" in of(editor, page_of(newest))


def test_what_is_gone_or_a_stop_is_no_policy_to_write(editor: Client) -> None:
    stop = stop_sending(actor=operator(), everything=True, reason="fire")
    for what in ("rewrite", "retire"):
        answer = editor.post(page_of(stop, what), TYPED, follow=True)
        assert "There is no policy" in answer.content.decode()
        gone = reverse(f"admin:tools_toolpolicy_{what}", args=[10**18])
        assert "There is no policy" in editor.get(gone, follow=True).content.decode()
    assert ToolPolicy.objects.get() == stop


# -- The list ----------------------------------------------------------------------------


def test_the_list_has_the_newest_version_of_each_and_costs_the_same(
    editor: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(12):
        save(name=f"p{number}")
        save(name=f"p{number}", text=PolicyText(outcome="refuse", tool="refund"))
    retire_policy(actor=operator(), name="p1", reason="done")
    stop_sending(actor=operator("eve"), provider="payments", reason=f"fire {HOSTILE}")
    with django_assert_max_num_queries(8):
        shown = of(editor, reverse(LIST))
    assert "p3 v2" in shown
    assert "p3 v1" not in shown
    assert "p1 v3" in shown
    assert "stop:" not in shown
    assert "provider payments: by eve" in shown
    assert HOSTILE not in shown


# -- Stops -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ({"kind": "tool", "tool": "refund"}, "refund"),
        ({"kind": "provider", "provider": "payments"}, "provider payments"),
        ({"kind": "everything", "tool": "refund"}, "everything"),
    ],
)
def test_sending_is_stopped_shown_and_resumed(
    editor: Client, target: dict[str, str], shown: str
) -> None:
    stop = {"do": "stop", "reason": "they double-charge", **target}
    assert editor.post(reverse(STOPS), stop).status_code == 302
    row = current_stops()[0]
    page = of(editor, reverse(STOPS))
    assert f"<bdi>{shown}</bdi></h3>" in page
    assert "they double-charge" in page
    assert row.author in page
    # A second click is told of the first, with what was typed.
    again = editor.post(reverse(STOPS), stop)
    assert again.status_code == 409
    assert "stopped for" in again.content.decode()
    assert len(current_stops()) == 1
    resume = {"do": "resume", "reason": "mended", **target}
    assert editor.post(reverse(STOPS), {**resume, "reason": ""}).status_code == 400
    assert editor.post(reverse(STOPS), resume).status_code == 302
    assert current_stops() == []
    assert editor.post(reverse(STOPS), resume).status_code == 409
    assert "Nothing is stopped" in of(editor, reverse(STOPS))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": ""},
        {"kind": "tool", "tool": ""},
        {"kind": "tool", "tool": "refnd"},
        {"kind": "provider", "provider": "payment"},
        {"kind": "everything", "reason": " "},
        {"kind": "tool", "tool": "a\0b"},
    ],
)
def test_a_stop_that_is_not_clear_stops_nothing_and_says_so(
    editor: Client, wrong: dict[str, str]
) -> None:
    answer = editor.post(reverse(STOPS), {"do": "stop", "reason": f"r {HOSTILE}", **wrong})
    assert answer.status_code == 400
    assert "Nothing was changed" in answer.content.decode()
    assert HOSTILE not in answer.content.decode()
    assert not ToolPolicy.objects.exists()


# -- For everybody -----------------------------------------------------------------------


def test_every_field_has_a_label(editor: Client) -> None:
    row = save()
    stop_sending(actor=operator(), everything=True, reason="fire")
    for address in (
        reverse(WRITE),
        page_of(row, "rewrite"),
        page_of(row, "retire"),
        reverse(STOPS),
    ):
        page = of(editor, address)
        page = page[page.index('class="ao-page') :]
        found = re.findall(r'<(?:textarea|select|input type="text")[^>]* id="(\w+)"', page)
        assert found
        assert [one for one in found if f'for="{one}"' not in page] == []
        ids = re.findall(r' id="([^"]+)"', page)
        assert len(ids) == len(set(ids))

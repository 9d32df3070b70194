"""The sidebar: what is looked at every day first, every list there is, and where one stands."""

from typing import Any

import pytest
from django.contrib import admin
from django.test import RequestFactory
from django.urls import reverse

from agentops.sidebar import SECTIONS, navigation
from tests.database.admin_pages import person

pytestmark = pytest.mark.django_db


def items(address: str, *permissions: str, superuser: bool = True) -> list[dict[str, Any]]:
    request = RequestFactory().get(address)
    request.user = person(*permissions, superuser=superuser)
    return [item for section in navigation(request) for item in section["items"]]


def test_what_is_looked_at_every_day_stands_first() -> None:
    titles = [item["title"] for item in items("/admin/")]
    assert titles[:5] == ["Desk", "Inbox", "Questions", "Effect uncertain", "Service levels"]


def test_every_list_of_the_admin_has_an_entry_and_only_one() -> None:
    listed = [entry.model for entries in SECTIONS.values() for entry in entries if not entry.query]
    models = [f"{m._meta.app_label}.{m._meta.model_name}" for m in admin.site._registry]
    assert sorted(listed) == sorted([*models, ""])


@pytest.mark.parametrize(
    ("address", "title"),
    [
        ("/admin/", "Desk"),
        (reverse("admin:runs_agentrun_changelist"), "Runs"),
        (
            reverse("admin:runs_agentrun_changelist", query={"effect": "uncertain"}),
            "Effect uncertain",
        ),
        (reverse("admin:runs_step_changelist"), "Steps"),
        (reverse("admin:tools_toolpolicy_write"), "Policies"),
        (reverse("admin:runs_approval_change", args=["1"]), "Inbox"),
    ],
)
def test_one_entry_is_marked_as_where_one_stands(address: str, title: str) -> None:
    assert [item["title"] for item in items(address) if item["active"]] == [title]


def test_everybody_who_may_enter_sees_the_desk_and_no_list_that_they_may_not_see() -> None:
    assert [item["title"] for item in items("/admin/", superuser=False)] == ["Desk"]
    seen = items("/admin/", "view_effectaudit", superuser=False)
    assert [item["title"] for item in seen] == ["Desk", "Effect audits"]

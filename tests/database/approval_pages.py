"""What the tests of the inbox share: its addresses, and its forms as a browser would send them."""

import html
import re
from html.parser import HTMLParser
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from runs.models import Approval
from tests.database.admin_pages import browser_of
from tests.database.approving import person

INBOX = "admin:runs_approval_changelist"


def page_of(approval: Approval) -> str:
    return reverse("admin:runs_approval_change", args=[approval.pk])


def verdict_of(approval: Approval) -> str:
    return reverse("admin:runs_approval_verdict", args=[approval.pk])


def proposal_of(approval: Approval) -> str:
    return reverse("admin:runs_approval_propose", args=[approval.pk])


def batch_of(*approvals: Approval) -> str:
    picked = [str(one.pk) for one in approvals]
    return reverse("admin:runs_approval_batch", query={"pick": picked})


def clerk(name: str | None = None, *groups: str, **columns: Any) -> tuple[User, Client]:
    """Somebody who may decide in the admin, and their browser."""
    user = person(name, *groups, is_staff=True, **columns)
    return user, browser_of(user)


def opened(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


def form_in(page: str, *, button: str) -> dict[str, Any]:
    """The fields of the form that has this button, with what stands in them."""
    forms = re.findall(r"<form method=\"post\".*?</form>", page, re.DOTALL)
    (form,) = [one for one in forms if re.search(rf">\s*{re.escape(button)}\s*</button>", one)]
    reader = _Fields()
    reader.feed(form)
    reader.close()
    return {
        name: values[0] if len(values) == 1 else values for name, values in reader.found.items()
    }


def text_of(page: str) -> str:
    """What a page says, without its tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def part_of(page: str, begins: str, ends: str) -> str:
    """The piece of a page from one text to another."""
    start = page.index(begins)
    return page[start : page.index(ends, start)]


class _Fields(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: dict[str, list[str]] = {}
        self._name = self._text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        given = dict(attrs)
        match tag:
            case "input" if given.get("name") and given["name"] != "csrfmiddlewaretoken":
                self._put(given["name"], given.get("value") or "")
            case "textarea" | "select":
                self._name, self._text = given["name"], ""
            case "option" if "selected" in given:
                self._put(self._name, given["value"])

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            # One line end after the tag is no part of the value; a browser sends its own kind.
            value = self._text.removeprefix("\n")
            self._put(self._name, value.replace("\r\n", "\n").replace("\n", "\r\n"))

    def _put(self, name: str, value: str) -> None:
        self.found.setdefault(name, []).append(value)

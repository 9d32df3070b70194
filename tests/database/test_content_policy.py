"""Every answer of the web process says what a page of it may load and run."""

import pytest
from django.test import Client
from django.urls import reverse

from tests.database.admin_pages import browser_of, person
from tests.database.callers import caller, full

# Refusals are noted by a connection of their own.
pytestmark = pytest.mark.django_db(transaction=True)
HEADER = "Content-Security-Policy"
EXACTLY = {
    "default-src 'none'",
    "script-src 'self' 'unsafe-eval'",
    "style-src 'self'",
    "img-src 'self'",
    "font-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
}


def policy_of(client: Client, address: str) -> set[str]:
    answer = client.get(address)
    answer.close()
    return set(answer[HEADER].split("; "))


def test_pages_answers_files_and_errors_all_carry_it() -> None:
    root = browser_of(person(superuser=True))
    for address in (
        reverse("admin:login"),
        reverse("admin:runs_agentrun_changelist"),
        "/admin/nothing/",
        "/static/agentops/icon.svg",
        "/static/nothing.js",
        "/healthz",
        full("runs/"),
        full("nothing/"),
    ):
        assert policy_of(root, address) == EXACTLY, address
    # An answer with a body of its own, to somebody with a token.
    assert set(caller().get("runs/")[HEADER].split("; ")) == EXACTLY


def test_the_description_of_the_api_may_besides_show_its_own_icons_and_nothing_more() -> None:
    said = policy_of(Client(), reverse("docs"))
    assert said ^ EXACTLY == {"img-src 'self'", "img-src 'self' data:"}
    page = Client().get(reverse("docs")).content.decode()
    assert "<style" not in page
    assert "<script>" not in page

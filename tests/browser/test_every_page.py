"""Every page of the admin in a browser: what it loads and runs, how it reads, what keys reach."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.urls import reverse
from playwright.sync_api import ConsoleMessage, Locator, Page, Request, expect

from tests.browser.conftest import SignIn
from tests.browser.looking import PHONE, faults_of, picture, shows_focus
from tests.database.admin_pages import Start, person
from tests.database.every_page import every_page
from tests.database.every_row import fill

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

# What a hole in the escaping would let into a page: each would say so if it ran.
PLANTED = """<img src="nothing" onerror="ran('a handler')"><svg onload="ran('a picture')"></svg>
<iframe srcdoc="<script>parent.ran('a frame')</script>"></iframe>
<a href="javascript:ran('an address')">here</a><b style="position: fixed; inset: 0">all of it</b>"""
PLANT = """async (markup) => {
  const did = [], refused = [];
  window.ran = (what) => did.push(what);
  document.addEventListener("securitypolicyviolation", (e) => refused.push(e.effectiveDirective));
  const script = document.createElement("script");
  script.textContent = "ran('a script')";
  document.body.append(script);
  document.body.insertAdjacentHTML("beforeend", markup);
  document.querySelector("a[href^='javascript:']").click();
  const away = await fetch("http://localhost:9/").catch(() => "refused");
  await new Promise((resolve) => setTimeout(resolve, 300));
  const covers = getComputedStyle(document.querySelector("b[style]")).position === "fixed";
  return { did, refused: [...new Set(refused)].sort(), covers, away };
}"""


@pytest.mark.parametrize("kind", ["list", "row", "other"])
def test_every_page_keeps_to_its_policy_and_can_be_read_on_a_phone_and_a_desk(
    start: Start, sign_in: SignIn, server: str, kind: str
) -> None:
    fill(start, 2)
    page = sign_in(person(superuser=True), viewport=PHONE, color_scheme="dark")
    faults = []
    with _watched(page, server):
        for name, address in every_page().items():
            if _kind_of(name) != kind:
                continue
            answer = page.goto(address)
            assert answer is not None
            assert answer.ok, name
            # Each device and each scheme, but not each with each: a page's own test does that.
            faults += faults_of(page, name, "phone", "dark")[:1]
            faults += faults_of(page, name, "desk", "light")[:1]
    assert not faults, "\n".join(faults)


def test_strangers_and_callers_have_pages_that_keep_to_their_policy_too(
    sign_in: SignIn, server: str
) -> None:
    page = sign_in(viewport=PHONE)
    with _watched(page, server):
        page.goto(reverse("admin:login"))
        expect(page.get_by_label("Password")).to_be_visible()
        assert faults_of(page, "login", "phone", "light") == []
        page.goto(reverse("docs"))
        expect(page.get_by_role("heading", name="agentops")).to_be_visible()


def test_nothing_that_is_planted_in_a_page_runs_or_leaves(sign_in: SignIn) -> None:
    page = sign_in(person(superuser=True))
    for address in (reverse("admin:runs_agentrun_changelist"), reverse("docs")):
        page.goto(address)
        came_of_it = page.evaluate(PLANT, PLANTED)
        assert came_of_it == {
            "did": [],
            "refused": ["connect-src", "script-src-attr", "script-src-elem", "style-src-attr"],
            "covers": False,
            "away": "refused",
        }


def test_on_a_phone_the_navigation_and_the_menu_open_by_keys(sign_in: SignIn) -> None:
    page = sign_in(person(superuser=True), viewport=PHONE)
    page.goto(reverse("admin:runs_agentrun_changelist"))
    inbox = page.get_by_role("link", name="Inbox")
    expect(inbox).to_be_hidden()
    _press(page, "Navigation")
    expect(inbox).to_be_visible()
    assert page.locator("#nav-sidebar [aria-current=page]").inner_text().endswith("Runs")
    picture(page, "phone-navigation")
    _press(page, "Your account")
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    picture(page, "phone-account")
    _press(page, "Navigation")
    expect(inbox).to_be_hidden()


def test_without_scripts_a_page_is_shown_with_its_navigation_and_a_way_out(
    sign_in: SignIn,
) -> None:
    page = sign_in(person(superuser=True), viewport=PHONE, java_script_enabled=False)
    page.goto(reverse("admin:runs_agentrun_changelist"))
    expect(page.get_by_text("No run yet")).to_be_visible()
    picture(page, "phone-without-scripts")
    expect(page.locator("[x-on\\:click]:visible")).to_have_count(0)
    page.get_by_role("link", name="Signals").click()
    expect(page.get_by_text("No signal yet")).to_be_visible()
    with page.expect_navigation():
        page.get_by_role("button", name="Log out").click()
    page.goto(reverse("admin:index"))
    expect(page.get_by_label("Password")).to_be_visible()


@contextmanager
def _watched(page: Page, server: str) -> Iterator[None]:
    """Nothing is complained of in the console, and nothing is asked of anybody else."""
    faults: list[str] = []

    def hear(said: ConsoleMessage) -> None:
        if said.type == "error":
            faults.append(f"{page.url}: {said.text}")

    def see(request: Request) -> None:
        if not request.url.startswith((f"{server}/", "data:")):
            faults.append(f"{page.url} asks {request.url}")

    page.on("console", hear)
    page.on("request", see)
    yield
    assert faults == []


def _press(page: Page, name: str) -> None:
    """Comes to a button by Tab alone, and presses it."""
    button: Locator = page.get_by_role("button", name=name)
    for _ in range(60):
        page.keyboard.press("Tab")
        if button.locator(":scope:focus").count():
            assert shows_focus(button.locator(":scope:focus"))
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"{name!r} is not reached by Tab")


def _kind_of(name: str) -> str:
    return {"changelist": "list", "change": "row"}.get(name.rpartition("_")[2], "other")

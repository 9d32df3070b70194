"""The inbox on a phone, in the dark and without a mouse."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from approvals.models import Verdict
from runs.models import AgentRun, Approval
from tests.browser.conftest import Hold, SignIn
from tests.browser.looking import follow, look, shows_focus
from tests.database.approving import person, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

LONG = "A_very_long_word_without_any_place_to_break_it_" * 6
WORDS = f"The parcel came broken, so says the customer.\n\n{LONG}\n" + "more " * 200


def test_every_page_fits_a_phone_and_a_desk_and_can_be_read_by_day_and_by_night(
    hold: Hold, sign_in: SignIn, clerk: User
) -> None:
    page = sign_in(clerk, color_scheme="dark")
    for name in _tour(page, hold):
        # Whoever likes it dark gets it so; the theme marks it at the page's root.
        assert page.evaluate("() => document.documentElement.classList.contains('dark')")
        look(page, name)


def _tour(page: Page, hold: Hold) -> Iterator[str]:
    """Stands at every page in turn, as somebody would who decides on these."""
    page.goto("/admin/runs/approval/")
    yield "inbox-empty"
    runs = [hold(says=WORDS, sure=0.5, note=LONG), hold(order_id="18"), hold(order_id=LONG)]
    page.goto("/admin/runs/approval/")
    yield "inbox"
    first, second, third = (pending(run) for run in runs)
    page.goto(address(first))
    yield "request"
    follow(page, page.get_by_role("link", name="Propose changes"))
    yield "propose"
    page.get_by_label("amount").fill("much")
    follow(page, page.get_by_role("button", name="Propose"))
    yield "propose-refused"
    page.goto(f"/admin/runs/approval/batch/?pick={second.pk}&pick={third.pk}")
    yield "batch"
    say(second, person(), "deny", reason=LONG)
    follow(page, page.get_by_role("button", name="Approve these 2"))
    yield "batch-results"
    page.goto(address(first))
    say(first, person(), "deny", reason=LONG)
    follow(page, page.get_by_role("button", name="Approve"))
    yield "request-stale"
    page.goto("/admin/runs/approval/?show=all")
    yield "inbox-all"


def pending(run: AgentRun) -> Approval:
    return Approval.objects.get(run=run, status="pending")


def address(approval: Approval) -> str:
    return f"/admin/runs/approval/{approval.pk}/change/"


def test_everything_is_reached_and_seen_with_the_keyboard_alone(
    hold: Hold, sign_in: SignIn, clerk: User
) -> None:
    hold(says="because")
    page = sign_in(clerk)
    page.goto("/admin/runs/approval/")
    _tab_to(page, "Refund 900.00 EUR of order 17")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Refund 900.00 EUR of order 17")).to_be_visible()
    _tab_to(page, "Go to the decision ↓")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert _focused(page) == "Approve"
    page.keyboard.press("Enter")
    expect(page.get_by_text("Approved. The run goes on.")).to_be_visible()
    assert Verdict.objects.get().user == clerk


def test_every_control_is_reached_by_tab_in_the_order_of_the_page(
    hold: Hold, sign_in: SignIn, clerk: User
) -> None:
    page = sign_in(clerk)
    page.goto(address(pending(hold(says="because"))))
    controls = page.locator(
        ".ao-page :is(a, button, textarea, summary, input:not([type=hidden]), [tabindex='0'])"
    )
    there = {_say(controls.nth(place)) for place in range(controls.count())}
    reached = []
    for _ in range(80):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if focused.count() and focused.evaluate("element => !!element.closest('.ao-page')"):
            assert shows_focus(focused), _say(focused)
            reached.append(_say(focused))
            if reached[-1].startswith("A Propose changes"):
                break
    assert there <= set(reached)
    assert reached.index("BUTTON Approve") < reached.index("BUTTON Deny")


def _say(element: Any) -> str:
    said: str = element.evaluate(
        "e => e.tagName + ' ' + (e.textContent.trim() || e.name || e.getAttribute('aria-label'))"
    )
    return said[:60]


def _focused(page: Page) -> str:
    said: str = page.evaluate("() => document.activeElement.textContent.trim()")
    return said


def _tab_to(page: Page, text: str) -> None:
    for _ in range(80):
        page.keyboard.press("Tab")
        if _focused(page) == text:
            assert shows_focus(page.locator(":focus"))
            return
    raise AssertionError(f"{text!r} is not reached by Tab")

"""The pages of calls from outside on a phone and a desk, by day and by night."""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from runs.engine import advance
from runs.models import GatewayCall
from tests.browser.conftest import CALL, TOOLS, SignIn
from tests.browser.looking import follow, look
from tests.database.admin_pages import person
from tests.database.callers import caller
from tools import registry

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

LONG = "A_very_long_word_without_any_place_to_break_it_" * 4


@pytest.fixture
def operator(transactional_db: None) -> User:
    """Somebody who may see calls and what they led to."""
    return person("view_gatewaycall", "view_agentrun", "view_tooloperation")


def test_every_page_fits_a_phone_and_a_desk_and_can_be_read_by_day_and_by_night(
    sign_in: SignIn, operator: User
) -> None:
    page = sign_in(operator, color_scheme="dark")
    for name in _tour(page):
        look(page, f"gateway-{name}")


def _tour(page: Page) -> Iterator[str]:
    """Stands at every page in turn, as somebody would who wonders what an agent has asked for."""
    for spec in TOOLS:
        registry.register(spec)
    page.goto("/admin/runs/gatewaycall/")
    expect(page.get_by_text("No call from outside yet")).to_be_visible()
    yield "list-empty"
    api = caller("operations:call:*", username="a" * 60)
    calls = []
    for key, thread, tool, arguments in (
        ("k1", None, "look_up_order", {"order_id": "17"}),
        ("k2", LONG, "refund_order", CALL),
        # Waits behind the one that needs a signature.
        ("k3", LONG, "refund_order", CALL | {"note": LONG}),
    ):
        said = {"tool": tool, "arguments": arguments, "thread": thread, "rationale": LONG}
        answer = api.post("operations/", said | {"wait_seconds": 0}, key=key)
        assert answer.status_code == 202, answer.content
        calls.append(GatewayCall.objects.get(key=key))
        if key != "k3":
            advance(run_id=answer.json()["run"], owner="worker 1")
    first, _, last = calls
    page.goto("/admin/runs/gatewaycall/")
    yield "list"
    follow(page, page.get_by_role("link", name="refund_order").first)
    expect(page.get_by_text("nothing was sent")).to_be_visible()
    assert page.url.endswith(f"/{last.pk}/change/")
    yield "waiting"
    page.goto(f"/admin/runs/gatewaycall/{first.pk}/change/")
    yield "taken-up"
    follow(page, page.locator(f"a[href='/admin/runs/agentrun/{first.run_id}/change/']").first)
    expect(page.get_by_text("Called from outside")).to_be_visible()
    yield "run"

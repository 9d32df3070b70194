"""The pages of schedules on a phone and a desk, by day and by night, and the form at work."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from runs.agents import forget_agents
from runs.models import Schedule
from runs.schedules import run_once
from tests.browser.conftest import SignIn
from tests.browser.looking import follow, look
from tests.database.admin_pages import person
from tests.database.scheduling import reporter, schedule

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

LONG = "A_very_long_word_without_any_place_to_break_it_" * 6


@pytest.fixture
def keeper(transactional_db: None) -> User:
    """Somebody who may change schedules, and see what they start."""
    reporter()
    return person("change_schedule", "view_agentrun")


def test_every_page_fits_a_phone_and_a_desk_and_can_be_read_by_day_and_by_night(
    sign_in: SignIn, keeper: User
) -> None:
    page = sign_in(keeper, color_scheme="dark")
    for name in _tour(page):
        look(page, f"schedules-{name}")


def test_the_form_previews_and_keeps_what_was_typed(sign_in: SignIn, keeper: User) -> None:
    schedule("daily", cron="30 2 * * *", objective="report")
    row = Schedule.objects.get()
    page = sign_in(keeper)
    page.goto(f"/admin/runs/schedule/{row.pk}/write/")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_label("Objective").fill("report all")
    page.get_by_role("button", name="Show the next starts").click()
    expect(page.get_by_role("row")).to_have_count(6)
    expect(page.get_by_text("there (Europe/Berlin)")).to_be_visible()
    expect(page.get_by_label("Objective")).to_have_value("report all")
    row.refresh_from_db()
    assert (row.version, row.time_zone) == (1, "UTC")


def _tour(page: Page) -> Iterator[str]:
    """Stands at every page in turn, as somebody would who keeps these."""
    page.goto("/admin/runs/schedule/")
    yield "list-empty"
    reporter("brief")
    schedule("a" * 60, agent="brief", objective=LONG, labels={"team": LONG[:90]}, input=LONG)
    schedule("sound", cron="*/15 9-17 * * MON-FRI", time_zone="America/Argentina/Buenos_Aires")
    schedule("off", enabled=False)
    now = timezone.now().replace(second=0, microsecond=0)
    Schedule.objects.filter(enabled=True).update(next_at=now)
    forget_agents({"brief"})
    run_once(now + timedelta(seconds=1))
    page.goto("/admin/runs/schedule/")
    yield "list"
    follow(page, page.get_by_role("link", name="a" * 60))
    yield "page"
    follow(page, page.get_by_role("link", name="Delete…"))
    yield "delete"
    page.goto("/admin/runs/schedule/write/")
    yield "form"
    page.get_by_label("Cron expression").fill("61 2 * * *")
    page.get_by_label("Input").fill(LONG)
    follow(page, page.get_by_role("button", name="Show the next starts"))
    yield "form-refused"

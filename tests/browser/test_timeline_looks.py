"""The timeline on a phone and a desk, by day and by night, with the keyboard, and kept fresh."""

import pytest
from django.urls import reverse

from tests.browser.conftest import SignIn
from tests.browser.looking import PHONE, look, picture
from tests.database.admin_pages import Start, person
from tests.database.eventful import eventful_run, lost_run, operation
from tests.database.kit import expire_lease
from tests.database.stories import parked_run
from tests.database.timeline_pages import address_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def test_every_page_fits_a_phone_and_a_desk_and_can_be_read_by_day_and_by_night(
    sign_in: SignIn, start: Start
) -> None:
    page = sign_in(person(superuser=True), color_scheme="dark")
    lost = lost_run(start)
    expire_lease(lost)
    run = eventful_run(start)
    for name, row in (("lost", lost), ("run", run), ("operation", operation(run, "pay"))):
        page.goto(reverse(f"admin:runs_{row._meta.model_name}_timeline", args=[row.pk]))
        for summary in page.locator("#timeline summary").all()[:12]:
            summary.click()
        look(page, f"timeline-{name}")


def test_a_phone_shows_what_is_uncertain_and_what_to_do_before_anybody_scrolls(
    sign_in: SignIn, start: Start
) -> None:
    page = sign_in(person(superuser=True), viewport=PHONE)
    page.goto(address_of(parked_run(start)))
    for part in (
        page.locator("#verdict-title"),
        page.locator(".ao-todo"),
        page.locator("#action-1"),
    ):
        box = part.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= PHONE["height"]
    picture(page, "timeline-phone-first-sight")

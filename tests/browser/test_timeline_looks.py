"""The timeline on a phone and a desk, by day and by night, with the keyboard, and kept fresh."""

import pytest
from django.urls import reverse

from tests.browser.conftest import SignIn
from tests.browser.looking import look
from tests.database.admin_pages import Start, person
from tests.database.eventful import eventful_run, lost_run, operation
from tests.database.kit import expire_lease

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

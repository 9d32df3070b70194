"""The pages that show llms on a phone and a desk, by day and by night."""

import pytest
from django.urls import reverse

from runs.models import Handoff, LlmRequest
from tests.browser.conftest import SignIn
from tests.browser.looking import look
from tests.database.admin_pages import Start, define_tools, finished_run, page_of, person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]

LONG = "A_very_long_word_without_any_place_to_break_it_" * 6


def test_every_page_fits_a_phone_and_a_desk_and_can_be_read_by_day_and_by_night(
    sign_in: SignIn, start: Start
) -> None:
    define_tools()
    run = finished_run(start)
    body = {
        "done": [LONG, "looked at the order"],
        "facts": [{"text": LONG, "operation": run.operations.all()[0].pk, "observation": 1}],
        "constraints": ["never above 500 EUR"],
    }
    handoff = Handoff.objects.create(
        run=run,
        number=2,
        through_step=2,
        reason=Handoff.Reason.WINDOW,
        schema_version=1,
        body=body,
        written_by="openai:gpt-5-mini",
        repairs=1,
        fence_token=1,
    )
    asked = LlmRequest.objects.filter(run=run)[0]
    page = sign_in(person(superuser=True), color_scheme="dark")
    for name, address in (
        ("run", page_of(run)),
        ("requests", reverse("admin:runs_llmrequest_changelist")),
        ("request", reverse("admin:runs_llmrequest_change", args=[asked.pk])),
        ("handoff", reverse("admin:runs_handoff_change", args=[handoff.pk])),
    ):
        page.goto(address)
        for summary in page.locator(".ao-table summary").all():
            summary.click()
        look(page, f"llm-{name}")

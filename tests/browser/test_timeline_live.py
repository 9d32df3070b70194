"""A timeline keeps itself fresh, and whoever reads it keeps their place."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect

from runs.admin.timeline import REFRESHED_SECONDS
from runs.commands import cancel_run
from runs.models import AgentRun, Incident
from tests.browser.conftest import SignIn
from tests.browser.looking import shows_focus
from tests.database.admin_pages import Start, person
from tests.database.controlling import ANN
from tests.database.eventful import lost_run, operation
from tests.database.kit import drive_when_due, expire_lease
from tests.database.timeline_pages import address_of
from tests.processes import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def go_on(run: AgentRun) -> None:
    """Another worker takes the run over, and carries it on until it needs a signature."""
    expire_lease(run)
    for _ in range(9):
        if run.state == "WAITING_FOR_APPROVAL":
            return
        drive_when_due(run, owner="worker 2")
    raise AssertionError(run.state)


def watched(sign_in: SignIn, run: AgentRun) -> Page:
    """The run's page, whose clock the test turns on; it has asked for news once."""
    page = sign_in(person(superuser=True))
    page.clock.install()
    page.goto(address_of(run))
    with page.expect_response("**/timeline/**since=**"):
        page.clock.run_for(3_500)
    return page


@contextmanager
def expect_silence(page: Page) -> Iterator[None]:
    """Nobody is asked anything in this block."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    yield
    assert asked == []


def test_news_come_by_themselves_and_the_reader_keeps_what_was_opened_and_focused(
    sign_in: SignIn, start: Start
) -> None:
    run = lost_run(start)
    page = sign_in(person(superuser=True))
    page.goto(address_of(run))
    expect(page.get_by_role("status")).to_have_text("Live")
    said = page.locator("#timeline details").first
    said.locator("summary").click()
    page.evaluate("() => { document.querySelector('#timeline details').mine = true; }")
    expect(page.get_by_text("Sent again")).to_have_count(0)
    go_on(run)
    expect(page.get_by_text("Sent again")).to_be_visible()
    expect(page.locator("#verdict")).to_contain_text("waits for a signature")
    expect(page.locator("#lanes")).to_contain_text("no sign of life for")
    expect(said).to_have_attribute("open", "")
    expect(said.locator("summary")).to_be_focused()
    # It is the very same element, not one that looks like it.
    assert page.evaluate("() => document.querySelector('#timeline details').mine === true")


def test_what_one_reads_stays_where_it_is_when_something_grows_above_it(
    sign_in: SignIn, start: Start
) -> None:
    run = lost_run(start)
    page = sign_in(person(superuser=True), viewport={"width": 1000, "height": 500})
    page.goto(address_of(run, order="newest"))
    read = page.get_by_text("Run created")
    read.scroll_into_view_if_needed()
    before = read.bounding_box()
    go_on(run)
    expect(page.get_by_text("Sent again")).to_have_count(1)
    after = read.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(before["y"] - after["y"]) < 2


def test_it_can_be_paused_with_the_keyboard_and_says_when_nobody_answers(
    sign_in: SignIn, start: Start
) -> None:
    page = watched(sign_in, lost_run(start))
    pause = page.get_by_role("button", name="Pause live refresh")
    pause.focus()
    assert shows_focus(pause)
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Paused at")
    with expect_silence(page):
        page.clock.run_for(10_000)
    page.route("**/timeline/**", lambda route: route.abort())
    page.get_by_role("button", name="Resume live refresh").press("Enter")
    expect(page.get_by_role("status")).to_contain_text("no answer. It is tried again")


def test_it_rests_while_nobody_looks_and_looks_once_a_minute_when_the_run_has_ended(
    sign_in: SignIn, start: Start
) -> None:
    run = lost_run(start)
    page = watched(sign_in, run)
    page.evaluate(HIDE, True)
    with expect_silence(page):
        page.clock.run_for(10_000)
    go_on(run)
    cancel_run(actor=ANN, run_id=run.id)
    drive_when_due(run)
    assert run.state == "CANCELLED"
    page.evaluate(HIDE, False)
    expect(page.get_by_role("status")).to_contain_text("The run has ended; what is found later")
    with expect_silence(page):
        page.clock.run_for(50_000)
    Incident.objects.create(
        run=run, operation=operation(run, "pay"), kind=Incident.Kind.DUPLICATE, external_ref="re_2"
    )
    # The next quarter of a minute, by the server's clock, has another mark.
    next_mark = time.time() // REFRESHED_SECONDS + 1
    wait_until(lambda: time.time() // REFRESHED_SECONDS >= next_mark, what="the mark has changed")
    page.clock.run_for(65_000)
    expect(page.locator("#verdict")).to_contain_text("What must not happen has happened")


def test_without_scripts_the_page_is_complete_and_reloads_by_a_link(
    sign_in: SignIn, start: Start
) -> None:
    run = lost_run(start)
    page = sign_in(person(superuser=True), java_script_enabled=False)
    page.goto(address_of(run))
    expect(page.locator("#story")).to_contain_text("Send window opened")
    expect(page.get_by_role("status")).to_have_count(0)
    go_on(run)
    page.get_by_role("link", name="Reload").click()
    expect(page.locator("#story")).to_contain_text("Sent again")


def test_the_file_is_saved_under_the_run_s_name(sign_in: SignIn, start: Start) -> None:
    run = lost_run(start)
    page = sign_in(person(superuser=True))
    page.goto(address_of(run))
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Export as JSON").click()
    assert waiting.value.suggested_filename == f"timeline-{run.pk}.json"
    assert json.loads(waiting.value.path().read_text())["run"]["id"] == str(run.pk)

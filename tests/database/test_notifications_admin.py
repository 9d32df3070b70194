"""In the admin and by command: what went to whom is seen, and sent again by a POST alone."""

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from agentops.models import Delivery
from agentops.notifications import handing_on, sending
from agentops.notifications.sending import Swept
from runs.models import AgentRun
from tests.database.admin_pages import browser_of, define_tools, finished_run, person
from tests.database.kit import change
from tests.database.notifying import (
    Kind,
    Receiver,
    asked,
    forget_notices,
    make_due,
    notice_of,
    somebody,
    the_delivery,
    turn_on_mail,
    turn_on_webhooks,
)

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., AgentRun]
Status = Delivery.Status
LIST = "admin:agentops_delivery_changelist"


@pytest.fixture
def run(start: Start) -> AgentRun:
    define_tools()
    run = finished_run(start)
    forget_notices()
    return run


@pytest.fixture
def given_up(run: AgentRun, settings: Settings) -> Delivery:
    """A webhook whose receiver was gone."""
    with Receiver(lambda number: 410) as receiver:
        turn_on_webhooks(settings, f"{receiver.url}/t0psecret")
        notice_of(run, Kind.RUN_FINISHED)
        sending.run_once()
    return the_delivery(status=Status.FAILED)


def seer() -> Client:
    return browser_of(person("view_delivery"))


def sender() -> Client:
    return browser_of(person("view_delivery", "change_delivery"))


def resend_page(delivery: Delivery) -> str:
    return reverse("admin:agentops_delivery_resend", args=[delivery.pk])


def page_of(delivery: Delivery) -> str:
    return reverse("admin:agentops_delivery_change", args=[delivery.pk])


def test_a_delivery_is_listed_with_what_became_of_it(given_up: Delivery) -> None:
    shown = seer().get(reverse(LIST)).content.decode()
    for word in ("run.finished", "Given up", "answered 410", "127.0.0.1"):
        assert word in shown


def test_its_page_tells_the_event_and_the_run(given_up: Delivery, run: AgentRun) -> None:
    shown = seer().get(page_of(given_up)).content.decode()
    assert given_up.notice.event_id in shown
    assert str(run.pk) in shown
    assert "Send again" not in shown


def test_no_page_shows_more_of_a_web_address_than_its_host(given_up: Delivery) -> None:
    for address in (reverse(LIST), page_of(given_up), resend_page(given_up)):
        assert "t0psecret" not in sender().get(address).content.decode()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"status": "failed"}, True),
        ({"status": "sent"}, False),
        ({"status": "lost"}, False),
        ({"channel": "webhook"}, True),
        ({"channel": "email"}, False),
    ],
)
def test_the_list_is_narrowed(given_up: Delivery, query: dict[str, str], found: bool) -> None:
    shown = seer().get(reverse(LIST), query).content.decode()
    assert (page_of(given_up) in shown) == found


def test_the_list_of_a_run_is_its_own(given_up: Delivery, run: AgentRun) -> None:
    for run_id, found in ((run.pk, True), ("01999999-0000-7000-8000-000000000000", False)):
        shown = seer().get(reverse(LIST), {"run": str(run_id)}).content.decode()
        assert (page_of(given_up) in shown) == found


def test_it_says_how_to_turn_on_what_is_off(run: AgentRun, settings: Settings) -> None:
    shown = seer().get(reverse(LIST)).content.decode()
    assert "AGENTOPS_EMAIL_HOST" in shown
    assert "AGENTOPS_WEBHOOK_URLS" in shown
    turn_on_mail(settings)
    turn_on_webhooks(settings, "https://one.example/hook")
    shown = seer().get(reverse(LIST)).content.decode()
    assert "AGENTOPS_" not in shown


def test_what_waits_for_its_receiver_to_be_set_again_says_so(
    run: AgentRun, settings: Settings
) -> None:
    turn_on_webhooks(settings, "https://one.example/hook")
    notice_of(run, Kind.RUN_FINISHED)
    handing_on.run_once()
    turn_on_webhooks(settings)
    assert "not before its receiver is set again" in seer().get(reverse(LIST)).content.decode()


def test_sending_again_is_a_post_after_a_question(given_up: Delivery, settings: Settings) -> None:
    browser = sender()
    assert resend_page(given_up) in browser.get(page_of(given_up)).content.decode()
    assert "Send it again" in browser.get(resend_page(given_up)).content.decode()
    given_up.refresh_from_db()
    assert given_up.status == Status.FAILED, "asking changes nothing"
    answer = browser.post(resend_page(given_up))
    assert answer.status_code == 302
    given_up.refresh_from_db()
    assert (given_up.status, given_up.attempts) == (Status.PENDING, 0)
    with Receiver() as receiver:
        change("UPDATE agentops_delivery SET address = %s", receiver.url)
        turn_on_webhooks(settings, receiver.url)
        assert sending.run_once() == Swept(sent=1)
    assert receiver.ids == [given_up.notice.event_id.replace(".", "_")]


def test_the_second_click_changes_nothing(given_up: Delivery) -> None:
    browser = sender()
    browser.post(resend_page(given_up))
    change("UPDATE agentops_delivery SET attempts = 3")
    shown = browser.post(resend_page(given_up), follow=True).content.decode()
    assert "on its way already" in shown
    assert the_delivery().attempts == 3


def test_who_may_only_look_may_not_send_again(given_up: Delivery) -> None:
    assert seer().get(resend_page(given_up)).status_code == 403
    assert seer().post(resend_page(given_up)).status_code == 403
    assert browser_of(person()).get(reverse(LIST)).status_code == 403
    assert the_delivery().status == Status.FAILED


def test_a_post_without_the_form_is_refused(given_up: Delivery) -> None:
    user = person("view_delivery", "change_delivery")
    assert browser_of(user, enforce_csrf_checks=True).post(resend_page(given_up)).status_code == 403


@pytest.mark.parametrize("verb", ["put", "delete", "patch"])
def test_no_other_verb_does_anything(given_up: Delivery, verb: str) -> None:
    browser = sender()
    assert getattr(browser, verb)(resend_page(given_up)).status_code == 405
    assert getattr(browser, verb)(page_of(given_up)).status_code == 405


def test_one_that_is_not_there_leads_back_to_the_list(run: AgentRun) -> None:
    for name in ("admin:agentops_delivery_change", "admin:agentops_delivery_resend"):
        answer = sender().get(reverse(name, args=[4711]), follow=True)
        assert answer.redirect_chain == [(reverse(LIST), 302)]
        assert "There is no notification 4711" in answer.content.decode()


def test_an_address_cannot_be_asked_for_letter_by_letter(given_up: Delivery) -> None:
    answer = seer().get(reverse(LIST), {"address__startswith": "http"})
    assert answer.status_code in (302, 400)


# -- The command ---------------------------------------------------------------------------------


def command(**options: Any) -> int:
    said = StringIO()
    call_command("resend_notifications", as_json=True, stdout=said, **options)
    return int(json.loads(said.getvalue())["resent"])


def test_all_that_was_given_up_is_sent_again_by_command(given_up: Delivery) -> None:
    assert command(failed=True) == 1
    assert the_delivery().status == Status.PENDING
    assert command(failed=True) == 0


def test_one_event_or_one_run_is_sent_again_even_if_it_was_taken(
    given_up: Delivery, run: AgentRun
) -> None:
    ended = {"status": Status.SENT, "sent_at": given_up.made_at, "next_try_at": None}
    for options in ({"run": str(run.pk)}, {"event": given_up.notice.event_id}):
        Delivery.objects.update(**ended)
        assert command(**options, channel="email") == 0
        assert command(**options, failed=True) == 0
        assert command(**options) == 1


def test_one_that_somebody_is_sending_is_left_alone(given_up: Delivery) -> None:
    change("UPDATE agentops_delivery SET leased_until = now() + interval '1 min'")
    assert command(failed=True) == 0
    make_due()
    change("UPDATE agentops_delivery SET leased_until = now() - interval '1 s'")
    assert command(failed=True) == 1


def test_what_was_dropped_stays_dropped(run: AgentRun, settings: Settings) -> None:
    turn_on_mail(settings)
    somebody("may", "decide_approval")
    asked(run)
    handing_on.run_once()
    change("UPDATE runs_approval SET status = 'cancelled'")
    assert sending.run_once() == Swept(dropped=1)
    assert command(run=str(run.pk)) == 0


@pytest.mark.parametrize(
    "options", [{}, {"channel": "email"}, {"run": "seventeen"}, {"event": "a\0b"}]
)
def test_it_must_be_said_which(options: dict[str, str]) -> None:
    with pytest.raises(CommandError):
        command(**options)


def test_a_person_is_told_how_many(given_up: Delivery) -> None:
    said = StringIO()
    call_command("resend_notifications", "--failed", stdout=said)
    assert said.getvalue() == "1 to be sent again.\n"

"""Events in a calendar are created once, whatever is lost on the way."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.conformance.calls import Operation
from tests.conformance.targets.fault_proxy import (
    AnswerInstead,
    FaultProxy,
    HalfBody,
    HoldAnswer,
    LandLate,
    LoseAnswer,
    ResetBefore,
)
from tests.conformance.targets.loopback import free_port
from tests.conformance.targets.radicale_server import PASSWORD, USER, Radicale
from tools.catalog.caldav import create_event_tool
from tools.outcome import Committed, Refused, Unknown, Unsent
from tools.registry import get_tool

_numbers = count(1)
STANDUP = {
    "summary": "Stand-up",
    "start": "2026-12-01T09:00:00+01:00",
    "end": "2026-12-01T09:15:00+01:00",
}


@pytest.fixture(scope="module")
def radicale(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Radicale]:
    with Radicale(folder=tmp_path_factory.mktemp("radicale")) as server:
        yield server


@pytest.fixture
def proxy(radicale: Radicale) -> Iterator[FaultProxy]:
    with FaultProxy(radicale.url) as fault_proxy:
        yield fault_proxy


@pytest.fixture
def calendar(radicale: Radicale, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new calendar's name, with the tool registered for it."""
    name = f"calendar{next(_numbers)}"
    monkeypatch.setenv("CALDAV_URL", proxy.url + radicale.create_calendar(name))
    monkeypatch.setenv("CALDAV_USER", USER)
    monkeypatch.setenv("CALDAV_PASSWORD", PASSWORD)
    create_event_tool()
    return name


@pytest.fixture
def event(calendar: str) -> Operation:
    return Operation("create_event", STANDUP)


def test_an_event_is_created_under_the_operations_id(
    event: Operation, radicale: Radicale, calendar: str
) -> None:
    outcome = event.send()
    assert isinstance(outcome, Committed)
    assert outcome.external_ref == event.id
    (text,) = radicale.events(calendar)
    assert f"UID:{event.id}" in text
    assert "DTSTART:20261201T080000Z" in text
    assert event.look_up().verdict == "committed"


def test_an_answer_lost_after_the_commit_is_unknown_and_found(
    event: Operation, radicale: Radicale, calendar: str, proxy: FaultProxy
) -> None:
    proxy.next(LoseAnswer(), method="PUT")
    assert isinstance(event.send(), Unknown)
    found = event.look_up()
    assert (found.verdict, found.external_ref) == ("committed", event.id)
    assert len(radicale.events(calendar)) == 1


def test_a_repeat_after_a_lost_answer_adopts_the_first_event(
    event: Operation, radicale: Radicale, calendar: str, proxy: FaultProxy
) -> None:
    proxy.next(LoseAnswer(reset=True), method="PUT")
    assert isinstance(event.send(), Unknown)
    assert isinstance(event.send(), Committed)
    first, second = proxy.seen(method="PUT")
    assert first.body == second.body
    assert (first.status, second.status) == (201, 412)
    assert len(radicale.events(calendar)) == 1


def test_a_request_that_lands_after_the_look_up_is_still_one_event(
    event: Operation, radicale: Radicale, calendar: str, proxy: FaultProxy
) -> None:
    proxy.next(LandLate(), method="PUT")
    assert isinstance(event.send(), Unknown)
    assert event.look_up().verdict == "not_found"
    assert isinstance(event.send(), Committed)
    proxy.release()
    proxy.wait_until_forwarded(2, method="PUT")
    assert [one.status for one in proxy.seen(method="PUT")] == [201, 412]
    assert len(radicale.events(calendar)) == 1


def test_an_answer_after_the_deadline_is_unknown_and_found(
    event: Operation, proxy: FaultProxy
) -> None:
    proxy.next(HoldAnswer(), method="PUT")
    assert isinstance(event.send(seconds=1.0), Unknown)
    assert event.look_up().verdict == "committed"
    proxy.release()


@pytest.mark.parametrize("status", [302, 307, 429, 500, 503])
def test_an_answer_that_proves_nothing_is_unknown_and_nothing_is_repeated(
    event: Operation, proxy: FaultProxy, status: int
) -> None:
    proxy.next(AnswerInstead(status=status), method="PUT", times=3)
    assert isinstance(event.send(), Unknown)
    assert proxy.forwarded(method="PUT") == 1
    assert event.look_up().verdict == "committed"


@pytest.mark.parametrize(("forward", "outcome"), [(True, Committed), (False, Unknown)])
def test_a_success_that_creates_nothing_by_the_standard_is_looked_at(
    event: Operation,
    radicale: Radicale,
    calendar: str,
    proxy: FaultProxy,
    forward: bool,
    outcome: type,
) -> None:
    proxy.next(AnswerInstead(status=200, body=b"<html>", forward=forward), method="PUT")
    assert isinstance(event.send(), outcome)
    assert len(radicale.events(calendar)) == forward


def test_something_else_at_the_address_is_left_alone_and_refuses_the_event(
    event: Operation, radicale: Radicale, calendar: str
) -> None:
    theirs = (
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:theirs\r\n"
        "DTSTAMP:20260101T000000Z\r\nDTSTART:20260101T000000Z\r\nSUMMARY:theirs\r\n"
        "END:VEVENT\r\nEND:VCALENDAR\r\n"
    )
    path = f"/{USER}/{calendar}/{event.id}.ics"
    radicale.request("PUT", path, theirs).raise_for_status()
    assert isinstance(event.send(), Refused)
    found = event.look_up()
    assert (found.verdict, found.failed) == ("indeterminate", False)
    (text,) = radicale.events(calendar)
    assert "SUMMARY:theirs" in text


def test_an_event_with_our_uid_and_other_arguments_is_not_taken_for_ours(
    event: Operation, calendar: str
) -> None:
    other = Operation("create_event", {**STANDUP, "summary": "Something else"}, id=event.id)
    assert isinstance(other.send(), Committed)
    assert isinstance(event.send(), Refused)
    assert event.look_up().verdict == "indeterminate"


def test_a_uid_that_another_event_has_is_unknown(
    event: Operation, radicale: Radicale, calendar: str
) -> None:
    assert isinstance(event.send(), Committed)
    at, moved = (f"/{USER}/{calendar}/{name}.ics" for name in (event.id, "moved"))
    text = radicale.request("GET", at).text
    radicale.request("DELETE", at).raise_for_status()
    radicale.request("PUT", moved, text).raise_for_status()
    assert isinstance(event.send(), Unknown)
    assert len(radicale.events(calendar)) == 1


def test_an_event_that_its_owner_changed_is_still_ours(
    event: Operation, radicale: Radicale, calendar: str
) -> None:
    event.send()
    at = f"/{USER}/{calendar}/{event.id}.ics"
    alarm = (
        "BEGIN:VALARM\r\nUID:an-alarm\r\nACTION:DISPLAY\r\nDESCRIPTION:x\r\n"
        "TRIGGER:-PT5M\r\nEND:VALARM\r\nEND:VEVENT"
    )
    text = radicale.request("GET", at).text.replace("END:VEVENT", alarm)
    radicale.request("PUT", at, text.replace("Stand-up", "Moved")).raise_for_status()
    assert event.look_up().verdict == "committed"


def test_a_refused_connection_is_not_sent(
    event: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALDAV_URL", f"http://127.0.0.1:{free_port()}/ann/calendar/")
    assert isinstance(event.send(), Unsent)
    assert event.look_up().failed


def test_a_connection_refused_after_a_412_does_not_count_as_not_sent(
    event: Operation, proxy: FaultProxy
) -> None:
    event.send()
    proxy.next(ResetBefore(), method="GET")
    assert isinstance(event.send(), Unknown)


def test_a_reset_before_anything_was_read_is_unknown(event: Operation, proxy: FaultProxy) -> None:
    proxy.next(ResetBefore(), method="PUT")
    assert isinstance(event.send(), Unknown)
    assert event.look_up().verdict == "not_found"


def test_a_wrong_password_is_not_sent(event: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALDAV_PASSWORD", "wrong")
    assert isinstance(event.send(), Unsent)
    assert event.look_up().failed


def test_a_missing_variable_is_named_and_nothing_is_sent(
    event: Operation, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CALDAV_PASSWORD")
    outcome = event.send()
    assert isinstance(outcome, Unsent)
    assert "CALDAV_PASSWORD" in outcome.reason
    assert proxy.forwarded() == 0


def test_a_missing_calendar_is_refused(
    event: Operation, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALDAV_URL", f"{proxy.url}/{USER}/nothing-here/")
    assert isinstance(event.send(), Refused)


def test_an_event_that_ends_before_it_begins_is_refused_and_not_sent(
    calendar: str, proxy: FaultProxy
) -> None:
    backwards = Operation(
        "create_event", {**STANDUP, "start": STANDUP["end"], "end": STANDUP["start"]}
    )
    assert isinstance(backwards.send(), Refused)
    assert proxy.forwarded() == 0


@pytest.mark.parametrize("fault", [AnswerInstead(status=500), AnswerInstead(403), HalfBody()])
def test_a_look_up_that_is_not_answered_is_no_negative(
    event: Operation, proxy: FaultProxy, fault: AnswerInstead | HalfBody
) -> None:
    event.send()
    proxy.next(fault, method="GET")
    assert event.look_up().failed


def test_free_text_cannot_add_a_property(calendar: str, radicale: Radicale) -> None:
    hostile = (
        "x\r\nATTENDEE:mailto:victim@example.org\nEND:VEVENT\x07\u2028UID:other;,\\n" + "é" * 99
    )
    operation = Operation("create_event", {**STANDUP, "summary": hostile})
    assert isinstance(operation.send(), Committed)
    (text,) = radicale.events(calendar)
    lines = text.replace("\r\n ", "").splitlines()
    assert [line for line in lines if line.startswith(("ATTENDEE", "UID"))] == [
        f"UID:{operation.id}"
    ]
    assert lines.count("END:VEVENT") == 1


def test_the_moments_of_the_send_are_noted(event: Operation) -> None:
    call = event.call(seconds=10)
    get_tool("create_event").function(call, **get_tool("create_event").bind(event.arguments))
    assert {"first_byte", "last_byte"} <= set(call.window.marks)

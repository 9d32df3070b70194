"""Schedules over REST: read by those who may read, page by page."""

from typing import Any

import pytest

from runs.access import READ, SCHEDULES_WRITE
from runs.schedules import run_once
from tests.database.callers import caller
from tests.database.scheduling import NOON, reporter, runs_of, schedule

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _agent() -> None:
    reporter()


def names(answer: Any) -> list[str]:
    return [one["name"] for one in answer.json()["results"]]


def test_a_schedule_is_shown_with_what_came_of_it() -> None:
    schedule(due=NOON, labels={"team": "web"}, time_zone="Europe/Berlin")
    run_once(NOON)
    shown = caller(READ).get("schedules/hourly/").json()
    assert shown["last_run"] == str(runs_of().get().id)
    assert (shown["last_run_state"], shown["last_slot"]) == ("READY", "2026-06-01T12:00:00Z")
    assert (shown["next_at"], shown["enabled"]) == ("2026-06-01T13:00:00Z", True)
    assert (shown["cron"], shown["time_zone"]) == ("0 * * * *", "Europe/Berlin")
    assert (shown["catch_up"], shown["last_error"]) == ("latest", None)


def test_schedules_are_read_on_by_name_both_ways() -> None:
    for name in "dbeac":
        schedule(name)
    reader = caller(READ)
    first = reader.get("schedules/", page_size=2)
    assert names(first) == ["a", "b"]
    assert first.json()["previous"] is None
    second = reader.client.get(first.json()["next"], headers=reader._headers())
    last = reader.client.get(second.json()["next"], headers=reader._headers())
    assert (names(second), names(last), last.json()["next"]) == (["c", "d"], ["e"], None)
    back = reader.client.get(last.json()["previous"], headers=reader._headers())
    assert names(back) == ["c", "d"]
    start = reader.client.get(back.json()["previous"], headers=reader._headers())
    assert (names(start), start.json()["previous"]) == (["a", "b"], None)


def test_the_list_costs_the_same_however_many_there_are(
    django_assert_max_num_queries: Any,
) -> None:
    for number in range(12):
        schedule(f"s{number}", due=NOON)
    run_once(NOON)
    reader = caller(READ)
    # The token, that it was used, and the page.
    with django_assert_max_num_queries(3):
        assert len(names(reader.get("schedules/"))) == 12


def test_who_may_not_read_is_refused() -> None:
    schedule()
    assert caller(SCHEDULES_WRITE).get("schedules/").status_code == 403
    assert caller(SCHEDULES_WRITE).get("schedules/hourly/").status_code == 403


@pytest.mark.parametrize(
    "name", ["gone", "a%00b", "UPPER", "x" * 300], ids=["gone", "nul", "upper", "long"]
)
def test_an_unknown_name_is_a_problem(name: str) -> None:
    answer = caller(READ).get(f"schedules/{name}/")
    assert answer.status_code == 404
    problem = answer.json()
    assert (problem["type"], problem["field"]) == ("urn:agentops:problem:unknown-schedule", "name")
    assert problem["fix"] == "GET schedules/ lists them."


@pytest.mark.parametrize("query", [{"cursor": "x"}, {"agent": "a"}, {"page_size": "0"}], ids=str)
def test_a_bad_query_is_a_problem(query: dict[str, str]) -> None:
    answer = caller(READ).get("schedules/", **query)
    assert answer.status_code == 400
    assert answer.json()["field"] == next(iter(query))


def test_a_foreign_cursor_is_refused() -> None:
    answer = caller(READ).get("schedules/", cursor="eyJuYW1lIjogIkEifQ")
    assert (answer.status_code, answer.json()["field"]) == (400, "cursor")

"""Writing schedules: who may, what is refused, and when the next start then is."""

import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection

from runs.access import READ, RUNS_WRITE, SCHEDULES_WRITE, Actor, operator
from runs.cron import next_slot
from runs.errors import InvalidSchedule, NotPermitted, ScheduleChanged, UnknownSchedule
from runs.models import AgentRun, Schedule
from runs.schedule_commands import (
    delete_schedule,
    disable_schedule,
    enable_schedule,
    save_schedule,
    start_now,
)
from runs.schedule_text import ScheduleText
from runs.schedules import run_once
from tests.database.kit import ON_DATABASE, another_connection
from tests.database.scheduling import DAY, NOON, reporter, runs_of, schedule
from tests.processes import wait_until

pytestmark = pytest.mark.django_db

Say = Callable[..., str]


@pytest.fixture(autouse=True)
def _agent() -> None:
    reporter()


@pytest.fixture
def say() -> Say:
    def run(*words: str) -> str:
        out = StringIO()
        call_command(*words, stdout=out)
        return out.getvalue()

    return run


def now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        found: datetime = cursor.fetchone()[0]
    return found


def actor(*scopes: str, user: User | None = None) -> Actor:
    return Actor(name="ann", scopes=frozenset(scopes), user_id=user.pk if user else None)


def test_every_command_asks_for_the_scope() -> None:
    row = schedule()
    nobody = actor(READ, RUNS_WRITE)
    for command in (enable_schedule, disable_schedule, delete_schedule, start_now):
        with pytest.raises(NotPermitted, match="schedules:write"):
            command(actor=nobody, name="hourly")  # type: ignore[operator]
    with pytest.raises(NotPermitted, match="schedules:write"):
        save_schedule(actor=nobody, name="hourly", text=ScheduleText.of(row))
    assert Schedule.objects.get().version == 1
    assert not AgentRun.objects.exists()


def test_the_first_start_is_the_next_slot_there() -> None:
    row = schedule(cron="30  2 * * *", time_zone="Europe/Berlin")
    assert row.cron == "30 2 * * *"
    assert row.next_at == next_slot(row.cron, ScheduleText.of(row).zone, now())


def test_a_change_of_words_keeps_the_slot_that_is_due() -> None:
    schedule(due=NOON)
    assert schedule(objective="another").next_at == NOON
    assert (Schedule.objects.get().version, Schedule.objects.get().objective) == (2, "another")


@pytest.mark.parametrize("moved", [{"cron": "5 * * * *"}, {"time_zone": "Asia/Kolkata"}], ids=str)
def test_a_change_of_times_starts_anew_from_now(moved: dict[str, Any]) -> None:
    schedule(due=NOON - 1000 * DAY)
    row = schedule(**moved)
    assert row.next_at is not None
    assert row.next_at > now()


def test_what_passes_while_it_is_disabled_is_not_missed() -> None:
    schedule(due=NOON - 1000 * DAY, catch_up="all")
    for _ in range(2):
        row = disable_schedule(actor=operator(), name="hourly")
        assert (row.enabled, row.next_at) == (False, None)
    for _ in range(2):
        row = enable_schedule(actor=operator(), name="hourly")
        assert row.next_at is not None
        assert row.next_at > now()
    assert run_once(now() - timedelta(hours=1)).started == 0


def test_the_next_start_is_later_than_the_last_slot_whatever_the_clock_says() -> None:
    row = schedule(due=now() + 2 * DAY)
    run_once(now() + 3 * DAY)
    row.refresh_from_db()
    before = row.last_slot
    assert before is not None
    disable_schedule(actor=operator(), name="hourly")
    row = enable_schedule(actor=operator(), name="hourly")
    assert row.next_at is not None
    assert row.next_at > before


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "agent": ({"agent": "reportr"}, "Did you mean 'reporter'?"),
    "cron": ({"cron": "61 * * * *"}, "minute '61' is not possible"),
    "time_zone": ({"time_zone": "Berlin"}, "Did you mean 'Europe/Berlin'?"),
    "catch_up": ({"catch_up": "some"}, "Use one of: skip, latest, all."),
    "priority": ({"priority": 101}, "-100 to 100"),
    "objective": ({"objective": "a\0b"}, "objective"),
    "input": ({"input": {"x": float("nan")}}, "input"),
    "labels": ({"labels": {"slot": "x"}}, "a schedule sets this one"),
}


@pytest.mark.parametrize("field", sorted(BAD))
def test_what_does_not_fit_is_named_and_nothing_is_saved(field: str) -> None:
    given, told = BAD[field]
    with pytest.raises(InvalidSchedule, match=field) as refused:
        schedule(**given)
    assert {problem.field.split(".")[0] for problem in refused.value.problems} == {field}
    assert told in str(refused.value)
    assert not Schedule.objects.exists()


def test_every_problem_is_told_at_once() -> None:
    given = {name: value for bad, _ in BAD.values() for name, value in bad.items()}
    with pytest.raises(InvalidSchedule) as refused:
        schedule("Bad name", **given)
    fields = {problem.field.split(".")[0] for problem in refused.value.problems}
    assert fields == {"name", *BAD}


@pytest.mark.parametrize("name", ["", "Nightly", "a b", "-a", "a" * 61, "a\0", "é"], ids=ascii)
def test_a_name_is_plain(name: str) -> None:
    with pytest.raises(InvalidSchedule, match="small letters"):
        schedule(name)


def test_more_labels_than_a_run_takes_are_refused_at_once() -> None:
    schedule("most", labels={f"l{n}": "x" for n in range(18)}, due=NOON)
    assert run_once(NOON).started == 1
    with pytest.raises(InvalidSchedule, match="at most 18"):
        schedule("more", labels={f"l{n}": "x" for n in range(19)})


@pytest.mark.parametrize(
    "written",
    [
        "name = 'A b'",
        "cron = '* * *'",
        "enabled = false",
        "next_at = NULL",
        "catch_up = 'some'",
        "priority = 101",
        "labels = '[]'",
    ],
)
def test_the_database_refuses_what_is_no_schedule(written: str) -> None:
    schedule()
    with pytest.raises(DatabaseError, match="schedule_"), connection.cursor() as cursor:
        cursor.execute(f"UPDATE runs_schedule SET {written}")


def test_who_saves_on_an_old_version_is_told() -> None:
    text = ScheduleText.of(schedule())
    schedule(objective="meanwhile")
    for based_on in (0, 1):
        with pytest.raises(ScheduleChanged, match="command line saved schedule 'hourly'"):
            save_schedule(actor=operator(), name="hourly", text=text, based_on=based_on)
    with pytest.raises(ScheduleChanged, match="somebody"):
        save_schedule(actor=operator(), name="gone", text=text, based_on=3)
    assert Schedule.objects.get().objective == "meanwhile"


@pytest.mark.parametrize("name", ["gone", "a\0", "x" * 5000], ids=["gone", "nul", "long"])
def test_an_unknown_name_is_told(name: str) -> None:
    for command in (enable_schedule, disable_schedule, delete_schedule, start_now):
        with pytest.raises(UnknownSchedule, match="list_schedules"):
            command(actor=operator(), name=name)  # type: ignore[operator]


def test_start_now_is_a_run_of_the_person_and_leaves_the_slots_alone() -> None:
    user = User.objects.create_user("ann")
    before = schedule(labels={"team": "web"})
    for _ in range(2):
        started = start_now(
            actor=actor(SCHEDULES_WRITE, user=user), name="hourly", idempotency_key="click"
        )
    run = AgentRun.objects.get()
    assert started.run == run
    assert started.replayed
    assert (run.created_by, run.created_by_user) == ("ann", user)
    assert run.labels == {"team": "web", "schedule": "hourly"}
    row = Schedule.objects.get()
    assert (row.last_run, row.next_at, row.last_slot) == (run, before.next_at, None)


def test_who_saved_the_schedule_counts_as_who_started_its_runs() -> None:
    user = User.objects.create_user("ann")
    row = schedule(due=NOON)
    save_schedule(actor=actor(SCHEDULES_WRITE, user=user), name="hourly", text=ScheduleText.of(row))
    run_once(NOON)
    run = runs_of().get()
    assert (run.created_by, run.created_by_user) == ("schedule hourly", user)


def test_a_deleted_schedule_is_gone_and_its_runs_stay() -> None:
    schedule(due=NOON)
    run_once(NOON)
    delete_schedule(actor=operator(), name="hourly")
    assert not Schedule.objects.exists()
    assert runs_of().count() == 1


@ON_DATABASE
def test_of_two_who_make_the_same_schedule_one_is_told() -> None:
    text = ScheduleText(agent="reporter", cron="0 * * * *")
    told: list[str] = []

    def save() -> None:
        try:
            save_schedule(actor=operator(), name="hourly", text=text, based_on=0)
        except ScheduleChanged as error:
            told.append(error.saved_by)
        finally:
            connection.close()

    with another_connection(autocommit=False) as first, another_connection() as looking:
        first.execute(
            "INSERT INTO runs_schedule (name, agent, objective, input, labels, cron, time_zone,"
            " catch_up, enabled, last_error, version, created_by, saved_by)"
            " VALUES ('hourly', 'reporter', '', '{}', '{}', '0 * * * *', 'UTC', 'skip', false, '',"
            " 1, 'bob', 'bob')"
        )
        second = threading.Thread(target=save)
        second.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid'"
        wait_until(
            lambda: looking.execute(waiting).fetchone() == (1,),
            what="the second waits for the first",
        )
        first.commit()
        second.join()
    assert told == ["bob"]
    assert Schedule.objects.get().created_by == "bob"


# -- At the command line ---------------------------------------------------------


def test_a_schedule_is_saved_changed_listed_and_deleted(say: Say) -> None:
    assert "it starts next at" in say(
        *("save_schedule", "nightly", "--agent", "reporter", "--cron", "30 2 * * *"),
        *("--time-zone", "Europe/Berlin", "--input", '{"x": 1}', "--label", "team=web"),
        *("--priority", "5"),
    )
    changed = json.loads(say("save_schedule", "nightly", "--catch-up", "all", "--json"))
    assert (changed["version"], changed["catch_up"], changed["cron"]) == (2, "all", "30 2 * * *")
    assert (changed["input"], changed["labels"], changed["priority"]) == (
        {"x": 1},
        {"team": "web"},
        5,
    )
    assert "disabled" in say("save_schedule", "nightly", "--disable", "--priority", "agent")
    assert "disabled" in say("list_schedules")
    (listed,) = json.loads(say("list_schedules", "--json"))
    assert (listed["enabled"], listed["next_at"], listed["priority"]) == (False, None, None)
    assert json.loads(say("save_schedule", "nightly", "--enable", "--json"))["next_at"] is not None
    assert json.loads(say("delete_schedule", "nightly", "--json"))["name"] == "nightly"
    assert "No schedule yet" in say("list_schedules")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("save_schedule", "a", "--cron", "0 * * * *"), "--agent: none"),
        (("save_schedule", "a", "--agent", "reporter"), "--cron: none"),
        (("save_schedule", "a", "--agent", "reportr", "--cron", "0 * * * *"), "'reporter'"),
        (("save_schedule", "a", "--agent", "reporter", "--cron", "bad"), "five fields"),
        (
            ("save_schedule", "a", "--agent", "reporter", "--cron", "0 * * * *", "--priority", "x"),
            "Give a whole number, or agent.",
        ),
        (
            ("save_schedule", "a", "--agent", "reporter", "--cron", "0 * * * *", "--input", "{"),
            "--input",
        ),
        (("delete_schedule", "gone"), "there is no schedule 'gone'"),
        (("list_schedules", "--limit", "0"), "--limit"),
    ],
    ids=lambda given: None if isinstance(given, str) else "_".join(given)[:40],
)
def test_bad_words_are_told_in_one_sentence(say: Say, words: tuple[str, ...], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        say(*words)
    assert not Schedule.objects.exists()


def test_an_input_is_shown_without_what_is_declared_sensitive(say: Say) -> None:
    from runs import Agent, Finish
    from tests.database.admin_pages import CARD, define_tools

    define_tools()
    Agent(name="payer", decider=lambda context: Finish(None), tools=("pay",))
    schedule(agent="payer", input={"card_number": CARD})
    assert CARD not in say("list_schedules", "--json")

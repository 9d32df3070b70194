"""The page of service levels: what it says of real runs, to whom, and for how many queries."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from runs import Fail, Finish
from runs.admin.slo_words import card_of, percent, say_duplicates, say_people, spread_rows
from runs.models import Rollup
from runs.slo.measures import Measure
from runs.slo.objectives import Objective
from runs.slo.report import build_report
from runs.slo.rolling import run_once
from runs.slo.slices import floor
from tests.database.admin_pages import Start, browser_of, person
from tests.database.kit import drive

pytestmark = pytest.mark.django_db
PAGE = reverse("admin:runs_rollup_changelist")


@pytest.fixture
def root() -> Client:
    return browser_of(person(superuser=True))


def counted(measure: Measure, count: int, *, agent: str = "seen", tool: str = "") -> None:
    """So much of a measure, in the slice that is open."""
    Rollup.objects.create(
        starts_at=floor(timezone.now(), timedelta(minutes=5)),
        seconds=300,
        agent=agent,
        agent_version="1",
        tool=tool,
        measure=measure,
        count=count,
    )


@pytest.mark.django_db(transaction=True)
def test_what_runs_came_to_stands_on_the_page(root: Client, start: Start) -> None:
    for decision in (Finish(), Finish(), Finish(), Fail("no such order")):
        drive(start(decider=lambda context, decision=decision: decision))
    run_once()
    page = root.get(PAGE, {"window": "1h"}).content.decode()
    assert "Runs completed" in page
    assert "75 %" in page
    assert "3 of 4; promised are 99 %" in page
    assert "The error budget is spent 25.0 times over" in page


def test_an_empty_page_tells_what_is_missing(root: Client) -> None:
    assert "Nothing was counted yet" in root.get(PAGE).content.decode()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"window": "3y"}, "Give hours or days"),
        ({"by": "<b>"}, "Use agent, tool, version"),
        ({"agent": "nobody\0"}, "nobody"),
        ({"tool": "<script>"}, "&lt;script&gt;"),
    ],
)
def test_what_cannot_be_shown_is_named_and_the_rest_is(
    root: Client, asked: dict[str, str], said: str
) -> None:
    answer = root.get(PAGE, asked)
    assert answer.status_code == 200
    page = answer.content.decode()
    assert "Not shown" in page
    assert said in page
    assert "Runs completed" in page
    assert "<script>" not in page.replace("<script src", "")


def test_only_those_who_may_see_rollups_see_the_page() -> None:
    assert browser_of(person()).get(PAGE).status_code == 403
    assert browser_of(person("view_rollup")).get(PAGE).status_code == 200


def test_nothing_is_changed_by_any_other_method(root: Client) -> None:
    assert root.post(PAGE).status_code == 405


def test_groups_and_rollups_cost_no_query(root: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            root.get(PAGE, {"by": "agent", "window": "7d"})
        return len(seen)

    counted(Measure.RUNS_COMPLETED, 1)
    before = queries()
    for number in range(40):
        counted(Measure.RUNS_COMPLETED, 1, agent=f"agent {number}")
    assert queries() == before <= 20


def test_what_should_not_have_happened_leads_to_its_list(root: Client) -> None:
    counted(Measure.OPERATIONS_SENT, 10, tool="pay")
    counted(Measure.DUPLICATES, 1, tool="pay")
    page = root.get(PAGE).content.decode()
    assert f"{reverse('admin:runs_incident_changelist')}?kind=DUPLICATE" in page
    assert "None may be bad, and 1 is" in page


def test_what_is_not_all_is_never_shown_as_all() -> None:
    assert percent(0.99999) == "99.99 %"
    assert percent(1.0) == "100 %"
    assert percent(None) == "–"


def test_what_cost_nothing_is_not_said_to_have_cost_up_to_the_first_bound() -> None:
    now = floor(timezone.now(), timedelta(minutes=5))
    shared = {"starts_at": now, "seconds": 300, "agent": "seen", "agent_version": "1"}
    cost = shared | {"measure": Measure.RUN_COST_USD, "le": 0.01, "tool": ""}
    free = Rollup.objects.create(**cost, count=4)

    def said() -> tuple[str, ...]:
        [row] = spread_rows(build_report(window="1h").all)
        return row[2:]

    assert said() == ("$0.00", "$0.00", "$0.00", "$0.00")
    Rollup.objects.filter(pk=free.pk).update(total="0.02")
    assert said() == ("$0.0050", "$0.01", "$0.01", "$0.02")


def test_one_repeat_and_one_second_effect_are_said_as_one() -> None:
    counted(Measure.REPEATS_ANSWERED, 1, tool="pay")
    counted(Measure.DUPLICATES, 1, tool="pay")
    said = say_duplicates(build_report(window="1h").all)
    assert "1 repeat was answered" in said
    assert "1 second effect was found: it is an incident." in said


def test_nothing_to_judge_is_not_a_kept_promise() -> None:
    report = build_report(window="1h")
    card = card_of(report.all.indicators[0], report)
    assert (card.ratio, card.verdict) == ("–", "nothing to judge")
    assert card.chart == ""


@pytest.mark.parametrize(
    ("unchanged", "changed", "denied", "said"),
    [
        (0, 0, 0, "Nobody decided"),
        (3, 0, 0, "Too few"),
        (99, 1, 0, "nobody needs"),
        (60, 20, 20, "something else than the agent"),
        (80, 10, 10, "at about the right level"),
    ],
)
def test_verdicts_tell_whether_people_are_asked_at_the_right_level(
    unchanged: int, changed: int, denied: int, said: str
) -> None:
    for measure, count in (
        (Measure.APPROVALS_UNCHANGED, unchanged),
        (Measure.APPROVALS_CHANGED, changed),
        (Measure.APPROVALS_DENIED, denied),
    ):
        counted(measure, count, tool="pay")
    assert said in say_people(build_report(window="1h").all)


def test_a_point_of_the_chart_is_the_part_that_was_good() -> None:
    counted(Measure.RUNS_COMPLETED, 3)
    counted(Measure.RUNS_FAILED, 1)
    report = build_report(window="1h")
    card = next(
        card_of(one, report) for one in report.all.indicators if one.name is Objective.COMPLETION
    )
    assert '"data": [null' in card.chart
    assert "75.0" in card.chart
    assert [said for _, said in card.rows] == ["3 of 4"]

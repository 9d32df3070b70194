"""The report through its doors: the address, the command, and beat."""

import json
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import Client

from runs.models import Sweep
from runs.slo.measures import Measure
from runs.slo.report import build_report
from runs.slo.rolling import SWEEP
from runs.tasks import roll_up
from tests.database.callers import caller
from tests.database.test_slo_report import happened

pytestmark = pytest.mark.django_db

ADDRESS = "slo/"


def said(**options: Any) -> str:
    out = StringIO()
    call_command("slo_report", stdout=out, **options)
    return out.getvalue()


@pytest.fixture(autouse=True)
def counted() -> None:
    happened(Measure.RUNS_COMPLETED, 99)
    happened(Measure.RUNS_FAILED, 1)
    happened(Measure.OPERATIONS_SENT, 10, tool="pay")
    happened(Measure.DUPLICATES, 1, tool="pay")
    for le, count in ((60, 9), (float("inf"), 91)):
        happened(Measure.RUN_SECONDS, count, le=le, total=60)


def test_the_address_the_command_and_the_function_say_the_same() -> None:
    answer = caller("read").get(ADDRESS, window="7d", by="tool", agent="a")
    assert answer.status_code == 200
    told, printed = answer.json(), json.loads(said(window="7d", by="tool", agent="a", as_json=True))
    built = build_report(window="7d", by="tool", agent="a").model_dump(mode="json")
    for one in (told, printed, built):
        one.pop("until")
    assert told == printed == built
    assert told["all"]["counts"]["runs_completed"] == 99
    assert told["all"]["indicators"][0] == {
        "name": "completion",
        "title": "Runs completed",
        "good": 99,
        "total": 100,
        "ratio": 0.99,
        "target": 0.99,
        "bound": None,
        "budget_left": 0.0,
        "burn": 1.0,
        "is_kept": True,
    }
    assert [one["name"] for one in told["groups"]] == ["pay"]


def test_without_a_word_it_is_the_last_day_of_all() -> None:
    told = caller("read").get(ADDRESS).json()
    assert (told["window"], told["by"], told["groups"]) == ("24h", None, [])


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"window": "1y"}, "window"),
        ({"window": ""}, "window"),
        ({"by": "llm"}, "by"),
        ({"agent": "<script>"}, "agent"),
        ({"tool": "x"}, "tool"),
        ({"windows": "1h"}, "windows"),
        ({"window": ["1h", "2h"]}, "window"),
    ],
)
def test_what_is_not_possible_is_named(query: dict[str, Any], field: str) -> None:
    answer = caller("read").get(ADDRESS, **query)
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_the_schema_tells_what_there_is() -> None:
    schema = Client().get("/api/v1/schema/?format=json").json()
    told = schema["paths"]["/api/v1/slo/"]["get"]
    assert {one["name"] for one in told["parameters"]} == {"window", "by", "agent", "tool"}
    report = schema["components"]["schemas"]["Report"]
    assert {"all", "groups", "series", "counted_at"} <= report["properties"].keys()


def test_the_command_shows_what_is_kept_what_is_left_and_what_was_counted() -> None:
    lines = said(by="tool").splitlines()
    assert (
        "all  Runs completed                    99    100     99 %   99 %    0 %          1.00"
        in (line.rstrip() for line in lines)
    )
    sends = next(line for line in lines if line.startswith("pay") and "second effect" in line)
    assert sends.split()[-1] == "spent"
    seconds = next(line for line in lines if "run seconds" in line)
    assert seconds.endswith("> 604800  > 604800")
    assert "Nothing was counted yet" in lines[-1]


def test_the_command_names_what_is_not_possible() -> None:
    with pytest.raises(CommandError, match="window: 'x' is not possible"):
        said(window="x")


def test_beat_has_it_counted_twice_a_minute() -> None:
    planned = settings.CELERY_BEAT_SCHEDULE["roll-up"]
    assert planned["task"] == roll_up.name
    assert planned["schedule"].total_seconds() == planned["options"]["expires"] == 30
    roll_up()
    assert Sweep.objects.get(name=SWEEP).done_until is not None

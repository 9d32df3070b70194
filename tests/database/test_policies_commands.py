"""Policies at the command line."""

import json
from collections.abc import Callable
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.core.management.base import CommandError

from approvals.durations import parse_duration, say_duration
from approvals.policies import find_policy
from runs.errors import InvalidInput
from tests.database.policy_rows import PAYMENTS
from tools import Call, EffectType, tool
from tools.models import ToolPolicy

pytestmark = pytest.mark.django_db

Say = Callable[..., str]


@pytest.fixture(autouse=True)
def _shop() -> None:
    @tool(effect_type=EffectType.IDEMPOTENT_WRITE, provider=PAYMENTS, name="refund")
    def refund(call: Call, amount: Decimal) -> None: ...

    Group.objects.create(name="finance")


@pytest.fixture
def say() -> Say:
    def run(*words: str) -> str:
        out = StringIO()
        call_command(*words, stdout=out)
        return out.getvalue()

    return run


def say_json(say: Say, *words: str) -> Any:
    return json.loads(say(*words, "--json"))


BIG = (
    *("save_policy", "big", "--outcome", "require_approval", "--tool", "refund"),
    *("--when", "amount > 500", "--groups", "finance", "--quorum", "2", "--reason", "asked"),
)


def test_a_policy_is_saved_changed_shown_and_retired(say: Say) -> None:
    saved = say_json(say, *BIG, "--approve-by", "4h")
    assert (saved["version"], saved["author"], saved["approve_by_seconds"]) == (
        1,
        "command line",
        14_400,
    )
    said = say("save_policy", "big", "--when", "amount > 100", "--reason", "lower")
    assert "Saved big v2: when: amount > 500 → amount > 100." in said
    row = find_policy("big")
    assert row is not None
    # What was not given stayed as it was.
    assert (row.tool, row.groups, row.quorum) == ("refund", ["finance"], 2)
    history = say("list_policies", "--history", "big")
    assert history.index("lower") < history.index("asked")
    assert "Retired big" in say("retire_policy", "big", "--reason", "done")
    assert "big" not in say("list_policies")
    assert "retired" in say("list_policies", "--all")
    assert [one["version"] for one in say_json(say, "list_policies", "--history", "big")] == [
        3,
        2,
        1,
    ]


def test_another_outcome_drops_what_was_said_about_signing(say: Say) -> None:
    say(*BIG)
    refused = say_json(say, "save_policy", "big", "--outcome", "refuse", "--reason", "enough")
    assert (refused["groups"], refused["quorum"]) == ([], 1)


def test_an_empty_text_takes_a_value_away(say: Say) -> None:
    say(*BIG, "--remind-after", "1h")
    bare = say_json(
        say, "save_policy", "big", "--groups", "", "--remind-after", "", "--reason", "anybody"
    )
    assert (bare["groups"], bare["remind_after_seconds"]) == ([], None)


def test_a_window_is_said_in_time(say: Say) -> None:
    words = ("--window", "5m", "--window-money", "amount", "--window-by", "requester")
    when = ("--when", "window.count > 20 || window.total > 500")
    saved = say_json(say, *BIG, *words, *when)
    assert (saved["window_seconds"], saved["window_by"], saved["window_money"]) == (
        300,
        "requester",
        "amount",
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--tool", "refnd"), "Did you mean 'refund'?"),
        (("--when", "amout > 1"), "unknown argument amout"),
        (("--approve-by", "soon"), "--approve-by: 'soon'"),
        (("--window", "5 years"), "--window: '5 years'"),
        (("--groups", "finance,legal"), "legal"),
    ],
)
def test_a_mistake_ends_in_one_sentence(say: Say, words: tuple[str, ...], told: str) -> None:
    with pytest.raises(CommandError) as failed:
        say(*BIG, *words)
    assert told in str(failed.value)
    assert not ToolPolicy.objects.exists()


def test_a_new_policy_needs_an_outcome(say: Say) -> None:
    with pytest.raises(CommandError, match="--outcome"):
        say("save_policy", "big", "--reason", "why")


def test_an_unknown_policy_has_no_history(say: Say) -> None:
    for name in ("big", "stop:everything"):
        with pytest.raises(CommandError, match="not the name of a policy"):
            say("list_policies", "--history", name)


def test_sending_is_stopped_and_resumed(say: Say) -> None:
    assert "stopped for everything" in say("stop_sending", "--everything", "--reason", "fire")
    stopped = say_json(say, "stop_sending", "--tool", "refund", "--reason", "double")
    assert (stopped["tool"], stopped["everything"]) == ("refund", False)
    shown = say("list_policies")
    assert "fire" in shown
    assert "double" in shown
    listed = say_json(say, "list_policies")["stopped"]
    assert [one["everything"] for one in listed] == [True, False]
    with pytest.raises(CommandError, match="stopped for refund already, by command line"):
        say("stop_sending", "--tool", "refund", "--reason", "again")
    assert "goes on for refund" in say("resume_sending", "--tool", "refund", "--reason", "fixed")
    assert say_json(say, "resume_sending", "--everything", "--reason", "out") == {
        "tool": None,
        "provider": None,
        "everything": True,
        "runs_made_due": 0,
    }
    with pytest.raises(CommandError, match="not stopped for everything"):
        say("resume_sending", "--everything", "--reason", "again")


@pytest.mark.parametrize("words", [(), ("--tool", "refund", "--everything")])
def test_a_stop_has_one_target(say: Say, words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        say("stop_sending", *words, "--reason", "why")


@pytest.mark.parametrize("text", ["90s", "15m", "4h", "3d", "1s", "366d"])
def test_times_are_written_as_they_are_read(text: str) -> None:
    assert say_duration(parse_duration(text, field="x")) == text
    assert say_duration(parse_duration(f" {text} ", field="x")) == text


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "1.5h", "٣m", "5m5s", "9999999999d", "1y"])
def test_a_time_that_is_none_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(InvalidInput, match="--x") as refused:
        parse_duration(text, field="--x")
    assert refused.value.field == "--x"


def test_a_time_has_its_longest_unit() -> None:
    assert say_duration(parse_duration("120m", field="x")) == "2h"
    assert say_duration(parse_duration("90m", field="x")) == "90m"

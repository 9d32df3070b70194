"""A mistake in what a tool declares about signatures stops the project at its start."""

from datetime import timedelta
from typing import Any

import pytest

from tools import Approve, Call, EffectType, tool
from tools.checks import check_tools
from tools.registry import isolated_registry

HOUR = timedelta(hours=1)


def found_in(**declared: Any) -> dict[str, str]:
    """The messages about a tool with these declarations, by id."""
    with isolated_registry():

        @tool(**{"effect_type": EffectType.READ, "name": "look", **declared})
        def look(call: Call, amount: int, agent: str = "") -> None:
            """Look."""

        return {str(message.id): f"{message.msg} {message.hint}" for message in check_tools()}


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("amout > 500", "unknown argument amout; there are: amount, agent"),
        ("amount > 500 &&", "Syntax error"),
        ("arguments.amout > 500", "unknown argument arguments.amout"),
        ("has(arguments.amout) && arguments.amount > 500", "unknown argument arguments.amout"),
        ("arguments['amout'] > 500", "unknown argument arguments.amout"),
        ("window.count > 5", "window"),
        ("agnt == 'support'", "agnt"),
    ],
)
def test_a_typo_in_a_tool_s_own_policy_is_an_error_at_start(when: str, told: str) -> None:
    assert told in found_in(approval_policy=Approve(when=when))["tools.E004"]


def test_a_policy_over_arguments_and_circumstances_is_fine() -> None:
    when = "amount > 5 && requester != 'ada' && arguments.amount > 6"
    assert found_in(approval_policy=Approve(when=when)) == {}


def test_what_a_map_can_be_asked_is_no_argument() -> None:
    when = "arguments.size() == 2 && arguments.all( name, size(name) > 1)"
    assert found_in(approval_policy=Approve(when=when)) == {}


def test_an_argument_behind_a_word_of_every_rule_is_a_warning() -> None:
    found = found_in(approval_policy=Approve(when="agent == 'x'"))
    assert "arguments.agent" in found["tools.W007"]
    assert found_in(approval_policy=Approve(when="arguments.agent == 'x'")) == {}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"quorum": 0}, "at least one"),
        ({"approve_by": timedelta(0)}, "approve_by"),
        ({"execute_by": -HOUR}, "execute_by"),
        ({"approve_by": timedelta(days=10**6)}, "366 days"),
        ({"remind_after": timedelta(0)}, "remind_after"),
        ({"remind_after": timedelta(hours=24)}, "shorter than approve_by"),
        ({"escalate_to": ("board",), "escalate_after": 25 * HOUR}, "shorter than approve_by"),
        ({"escalate_to": ("board",)}, "Give both"),
        ({"escalate_after": HOUR}, "Give both"),
    ],
)
def test_what_nobody_could_ever_sign_is_an_error(wrong: dict[str, Any], told: str) -> None:
    assert told in found_in(approval_policy=Approve(**wrong))["tools.E005"]


@pytest.mark.parametrize("field", ["groups", "escalate_to"])
def test_one_text_is_no_list_of_groups(field: str) -> None:
    declared = Approve(**{field: "finance"}, escalate_after=HOUR if field != "groups" else None)
    assert f"{field}=('finance',)" in found_in(approval_policy=declared)["tools.E006"]


def test_a_list_of_groups_is_as_good_as_a_tuple() -> None:
    as_list: Any = ["finance"]
    assert Approve(groups=as_list) == Approve(groups=("finance",))


def test_good_signatures_pass() -> None:
    asked = Approve(groups=("a",), escalate_to=("b",), escalate_after=2 * HOUR, remind_after=HOUR)
    assert found_in(approval_policy=asked) == {}


# -- Beside the policy -----------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["v1", 7, lambda: "v1"])
def test_a_resource_version_is_a_function_of_the_call(wrong: Any) -> None:
    assert "resource_version" in found_in(resource_version=wrong)["tools.E013"]


def test_a_resource_version_is_acted_on() -> None:
    assert found_in(resource_version=lambda call: "v1") == {}


def test_a_tool_is_no_resource_version() -> None:
    with isolated_registry():

        @tool(effect_type=EffectType.READ)
        def other(call: Call, order: str) -> None:
            """Other."""

    assert "tools.E013" in found_in(resource_version=other)
    assert "tools.E013" not in found_in(compensation_handler=other)


@pytest.mark.parametrize(
    ("describe", "told"),
    [
        ("Look at {amout}", "names no argument: amout"),
        ("Look at {}", "names no argument"),
        ("Look at {amount.real}", "names no argument: amount.real"),
        ("Look at {amount[0]}", "names no argument"),
        ("Look at {amount:>10}", "write {name} alone"),
        ("Look at {amount!r}", "write {name} alone"),
        ("Look at {amount", "describe"),
        (7, "does not take the arguments"),
        (lambda amount: "", "does not take the arguments"),
    ],
)
def test_a_description_that_cannot_be_made_is_an_error(describe: Any, told: str) -> None:
    assert told in found_in(describe=describe)["tools.E019"]


@pytest.mark.parametrize(
    "describe", ["Look", "{{Look}} at {amount}", lambda amount, agent: "x", lambda **given: "x"]
)
def test_a_description_over_the_arguments_is_fine(describe: Any) -> None:
    assert found_in(describe=describe) == {}

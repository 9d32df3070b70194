"""Writing policies and stopping sending: who may, what is refused, and two at once."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from approvals.policies import (
    AlreadyStopped,
    InvalidPolicy,
    NotStopped,
    PolicyChanged,
    UnknownPolicy,
    current_policies,
    current_stops,
    find_policy,
    history_of,
    resume_sending,
    retire_policy,
    save_policy,
    stop_sending,
)
from approvals.policy_text import PolicyText
from runs import Agent, Finish
from runs.access import POLICIES_WRITE, SCOPES, Actor, operator
from runs.errors import NotPermitted
from tests.database.policy_rows import PAYMENTS, thread_of
from tools import Call, EffectType, Provider, policy_store, tool
from tools.models import ToolPolicy
from tools.policy import evaluate, find_stop
from tools.registry import get_tool
from tools.triggers import POLICY_LOCK

pytestmark = pytest.mark.django_db
TWO_CONNECTIONS = pytest.mark.django_db(transaction=True)
ADA = Actor(name="ada", scopes=frozenset({POLICIES_WRITE}))
TEXT = PolicyText(outcome="require_approval", tool="refund", when="amount > 500")
WHY = "auditors asked"


@pytest.fixture(autouse=True)
def _shop() -> None:
    """Tools `refund` and `look` of two providers, an agent that refunds, and a group."""

    @tool(effect_type=EffectType.IDEMPOTENT_WRITE, provider=PAYMENTS, name="refund")
    def refund(call: Call, amount: Decimal, order: str = "") -> None: ...

    @tool(effect_type=EffectType.READ, provider=Provider(name="search"), name="look")
    def look(call: Call, order: str) -> None: ...

    Agent(name="support", decider=lambda context: Finish(None), tools=("refund",))
    Group.objects.create(name="finance")
    policy_store.forget()


def save(text: PolicyText = TEXT, name: str = "big", **given: Any) -> ToolPolicy:
    return save_policy(**{"actor": ADA, "name": name, "text": text, "reason": WHY, **given})


# -- Who may ---------------------------------------------------------------------------


@pytest.mark.parametrize("scopes", [set(), set(SCOPES) - {POLICIES_WRITE}])
def test_without_the_scope_nothing_is_written(scopes: set[str]) -> None:
    save()
    stop_sending(actor=ADA, reason=WHY, everything=True)
    nobody = Actor(name="bob", scopes=frozenset(scopes))
    for write in (
        lambda: save_policy(actor=nobody, name="x", text=TEXT, reason=WHY),
        lambda: retire_policy(actor=nobody, name="big", reason=WHY),
        lambda: stop_sending(actor=nobody, reason=WHY, tool="refund"),
        lambda: resume_sending(actor=nobody, reason=WHY, everything=True),
    ):
        with pytest.raises(NotPermitted, match="policies:write"):
            write()
    assert ToolPolicy.objects.count() == 2


# -- Saving ----------------------------------------------------------------------------


def test_a_save_is_a_new_version_with_author_and_reason() -> None:
    save()
    second = save(replace(TEXT, when="amount > 100"), actor=operator("bob"), reason=" more ")
    assert [(row.version, row.author, row.reason) for row in history_of("big")] == [
        (2, "bob", "more"),
        (1, "ada", WHY),
    ]
    assert find_policy("big") == second
    assert PolicyText.of(second) == replace(TEXT, when="amount > 100")


def test_what_is_saved_is_what_a_call_meets() -> None:
    save(replace(TEXT, groups=("finance",), quorum=2))
    found = evaluate(get_tool("refund"), {"amount": "501", "order": ""})
    assert found.rule == "big v1: amount > 500"
    assert found.approve is not None
    assert (found.approve.groups, found.approve.quorum) == (("finance",), 2)


def test_a_retired_policy_counts_no_more_and_can_be_brought_back() -> None:
    save()
    retired = retire_policy(actor=ADA, name="big", reason="done")
    assert (retired.version, retired.active, retired.reason) == (2, False, "done")
    assert current_policies() == []
    assert current_policies(retired=True) == [retired]
    with pytest.raises(UnknownPolicy, match="retired already"):
        retire_policy(actor=ADA, name="big", reason="again")
    assert save().version == 3
    assert [row.name for row in current_policies()] == ["big"]


@pytest.mark.parametrize("name", ["nobody", "stop:everything", "a\0b", ""])
def test_what_does_not_exist_cannot_be_retired(name: str) -> None:
    stop_sending(actor=ADA, reason=WHY, everything=True)
    with pytest.raises(UnknownPolicy):
        retire_policy(actor=ADA, name=name, reason=WHY)
    assert len(current_stops()) == 1


@pytest.mark.parametrize(
    ("wrong", "field", "told"),
    [
        ({"when": "amout > 500"}, "when", "unknown argument amout; there are: amount, order"),
        ({"when": "amount >"}, "when", "Syntax error"),
        ({"when": "1 + 1"}, "when", "true or false"),
        ({"when": ""}, "when", "Syntax error"),
        ({"when": "true && 'a\0' == ''"}, "when", "NUL"),
        ({"when": "true || '\ud800' == ''"}, "when", "surrogate"),
        ({"when": "window.count > 2"}, "when", "Say window_seconds"),
        ({"when": "window.total > 2", "window_seconds": 60}, "when", "window.total"),
        ({"when": "amount > 2", "window_seconds": 60}, "when", "window.count"),
        ({"when": "arguments.amout > 2"}, "when", "Did you mean 'amount'?"),
        ({"when": "arguments['amout'] > 2"}, "when", "Did you mean 'amount'?"),
        ({"when": "amount > 500", "tool": ""}, "when", "Arguments are arguments.x"),
        ({"when": "arguments.amount > 5", "tool": ""}, "when", "look has no argument"),
        ({"tool": "refnd"}, "tool", "Did you mean 'refund'?"),
        ({"provider": "payment"}, "provider", "Did you mean 'payments'?"),
        ({"provider": "search"}, "provider", "never apply"),
        ({"agent": "suport"}, "agent", "Did you mean 'support'?"),
        ({"tool": "look", "when": "true", "agent": "support"}, "agent", "never apply"),
        ({"groups": ("finanse",)}, "groups", "Did you mean 'finance'?"),
        ({"groups": ("finance", "finance")}, "groups", "once"),
        ({"escalate_to": ("board",), "escalate_after": timedelta(hours=1)}, "escalate_to", "admin"),
        ({"escalate_to": ("finance",)}, "escalate_after", "Give both"),
        ({"escalate_after": timedelta(hours=1)}, "escalate_to", "Give both"),
        ({"remind_after": timedelta(days=2)}, "remind_after", "shorter than approve_by"),
        ({"outcome": "stop"}, "outcome", "allow, require_approval, refuse"),
        ({"outcome": "perhaps"}, "outcome", "allow, require_approval, refuse"),
        ({"outcome": "refuse", "groups": ("finance",)}, "groups", "Leave it out"),
        ({"outcome": "allow", "approve_by": timedelta(hours=2)}, "approve_by", "Leave it out"),
        ({"quorum": 0}, "quorum", "at least one"),
        ({"quorum": 10**12}, "quorum", "at most 50"),
        ({"approve_by": timedelta(0)}, "approve_by", "positive"),
        ({"execute_by": timedelta(days=10**6)}, "execute_by", "at most 366 days"),
        ({"window_seconds": 0, "when": "window.count > 1"}, "window_seconds", "1 to 86400"),
        ({"window_seconds": 86_401, "when": "window.count > 1"}, "window_seconds", "1 to 86400"),
        ({"window_by": "day"}, "window_by", "agent, requester, all"),
        ({"window_money": "amount"}, "window_money", "window_seconds"),
        (
            {"window_seconds": 60, "window_money": "order", "when": "window.total > 1"},
            "window_money",
            "a number",
        ),
        (
            {"window_seconds": 60, "window_money": "sum", "when": "window.total > 1"},
            "window_money",
            "amount",
        ),
        (
            {
                "window_seconds": 60,
                "window_money": "amount",
                "when": "window.total > 1",
                "tool": "",
            },
            "window_money",
            "look has no argument",
        ),
    ],
)
def test_a_policy_with_a_mistake_is_refused_and_the_mistake_named(
    wrong: dict[str, Any], field: str, told: str
) -> None:
    with pytest.raises(InvalidPolicy) as refused:
        save(replace(TEXT, **wrong))
    assert [problem.field for problem in refused.value.problems] == [field]
    assert told in str(refused.value)
    assert not ToolPolicy.objects.exists()


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(InvalidPolicy) as refused:
        save(replace(TEXT, when="1", tool="nothing", quorum=-1), name="Big!", reason=" ")
    fields = {problem.field for problem in refused.value.problems}
    assert fields == {"name", "when", "tool", "quorum", "reason"}


@pytest.mark.parametrize("name", ["", "Big", "stop:everything", "a b", "-a", "a" * 101, "a\0"])
def test_a_name_is_one_that_can_be_typed_and_is_no_stop_s(name: str) -> None:
    with pytest.raises(InvalidPolicy, match="name"):
        save(name=name)


@pytest.mark.parametrize("reason", ["", " \n", "x" * 2_001, "a\0", "\ud800"])
def test_nothing_is_written_without_a_reason(reason: str) -> None:
    save()
    for write in (
        lambda: save(name="other", reason=reason),
        lambda: retire_policy(actor=ADA, name="big", reason=reason),
        lambda: stop_sending(actor=ADA, reason=reason, tool="refund"),
        lambda: resume_sending(actor=ADA, reason=reason, tool="refund"),
    ):
        with pytest.raises(InvalidPolicy, match="reason"):
            write()
    assert ToolPolicy.objects.count() == 1


def test_an_argument_that_not_all_tools_have_may_be_asked_for_first() -> None:
    for when in (
        "has( arguments.amount ) && arguments.amount > 500",
        "'amount' in arguments && arguments['amount'] > 500",
    ):
        save(replace(TEXT, tool="", when=when))
    save(replace(TEXT, tool="", when="arguments.amount > 500", provider="payments"))
    save(replace(TEXT, tool="", when="arguments.amount > 500", agent="support"))


# -- Two at once -----------------------------------------------------------------------


def test_a_save_on_the_ground_of_an_old_version_is_a_conflict() -> None:
    save()
    save(actor=operator("bob"), based_on=1)
    with pytest.raises(PolicyChanged, match="bob saved version 2"):
        save(based_on=1)
    with pytest.raises(PolicyChanged):
        retire_policy(actor=ADA, name="big", reason=WHY, based_on=1)
    with pytest.raises(PolicyChanged):
        save(based_on=0)
    assert len(history_of("big")) == 2


def at_once(*writes: Callable[[], Any]) -> list[Any]:
    """Each in a connection of its own, all of them kept waiting by the same lock."""
    outcomes: list[Any] = []

    def attempt(write: Callable[[], Any]) -> None:
        try:
            outcomes.append(write())
        except Exception as error:
            outcomes.append(error)

    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [POLICY_LOCK])
        threads = [thread_of(lambda write=write: attempt(write)) for write in writes]
        wait_for_waiting(len(writes))
    for thread in threads:
        thread.join(timeout=20)
        assert not thread.is_alive()
    return sorted(outcomes, key=lambda outcome: isinstance(outcome, Exception))


def wait_for_waiting(number: int) -> None:
    for _ in range(10_000):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            )
            if cursor.fetchone()[0] == number:
                return
            cursor.execute("SELECT pg_sleep(0.002)")
    raise AssertionError("they do not wait")


@TWO_CONNECTIONS
@pytest.mark.parametrize("exists", [False, True])
def test_of_two_saves_at_once_one_is_a_conflict(exists: bool) -> None:
    if exists:
        save()
    saved, refused = at_once(
        lambda: save(replace(TEXT, when="amount > 1")),
        lambda: save(replace(TEXT, when="amount > 2")),
    )
    assert isinstance(saved, ToolPolicy)
    assert isinstance(refused, PolicyChanged)
    assert [row.version for row in history_of("big")] == ([2, 1] if exists else [1])
    assert find_policy("big") == saved


@TWO_CONNECTIONS
def test_of_a_save_and_a_retirement_at_once_one_is_a_conflict() -> None:
    save()
    _, refused = at_once(save, lambda: retire_policy(actor=ADA, name="big", reason=WHY))
    assert isinstance(refused, PolicyChanged)
    assert len(history_of("big")) == 2


@TWO_CONNECTIONS
def test_saves_of_two_policies_at_once_are_both_saved() -> None:
    saved = at_once(lambda: save(name="one"), lambda: save(name="two"))
    assert sorted(row.name for row in saved) == ["one", "two"]


@TWO_CONNECTIONS
def test_of_two_stops_at_once_one_is_told_of_the_other() -> None:
    def stop() -> ToolPolicy:
        return stop_sending(actor=ADA, reason=WHY, tool="refund")

    _, refused = at_once(stop, stop)
    assert isinstance(refused, AlreadyStopped)
    assert len(current_stops()) == 1


# -- Stopping --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "stopped"),
    [
        ({"tool": "refund"}, {"refund"}),
        ({"provider": "search"}, {"look"}),
        ({"everything": True}, {"refund", "look"}),
    ],
)
def test_a_stop_concerns_what_it_names_until_it_is_lifted(
    target: dict[str, Any], stopped: set[str]
) -> None:
    stop_sending(actor=ADA, reason="they double-charge", **target)
    policy_store.forget()
    told = {name: find_stop(get_tool(name)) for name in ("refund", "look")}
    assert {name for name, why in told.items() if why} == stopped
    assert all("ada" in told[name] and "they double-charge" in told[name] for name in stopped)
    with pytest.raises(AlreadyStopped, match="ada"):
        stop_sending(actor=operator("bob"), reason=WHY, **target)
    lifted = resume_sending(actor=operator("bob"), reason="they mended it", **target)
    assert (lifted.row.author, lifted.row.active) == ("bob", False)
    policy_store.forget()
    assert not any(find_stop(get_tool(name)) for name in ("refund", "look"))
    with pytest.raises(NotStopped):
        resume_sending(actor=ADA, reason=WHY, **target)
    assert current_stops() == []


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"tool": "refund", "provider": "payments"},
        {"tool": "refund", "everything": True},
        {"tool": "a\0"},
        {"provider": "x" * 101},
    ],
)
def test_a_switch_has_exactly_one_target(target: dict[str, Any]) -> None:
    for write in (stop_sending, resume_sending):
        with pytest.raises(InvalidPolicy):
            write(actor=ADA, reason=WHY, **target)
    assert not ToolPolicy.objects.exists()


@pytest.mark.parametrize("target", [{"tool": "refnd"}, {"provider": "payment"}])
def test_a_name_that_nothing_has_is_not_stopped(target: dict[str, str]) -> None:
    with pytest.raises(InvalidPolicy, match="Did you mean"):
        stop_sending(actor=ADA, reason=WHY, **target)


def test_a_stop_of_a_tool_that_is_gone_can_be_lifted() -> None:
    ToolPolicy.objects.create(
        name="stop:tool:old", version=1, outcome="stop", tool="old", author="ada", reason=WHY
    )
    assert resume_sending(actor=ADA, reason=WHY, tool="old").row.version == 2

"""What is refused when the project starts."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import ERROR

from tools import Approve, Call, EffectType, Provider, Reconciled, Retry, Timeout, tool
from tools.checks import check_tools

SOUND: dict[str, Any] = {
    "effect_type": EffectType.IDEMPOTENT_WRITE,
    "provider": Provider(
        name="payments",
        idempotency_support="key",
        idempotency_retention=timedelta(hours=24),
        lookup="by_key",
    ),
    "reconcile_handler": lambda call: Reconciled.not_found(),
}


async def _migrate_later(arguments: dict[str, Any], from_version: str) -> dict[str, Any]:
    return arguments


def _declare(**declared: Any) -> list[str]:
    @tool(**{**SOUND, **declared})
    def refund(call: Call, order_id: str, amount: int) -> None:
        """Refund."""

    messages = check_tools()
    assert all(message.hint and message.obj == "tool refund" for message in messages)
    return [str(message.id) for message in messages]


def test_a_sound_tool_is_passed_in_silence() -> None:
    assert _declare() == []
    assert (
        _declare(
            name="again",
            intent_key=("order_id",),
            sensitive=("amount",),
            approval_policy=Approve(when="amount > 5", groups=("finance",)),
        )
        == []
    )


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"provider": None}, "tools.E001"),
        ({"idempotency_support": "sometimes"}, "tools.E003"),
        ({"intent_scope": "galaxy"}, "tools.E003"),
        ({"on_repeated_intent": "shrug"}, "tools.E003"),
        ({"approval_policy": Approve(when="amout > 5")}, "tools.E004"),
        ({"approval_policy": Approve(when="amount >")}, "tools.E004"),
        ({"approval_policy": Approve(quorum=0)}, "tools.E005"),
        ({"approval_policy": Approve(approve_by=timedelta(0))}, "tools.E005"),
        ({"approval_policy": Approve(execute_by=timedelta(-1))}, "tools.E005"),
        ({"approval_policy": Approve(groups="finance")}, "tools.E006"),  # type: ignore[arg-type]
        ({"intent_key": ("order",)}, "tools.E007"),
        ({"sensitive": ("card_number",)}, "tools.E008"),
        ({"intent_scope": "global"}, "tools.E009"),
        ({"timeout_policy": Timeout(seconds=0)}, "tools.E010"),
        ({"timeout_policy": Timeout(seconds=float("nan"))}, "tools.E010"),
        ({"retry_policy": Retry(max_attempts=0)}, "tools.E011"),
        ({"retry_policy": Retry(first_delay=-1)}, "tools.E011"),
        ({"retry_policy": Retry(first_delay=9, max_delay=3)}, "tools.E011"),
        ({"settle_window": timedelta(seconds=-1)}, "tools.E012"),
        ({"idempotency_retention": timedelta(0)}, "tools.E012"),
        ({"reconcile_handler": lambda: None}, "tools.E013"),
        ({"resource_version": lambda call, more: None}, "tools.E013"),
        ({"migrate_arguments": lambda arguments: arguments}, "tools.E023"),
        ({"migrate_arguments": "in cents"}, "tools.E023"),
        ({"migrate_arguments": _migrate_later}, "tools.E023"),
        ({"provider": Provider(name="p", idempotency_support="key")}, "tools.W001"),
        ({"reconcile_handler": None}, "tools.W002"),
    ],
)
def test_one_flaw_is_one_message(declared: dict[str, Any], expected: str) -> None:
    assert [id_ for id_ in _declare(**declared) if id_ == expected] == [expected]


def test_a_provider_with_an_unknown_way_to_look_up_is_refused() -> None:
    provider = Provider(name="p", idempotency_support="natural_id", lookup="guess")  # type: ignore[arg-type]
    assert _declare(provider=provider) == ["tools.E003"]


def test_a_transactional_tool_is_sound_and_needs_no_provider_and_no_look_up() -> None:
    assert (
        _declare(effect_type=EffectType.TRANSACTIONAL, provider=None, reconcile_handler=None) == []
    )


def test_a_transactional_tool_that_is_async_is_refused() -> None:
    @tool(effect_type=EffectType.TRANSACTIONAL)
    async def book(call: Call) -> None:
        """Book."""

    messages = check_tools()
    assert [(message.id, message.level) for message in messages] == [("tools.E002", ERROR)]
    assert "outside its transaction" in messages[0].msg


def test_a_transactional_tool_that_is_parallel_is_refused() -> None:
    facts = {"effect_type": EffectType.TRANSACTIONAL, "provider": None, "reconcile_handler": None}
    assert _declare(**facts, parallel=True) == ["tools.E024"]


@pytest.mark.parametrize("within", [timedelta(0), timedelta(seconds=-1)])
def test_an_objective_that_leaves_no_time_to_ask_is_refused(within: timedelta) -> None:
    assert _declare(reconcile_within=within) == ["tools.E018"]


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"reconcile_within": timedelta(minutes=15)}, ["tools.W006"]),
        ({"reconcile_within": timedelta(minutes=15, microseconds=1)}, []),
        ({"reconcile_within": timedelta(minutes=5), "settle_window": timedelta(minutes=4)}, []),
        ({"reconcile_within": timedelta(minutes=5), "reconcile_handler": None}, ["tools.W002"]),
    ],
)
def test_an_objective_that_ends_before_anything_can_be_settled_is_warned_about(
    declared: dict[str, Any], expected: list[str]
) -> None:
    assert _declare(effect_type=EffectType.NON_IDEMPOTENT_WRITE, **declared) == expected


@pytest.mark.parametrize(
    "effect", [one for one in EffectType if one is not EffectType.NON_IDEMPOTENT_WRITE]
)
def test_only_what_is_settled_by_look_ups_needs_an_objective_past_the_window(
    effect: EffectType,
) -> None:
    assert _declare(effect_type=effect, reconcile_within=timedelta(minutes=1)) == []


def test_a_write_that_cannot_be_looked_up_is_not_asked_for_a_look_up() -> None:
    cannot = replace(SOUND["provider"], lookup="none")
    assert _declare(provider=cannot, reconcile_handler=None) == []


def test_a_tool_without_a_description_is_warned_about() -> None:
    @tool(effect_type=EffectType.READ)
    def look(call: Call) -> None: ...

    messages = check_tools()
    assert [message.id for message in messages] == ["tools.W003"]
    assert all(message.level < ERROR for message in messages)


def test_a_tool_may_be_compensated_by_another_tool() -> None:
    @tool(**SOUND)
    def charge(call: Call, order_id: str) -> None:
        """Charge."""

    assert "tools.E013" not in _declare(compensation_handler=charge)


def test_one_provider_cannot_be_declared_in_two_ways() -> None:
    for name, window in (("one", 1), ("two", 2)):

        @tool(
            effect_type=EffectType.READ,
            name=name,
            provider=Provider(name="payments", settle_window=timedelta(minutes=window)),
        )
        def look(call: Call) -> None:
            """Look."""

    assert [message.id for message in check_tools()] == ["tools.E014"]

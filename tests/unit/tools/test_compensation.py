"""How a tool declares what corrects it, and what is said at start where that cannot be."""

from typing import Any

import pytest
from django.core.checks import ERROR

from tools import Call, EffectType, Provider, Reconciled, tool
from tools.checks import check_tools
from tools.compensation import compensating_function, compensating_tool, pick_arguments
from tools.registry import get_tool, isolated_registry
from tools.spec import ToolSpec

KEYED = Provider(name="p", idempotency_support="natural_id", lookup="by_key")


def _define(name: str, **declared: Any) -> ToolSpec:
    given = {
        "effect_type": EffectType.IDEMPOTENT_WRITE,
        "provider": KEYED,
        "reconcile_handler": lambda call: Reconciled.not_found(),
    }

    @tool(name=name, **given | declared)
    def act(call: Call, order_id: str, amount: int = 1) -> None:
        """Act."""

    return get_tool(name)


def _told() -> dict[str, str]:
    """What the checks say, by id."""
    assert all(message.hint for message in check_tools())
    return {str(message.id): message.msg for message in check_tools()}


def test_a_handler_is_a_tool_in_three_forms_or_a_function() -> None:
    undo = _define("undo")
    for handler in ("undo", undo, undo.function):
        undo.function.spec = undo  # type: ignore[attr-defined]
        spec = _define(f"do_{id(handler)}_{type(handler).__name__}", compensation_handler=handler)
        assert compensating_tool(spec) == "undo"
        assert compensating_function(spec) is None

    def say(call: Call) -> None: ...

    spec = _define("do_by_function", compensation_handler=say)
    assert compensating_tool(spec) is None
    assert compensating_function(spec) is say
    assert compensating_function(undo) is None


def test_a_compensating_tool_is_given_the_arguments_that_it_names_and_no_others() -> None:
    undo = _define("undo")
    assert pick_arguments(undo, {"order_id": "17", "colour": "red"}) == {"order_id": "17"}


def test_sound_declarations_are_passed_in_silence() -> None:
    _define("undo")
    _define("do", compensation_handler="undo")
    _define("do_too", compensation_handler=lambda call: None)
    assert _told() == {}


def test_the_tools_may_be_defined_in_any_order() -> None:
    _define("do", compensation_handler="undo")
    assert list(_told()) == ["tools.E020"]
    _define("undo")
    assert _told() == {}


def test_an_unknown_tool_is_an_error_that_names_near_ones() -> None:
    _define("undo")
    _define("do", compensation_handler="undoo")
    assert "undo" in _told()["tools.E020"]
    assert [one.level for one in check_tools()] == [ERROR]


def test_arguments_that_the_operation_does_not_have_are_an_error() -> None:
    @tool(
        effect_type=EffectType.TRANSACTIONAL,
    )
    def undo(call: Call, order_id: str, refund_id: str, note: str = "") -> None:
        """Undo."""

    _define("do", compensation_handler="undo")
    assert _told() == {
        "tools.E021": "compensation_handler: undo needs refund_id, which do is not called with."
    }


def test_a_read_corrects_nothing() -> None:
    _define("look", effect_type=EffectType.READ)
    _define("do", compensation_handler="look")
    assert list(_told()) == ["tools.E022"]


def test_a_read_has_nothing_to_correct() -> None:
    _define("undo")
    _define("look", effect_type=EffectType.READ, compensation_handler="undo")
    assert list(_told()) == ["tools.W009"]


@pytest.mark.parametrize(
    ("declared", "ids"),
    [
        ({"effect_type": EffectType.IRREVERSIBLE}, ["tools.W008"]),
        ({"effect_type": EffectType.NON_IDEMPOTENT_WRITE}, []),
        (
            {"effect_type": EffectType.NON_IDEMPOTENT_WRITE, "reconcile_handler": None},
            ["tools.W002", "tools.W008"],
        ),
    ],
)
def test_a_correction_that_may_stay_unknown_is_warned_about(
    declared: dict[str, Any], ids: list[str]
) -> None:
    _define("undo", **declared)
    _define("do", compensation_handler="undo")
    assert sorted(_told()) == ids


def test_the_version_changes_with_the_handler_and_not_without_one() -> None:
    _define("undo")
    plain = _define("do").version
    versions = {
        _same(handler) for handler in (None, "undo", "redo", lambda call: None, get_tool("undo"))
    }
    assert plain in versions
    # A tool is the same handler by its name and by its spec.
    assert len(versions) == 4


def _same(handler: Any) -> str:
    with isolated_registry():
        return _define("do", compensation_handler=handler).version

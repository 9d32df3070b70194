"""Names of tools."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tools import Call, EffectType, tool
from tools.errors import DuplicateTool, UnknownTool
from tools.registry import all_tools, get_tool, isolated_registry

ROOT = Path(__file__).resolve().parents[3]


def _make(name: str) -> Any:
    @tool(effect_type=EffectType.READ, name=name)
    def function(call: Call) -> None: ...

    return function


def test_a_tool_is_found_by_its_name() -> None:
    function = _make("refund_customer")
    assert get_tool("refund_customer") is function.spec


def test_tools_are_listed_by_name() -> None:
    with isolated_registry():
        _make("b")
        _make("a")
        assert [spec.name for spec in all_tools()] == ["a", "b"]


def test_a_taken_name_is_refused_and_the_first_tool_stays() -> None:
    first = _make("refund_customer")
    with pytest.raises(DuplicateTool, match="refund_customer"):
        _make("refund_customer")
    assert get_tool("refund_customer") is first.spec


def test_an_unknown_name_is_answered_with_near_ones() -> None:
    _make("refund_customer")
    with pytest.raises(UnknownTool, match="did you mean refund_customer") as unknown:
        get_tool("refund_costumer")
    assert unknown.value.near == ("refund_customer",)


def test_a_hostile_name_is_bounded_in_the_answer() -> None:
    with pytest.raises(UnknownTool) as unknown:
        get_tool("\0" + "x" * 100_000)
    assert len(str(unknown.value)) < 300


def test_an_isolated_registry_leaves_nothing_behind() -> None:
    before = all_tools()
    with isolated_registry():
        assert all_tools() == ()
        _make("refund_customer")
    assert all_tools() == before


def test_tools_of_installed_apps_are_found_when_django_is_ready(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "__init__.py").touch()
    (shop / "tools.py").write_text(
        textwrap.dedent("""
        from tools import Call, EffectType, tool

        @tool(effect_type=EffectType.IDEMPOTENT_WRITE)
        def refund(call: Call, order_id: str) -> None: ...
        """)
    )
    program = """
        import django
        from django.conf import settings
        from django.core.checks import run_checks

        settings.configure(INSTALLED_APPS=["tools", "shop"])
        django.setup()

        from tools.registry import all_tools

        print([spec.name for spec in all_tools()])
        print([message.id for message in run_checks() if message.id.startswith("tools.E")])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == ["['refund']", "['tools.E001']"], done.stderr


def test_importing_the_app_needs_no_django_and_no_http_library() -> None:
    program = (
        "import sys, tools, tools.execution, tools.policy; "
        "heavy = {'django', 'httpx', 'httpx2', 'requests', 'urllib3', 'cel'}; "
        "print(sorted(heavy.intersection(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "[]", done.stderr

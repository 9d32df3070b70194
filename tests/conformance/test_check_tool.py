"""`manage.py check_tool`: the kit from the command line, on a database of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from examples.shop.provider_process import ProviderProcess, provider_process
from examples.shop.tools import refund_customer
from tests.processes import ROOT
from tools import registry
from tools.testing import ALL

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

Ran = subprocess.CompletedProcess[str]
Manage = Callable[..., Ran]

HERE = "tests.conformance.kit_count"
CALL = ("--arguments", '{"order_id": "21", "amount": "{n}.50"}', "--count", f"{HERE}:count_refunds")


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[ProviderProcess]:
    with provider_process(tmp_path / "ledger.sqlite3") as running:
        yield running


@pytest.fixture
def keyless_provider(tmp_path: Path) -> Iterator[ProviderProcess]:
    with provider_process(tmp_path / "ledger.sqlite3", ignore_keys=True) as running:
        yield running


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Where the command's temporary files go."""
    made = tmp_path / "scratch"
    made.mkdir()
    return made


@pytest.fixture
def check_tool(scratch: Path) -> Manage:
    """Runs the command with servers of the project's own that do not exist."""

    def run(*arguments: str, provider: ProviderProcess | None = None) -> Ran:
        env = {
            **os.environ,
            "AGENTOPS_APPS": "examples.shop",
            "SHOP_PAYMENTS_URL": provider.url if provider else "http://127.0.0.1:9",
            "DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none",
            "CELERY_BROKER_URL": "redis://127.0.0.1:9/0",
            "TMPDIR": str(scratch),
        }
        return subprocess.run(
            [sys.executable, "manage.py", "check_tool", *arguments],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_sound_tool_is_passed_and_nothing_of_the_check_stays(
    check_tool: Manage, provider: ProviderProcess, scratch: Path
) -> None:
    ran = check_tool(
        *("refund_customer", *CALL, "--yes", "--prepare", f"{HERE}:require_fresh_database"),
        *("--fault", "answer_lost", "--fault", "killed_after_effect"),
        provider=provider,
    )
    assert ran.returncode == 0, ran.stderr
    assert "real calls of refund_customer at payments" in ran.stderr
    assert "prepared" in ran.stderr
    assert ran.stdout.splitlines()[0].startswith("refund_customer: IDEMPOTENT_WRITE at payments")
    for fault in ("no_fault", "answer_lost", "killed_after_effect"):
        assert f"| {fault}" in ran.stdout
    conclusion = ran.stdout.rstrip().splitlines()[-1]
    assert conclusion.startswith("Sound")
    assert "NOT PROBED" in conclusion
    assert list(scratch.iterdir()) == []
    assert len(provider.effects()) == 3


def test_a_tool_that_is_not_sound_is_failed_with_the_row_that_shows_it(
    check_tool: Manage, keyless_provider: ProviderProcess
) -> None:
    ran = check_tool(
        *("refund_customer", "--arguments", f"{HERE}:new_refund"),
        *("--count", f"{HERE}:count_refunds", "--fault", "request_late", "--yes", "--json"),
        provider=keyless_provider,
    )
    assert ran.returncode == 1, ran.stderr
    report = json.loads(ran.stdout)
    assert report["ok"] is False
    assert report["probed"] is False
    (late,) = [row for row in report["rows"] if row["fault"] == "request_late"]
    assert (late["effects"], late["verdict"]) == (2, "BROKEN")


@pytest.fixture
def _shop_tools() -> None:
    """The shop's tools, as an app of the project makes them known."""
    registry.register(refund_customer.spec)  # type: ignore[attr-defined]


def test_the_faults_are_listed_in_the_order_of_the_table() -> None:
    said = StringIO()
    call_command("check_tool", list_faults=True, stdout=said)
    assert [line.split()[0] for line in said.getvalue().splitlines()] == list(ALL)
    said = StringIO()
    call_command("check_tool", list_faults=True, json=True, stdout=said)
    assert list(json.loads(said.getvalue())) == list(ALL)


@pytest.mark.usefixtures("_shop_tools")
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "NAME"),
        (("refund_custmer", *CALL), "refund_customer"),
        (("refund_customer", "--count", f"{HERE}:count_refunds"), "--arguments"),
        (("refund_customer", "--arguments", "{not json", "--count", "a:b"), "--arguments"),
        (("refund_customer", "--arguments", "@/nowhere.json", "--count", "a:b"), "/nowhere.json"),
        (("refund_customer", "--arguments", "{}", "--count", "nothing"), "--count"),
        (("refund_customer", "--arguments", "{}", "--count", "nowhere:count"), "nowhere"),
        (("refund_customer", "--arguments", "{}", "--count", f"{HERE}:nothing"), "nothing"),
        (("refund_customer", *CALL, "--yes", "--fault", "answers_lost"), "answer_lost"),
        (("refund_customer", *CALL), "--yes"),
        (
            ("refund_customer", "--arguments", '{"order_id": "21"}', *CALL[2:], "--yes"),
            "amount",
        ),
    ],
)
def test_what_cannot_be_used_is_named_before_anything_is_started_or_called(
    arguments: tuple[str, ...], named: str
) -> None:
    with pytest.raises(CommandError, match=named) as refused:
        call_command("check_tool", *arguments)
    assert refused.value.returncode == 2

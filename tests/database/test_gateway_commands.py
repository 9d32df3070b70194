"""The gateway at the command line: `call_operation` and `finish_run`."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from runs.engine import advance
from runs.models import GatewayCall, ToolOperation
from tests.database.calling import NEVER
from tests.database.kit import ON_DATABASE, scripted_tool
from tests.processes import wait_until
from tools import Rejected

pytestmark = ON_DATABASE

Command = Callable[..., Any]


@pytest.fixture
def manage(capsys: pytest.CaptureFixture[str]) -> Command:
    """What a command prints, as JSON."""

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        call_command(*arguments, "--json")
        return json.loads(capsys.readouterr().out)

    return run


def a_worker() -> threading.Thread:
    """One that drives the run of the first call which is accepted."""

    def work() -> None:
        wait_until(GatewayCall.objects.exists, what="a call is accepted")
        advance(run_id=GatewayCall.objects.get().run_id, owner="worker 1")
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


CALL = ("call_operation", "pay", "--arguments", '{"amount": 1}', "--key", "k1")


def test_a_call_is_accepted_and_the_same_key_is_the_same_call(manage: Command) -> None:
    scripted_tool("paid", approval_policy=NEVER)
    first = manage(*CALL)
    assert (first["status"], first["arguments"]) == ("PREPARED", {"amount": 1})
    assert manage(*CALL)["operation_id"] == first["operation_id"]
    assert GatewayCall.objects.get().door == "command"


def test_it_waits_for_what_comes_of_the_call(manage: Command) -> None:
    scripted_tool({"id": 7}, approval_policy=NEVER)
    worker = a_worker()
    done = manage(*CALL, "--wait", "30")
    worker.join()
    assert (done["status"], done["result"]) == ("COMMITTED", {"id": 7})


def test_a_call_that_came_to_nothing_is_no_success(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scripted_tool(Rejected("the account is closed"), approval_policy=NEVER)
    worker = a_worker()
    with pytest.raises(CommandError, match="REJECTED: the account is closed"):
        call_command(*CALL, "--wait", "30")
    worker.join()
    assert "is REJECTED" in capsys.readouterr().out


def test_a_thread_is_called_and_ended(manage: Command, tmp_path: Path) -> None:
    scripted_tool("paid", approval_policy=NEVER)
    said = tmp_path / "said.json"
    said.write_text('{"amount": 2}')
    call = ("call_operation", "pay", "--arguments", f"@{said}", "--thread", "job 7")
    first = manage(*call, "--key", "k1", "--step", "1")
    assert manage(*call, "--key", "k2", "--step", "1")["operation_id"] == first["operation_id"]
    manage("finish_run", first["run"], "--result", '{"ok": true}')
    advance(run_id=first["run"], owner="worker 1")
    ended = manage("finish_run", first["run"], "--result", '{"ok": true}')
    assert (ended["state"], ended["result"]) == ("COMPLETED", {"ok": True})
    assert ToolOperation.objects.get().status == "COMMITTED"


@pytest.mark.parametrize(
    ("more", "names"),
    [
        (("--arguments", "{"), "--arguments"),
        (("--arguments", "@/nowhere"), "--arguments"),
        (("--wait", "61"), "--wait"),
        (("--run", "7"), "7"),
        (("--run", "00000000-0000-7000-8000-000000000000", "--thread", "t"), "thread"),
        (("--agent", "nobody"), "nobody"),
        (("--step", "1"), "step"),
    ],
    ids=str,
)
def test_bad_input_is_named_and_leaves_no_trace(more: tuple[str, ...], names: str) -> None:
    scripted_tool(approval_policy=NEVER)
    with pytest.raises(CommandError, match=names):
        call_command(*CALL, *more)
    assert not GatewayCall.objects.exists()

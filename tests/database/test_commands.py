"""The commands: what they print, and how they fail."""

import json
import threading
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from agentops.models import ApiToken
from agentops.tokens import digest_of
from runs import Agent, CallTools, Context, Decision, Fail, Finish, ToolCall
from runs.access import operator
from runs.commands import start_run
from runs.engine import advance
from runs.models import AgentRun, ToolOperation
from tests.database.callers import Caller
from tests.database.stories import SECRET, Start, reconciled_run, uncertain_run
from tools import Call, EffectType, tool

pytestmark = pytest.mark.django_db
# The engine commits for itself.
engine = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def quick() -> Agent:
    return Agent(name="quick", decider=lambda context: Finish(context.input))


def told(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def as_json(*command: str) -> Any:
    return json.loads(told(*command, "--json"))


def refused(*command: str) -> str:
    with pytest.raises(CommandError) as caught:
        told(*command)
    assert caught.value.returncode == 1
    return str(caught.value)


# -- start_run ---------------------------------------------------------------------


def test_start_run_records_a_run_and_says_which() -> None:
    text = told("start_run", "quick", "--objective", "Greet", "--label", "team=a=b")
    run = AgentRun.objects.get()
    assert str(run.id) in text
    assert (run.objective, run.input, run.labels) == ("Greet", {}, {"team": "a=b"})
    assert run.created_by == "command line"


def test_start_run_takes_json_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_text('{"order": "17"}', encoding="utf-8")
    assert as_json("start_run", "quick", "--input", '["a", 1]')["input"] == ["a", 1]
    assert as_json("start_run", "quick", "--input", f"@{file}")["input"] == {"order": "17"}


def test_start_run_with_one_key_starts_one_run() -> None:
    first = as_json("start_run", "quick", "--idempotency-key", "k1")
    assert as_json("start_run", "quick", "--idempotency-key", "k1")["id"] == first["id"]
    assert "already existed" in told("start_run", "quick", "--idempotency-key", "k1")
    assert "k1" in refused("start_run", "quick", "--idempotency-key", "k1", "--input", "1")
    assert AgentRun.objects.count() == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["quik"], ["agent", "'quik'", "Did you mean 'quick'?"]),
        (["quick", "--input", "{"], ["--input", "no JSON"]),
        (["quick", "--input", "@/nowhere/x.json"], ["--input", "/nowhere/x.json", "read"]),
        (["quick", "--input", '{"a": NaN}'], ["input.a", "nan", "finite"]),
        (["quick", "--input", '{"a": "\\u0000"}'], ["input.a", "NUL"]),
        (["quick", "--label", "team"], ["label", "'team'", "name=value"]),
        (["quick", "--objective", "a\0b"], ["objective", "NUL"]),
        (["quick", "--idempotency-key", ""], ["Idempotency-Key"]),
    ],
)
def test_start_run_names_what_does_not_fit(arguments: list[str], words: list[str]) -> None:
    sentence = refused("start_run", *arguments)
    assert all(word in sentence for word in words), sentence
    assert not AgentRun.objects.exists()


@pytest.fixture
def worker() -> Iterator[None]:
    """Somebody who advances every run that is due, until the test ends."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.05):
            for run in AgentRun.objects.filter(finished_at=None):
                advance(run_id=run.id, owner="test")
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    over.set()
    thread.join()


@engine
def test_start_run_waits_and_shows_the_result(
    worker: None, capsys: pytest.CaptureFixture[str]
) -> None:
    text = told("start_run", "quick", "--input", '{"a": 1}', "--wait", "--timeout", "30")
    assert "COMPLETED" in text
    assert "{'a': 1}" in text
    assert "COMPLETED" in capsys.readouterr().err


@engine
def test_start_run_fails_when_the_run_it_waits_for_does(worker: None) -> None:
    Agent(name="hopeless", decider=lambda context: Fail("out of stock"))
    out = StringIO()
    with pytest.raises(CommandError, match="FAILED: out of stock"):
        call_command("start_run", "hopeless", "--wait", "--json", "--timeout", "30", stdout=out)
    assert json.loads(out.getvalue())["state"] == "FAILED"


def test_start_run_that_waits_too_long_says_where_the_run_stands() -> None:
    sentence = refused("start_run", "quick", "--wait", "--timeout", "0")
    assert "READY" in sentence
    assert "inspect_run" in sentence


# -- list_runs, inspect_run, cancel_run ----------------------------------------------


def test_list_runs_narrows_and_limits() -> None:
    for number in range(3):
        start_run(actor=operator(), agent="quick", labels={"n": str(number)})
    assert len(as_json("list_runs")) == 3
    assert len(as_json("list_runs", "--limit", "2")) == 2
    assert "There are more" in told("list_runs", "--limit", "2")
    assert [run["labels"] for run in as_json("list_runs", "--label", "n=1")] == [{"n": "1"}]
    assert as_json("list_runs", "--state", "failed") == []
    assert as_json("list_runs", "--uncertain") == []
    assert "No run matches" in told("list_runs", "--agent", "nobody")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["list_runs", "--state", "REDY"], ["state", "'REDY'", "Did you mean READY?"]),
        (["list_runs", "--limit", "0"], ["--limit", "0", "500"]),
        (["list_runs", "--label", "x"], ["label", "'x'"]),
        (["inspect_run", "nonsense"], ["run", "'nonsense'", "list_runs"]),
        (["inspect_run", "\0"], ["run", "list_runs"]),
        (["cancel_run", "nonsense"], ["run", "'nonsense'", "list_runs"]),
        (["list_operations", "--status", "unknwon"], ["status", "Did you mean UNKNOWN?"]),
        (["list_operations", "--run", "nonsense"], ["run", "'nonsense'"]),
        (["reconcile", "op_0"], ["operation", "'op_0'", "list_operations"]),
        (["reconcile", "\0"], ["operation"]),
    ],
)
def test_a_command_names_what_does_not_fit(arguments: list[str], words: list[str]) -> None:
    sentence = refused(*arguments)
    assert all(word in sentence for word in words), sentence


@pytest.mark.parametrize("command", ["inspect_run", "cancel_run"])
def test_an_unknown_run_is_named(command: str) -> None:
    missing = str(uuid4())
    assert missing in refused(command, missing)


@engine
def test_inspect_run_tells_the_story(start: Start) -> None:
    run = reconciled_run(start)
    text = told("inspect_run", str(run.id))
    for word in (str(run.id), "COMPLETED", "first", "second", "look-up says committed", "re_1"):
        assert word in text
    assert SECRET not in text
    document = as_json("inspect_run", str(run.id))
    assert document["run"]["state"] == "COMPLETED"
    assert document["timeline"][0]["kind"] == "run.create"
    assert SECRET not in json.dumps(document)
    assert [
        entry["seq"] for entry in as_json("inspect_run", str(run.id), "--limit", "2")["timeline"]
    ] == [entry["seq"] for entry in document["timeline"][-2:]]
    assert "left out" in told("inspect_run", str(run.id), "--limit", "2")


@engine
def test_a_hostile_message_cannot_steer_the_terminal(start: Start) -> None:
    run = start(decider=lambda context: Fail("\x1b[2J[red]gone[/red]\r\n" + "x" * 5_000))
    advance(run_id=run.id, owner="test")
    for text in (told("inspect_run", str(run.id)), told("list_runs")):
        assert "\x1b" not in text
        assert "\r" not in text
        assert "[red]gone[/red]" in text
        assert "x" * 400 not in text.replace("\n", "").replace(" ", "")


def test_cancel_run_asks_and_may_ask_again() -> None:
    run = start_run(actor=operator(), agent="quick").run
    assert "will be cancelled" in told("cancel_run", str(run.id))
    assert as_json("cancel_run", str(run.id))["id"] == str(run.id)
    run.refresh_from_db()
    assert run.cancel_requested_by == "command line"


@engine
def test_cancel_run_of_a_run_that_ended_is_refused() -> None:
    run = start_run(actor=operator(), agent="quick").run
    advance(run_id=run.id, owner="test")
    assert "COMPLETED" in refused("cancel_run", str(run.id))


# -- Operations ----------------------------------------------------------------------


@engine
def test_unknown_operations_are_listed_and_reconciled(start: Start) -> None:
    run = uncertain_run(start)
    (operation,) = as_json("list_operations", "--status", "unknown")
    assert operation["run"] == str(run.id)
    assert len(as_json("list_operations", "--run", str(run.id), "--tool", "refund")) == 1
    text = told("list_operations")
    assert operation["operation_id"] in text
    assert SECRET not in text
    assert len(as_json("list_runs", "--uncertain")) == 1

    assert as_json("reconcile") == {"operations": [operation["operation_id"]]}
    assert operation["operation_id"] in told("reconcile", operation["operation_id"])
    advance(run_id=run.id, owner="second")
    assert ToolOperation.objects.get().status == "COMMITTED"
    assert "COMMITTED" in refused("reconcile", operation["operation_id"])
    assert "No operation is unknown" in told("reconcile")


def test_no_operation_is_said_so() -> None:
    assert "No operation matches" in told("list_operations")
    assert as_json("list_operations") == []


# -- What is registered ----------------------------------------------------------------


def test_tools_and_agents_are_listed() -> None:
    assert "No tool of yours is registered" in told("list_tools")

    @tool(effect_type=EffectType.READ)
    def look(call: Call, place: str) -> str:
        """Look somewhere."""
        return place

    def decide(context: Context) -> Decision:
        return CallTools(ToolCall("look", place="here"))

    Agent(name="looker", decider=decide, tools=("look",))
    assert "Look somewhere." in told("list_tools")
    assert "No tool of yours" not in told("list_tools")
    (shown,) = [one for one in as_json("list_tools") if one["name"] == "look"]
    assert shown["arguments"]["required"] == ["place"]
    assert "looker" in told("list_agents")
    assert {"looker", "quick"} <= {agent["name"] for agent in as_json("list_agents")}


# -- create_token ----------------------------------------------------------------------


def test_create_token_prints_a_token_that_works() -> None:
    made = as_json("create_token", "ci", "--scopes", "read")
    assert made["user"] == "ci"
    assert made["scopes"] == ["read"]
    assert Caller(token=made["token"]).get("runs/").status_code == 200
    assert ApiToken.objects.get().digest == digest_of(made["token"])
    assert not User.objects.get().has_usable_password()


def test_create_token_makes_user_and_groups_once() -> None:
    arguments = ["--scopes", "read,runs:write", "--user", "robin", "--groups", "finance, ops"]
    text = told("create_token", "ci", *arguments)
    assert "Authorization: Token aot_" in text
    told("create_token", "laptop", *arguments)
    user = User.objects.get()
    assert user.username == "robin"
    assert sorted(user.groups.values_list("name", flat=True)) == ["finance", "ops"]
    assert user.api_tokens.count() == 2


def test_create_token_can_end() -> None:
    assert as_json("create_token", "ci", "--scopes", "read", "--days", "1")["expires_at"]
    assert as_json("create_token", "ci", "--scopes", "read")["expires_at"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ci", "--scopes", "raed"], ["scopes", "'raed'", "'read'"]),
        (["ci", "--scopes", ","], ["scopes", "read"]),
        (["ci bot", "--scopes", "read"], ["--user", "'ci bot'"]),
        (["ci", "--scopes", "read", "--user", "a\0b"], ["--user"]),
        (["ci", "--scopes", "read", "--user", "x" * 101], ["name", "100"]),
        (["x" * 101, "--scopes", "read", "--user", "robin"], ["name", "100"]),
        (["ci", "--scopes", "read", "--groups", "x" * 151], ["--groups", "150"]),
        (["ci", "--scopes", "read", "--days", "0"], ["--days", "0"]),
    ],
)
def test_create_token_names_what_does_not_fit(arguments: list[str], words: list[str]) -> None:
    sentence = refused("create_token", *arguments)
    assert all(word in sentence for word in words), sentence
    assert not ApiToken.objects.exists()
    assert not User.objects.exists()


def test_create_token_of_an_inactive_user_is_refused() -> None:
    User.objects.create(username="gone", is_active=False)
    assert "gone" in refused("create_token", "ci", "--scopes", "read", "--user", "gone")

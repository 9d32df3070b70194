"""Approvals on the command line: what is printed, what is asked, and how it is refused."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from rich.console import Console

from agentops.models import ApiToken
from approvals.inbox import get_approval
from approvals.models import Verdict
from approvals.presenting import present_approval
from approvals.tables import action_table
from runs.models import Approval
from tests.database.approving import ARGUMENTS, PRINT, Start, asked, person, say, written
from tests.database.callers import Caller
from tests.database.stories import SECRET

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)


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


class Keyboard(StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


def test_list_approvals_shows_what_waits_and_for_whom(start: Start) -> None:
    approval = asked(start, groups=["finance"], quorum=2)
    text = told("list_approvals")
    assert str(approval.id) in text
    assert "still needs 1 of finance and 1 other" in text
    assert "No approval matches" in told("list_approvals", "--status", "denied")
    person("robin", "finance")
    person("sam")
    shown = as_json("list_approvals", "--mine-as", "robin", "--tool", "wire")
    assert [one["id"] for one in shown] == [str(approval.id)]
    assert as_json("list_approvals", "--mine-as", "sam") == []
    asked(start)
    assert "There are more" in told("list_approvals", "--limit", "1")
    for option, value in (("--status", "open"), ("--mine-as", "nobody"), ("--run", "x")):
        assert value in refused("list_approvals", option, value)


def test_decide_approval_signs_what_the_fingerprint_names(start: Start) -> None:
    approval, _ = asked(start), person("robin")
    command = ["decide_approval", str(approval.id), "approve", "--as", "robin"]
    text = told(*command, "--fingerprint", PRINT, "--event-id", "e1")
    assert f"Approval {approval.id} is approved: by robin." in text
    assert Verdict.objects.get().event_id == "e1"
    assert "approved by robin already" in refused(*command, "--fingerprint", PRINT)


def test_decide_approval_prints_the_approval_for_programs(start: Start) -> None:
    approval, _ = asked(start), person("robin")
    shown = as_json(
        *("decide_approval", str(approval.id), "deny", "--as", "robin"),
        *("--reason", "too much", "--fingerprint", PRINT),
    )
    assert (shown["status"], shown["reason"]) == ("denied", "too much")


def test_without_a_fingerprint_the_action_is_shown_whole_and_asked_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval, _ = asked(start), person("robin")
    before = written(approval)
    command = ["decide_approval", str(approval.id), "approve", "--as", "robin"]
    for answer in ("no\n", "\n", "", "yesterday\n"):
        monkeypatch.setattr("sys.stdin", Keyboard(answer))
        assert "Nothing was changed" in refused(*command)
    assert written(approval) == before
    monkeypatch.setattr("sys.stdin", Keyboard("yes\n"))
    text = told(*command)
    for shown in (PRINT, "wire", "amount", "900", '"17"', "[redacted]", "amount > 500", "shopper"):
        assert shown in text
    assert SECRET not in text
    assert "Approve exactly this as robin? [yes/no]" in text
    assert "is approved" in text


def test_a_long_argument_is_shown_to_its_end(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody signs what they cannot see; what steers a terminal is shown as what it is."""
    approval, _ = asked(start), person("robin")
    long = {"order": "x" * 2_000 + "\x1b[2JEND", "amount": 1}
    call_command(
        *("propose_changes", str(approval.id), "--as", "robin", "--reason", "look"),
        *("--arguments", json.dumps(long), "--fingerprint", PRINT),
        stdout=StringIO(),
    )
    proposed = Approval.objects.get(id=approval.id).proposed_arguments
    shape = present_approval(get_approval(approval.id)).model_copy(update={"arguments": proposed})
    out = StringIO()
    Console(file=out, width=200).print(action_table(shape))
    text = out.getvalue()
    assert text.count("x") >= 2_000
    assert "END" in text
    assert "\x1b[2J" not in text


@pytest.mark.parametrize("with_json", [True, False])
def test_nobody_is_asked_where_there_is_no_terminal(
    start: Start, monkeypatch: pytest.MonkeyPatch, with_json: bool
) -> None:
    approval, _ = asked(start), person("robin")
    before = written(approval)
    monkeypatch.setattr("sys.stdin", Keyboard("yes\n") if with_json else StringIO("yes\n"))
    command = ["decide_approval", str(approval.id), "approve", "--as", "robin"]
    assert "--fingerprint" in refused(*command, *(["--json"] if with_json else []))
    assert written(approval) == before


def test_the_one_who_signs_must_be_a_user(start: Start) -> None:
    approval = asked(start)
    for name in ("robin", "a\0b", ""):
        command = ["decide_approval", str(approval.id), "approve", "--as", name]
        assert "--as" in refused(*command, "--fingerprint", PRINT)
    with pytest.raises(CommandError, match="--as"):
        told("decide_approval", str(approval.id), "approve")


def test_propose_changes_takes_json_or_a_file(start: Start, tmp_path: Path) -> None:
    approval, _ = asked(start), person("robin")
    file = tmp_path / "arguments.json"
    file.write_text(json.dumps({**ARGUMENTS, "amount": 4}), encoding="utf-8")
    command = ["propose_changes", str(approval.id), "--as", "robin", "--fingerprint", PRINT]
    command += ["--reason", "less", "--arguments"]
    assert "--arguments" in refused(*command, "{")
    assert "as an object" in refused(*command, "[1]")
    assert "amount" in refused(*command, '{"order": "17"}')
    text = told(*command, f"@{file}")
    assert f"Approval {approval.id} is superseded" in text
    assert "others must sign it" in text


def test_an_unknown_approval_is_named() -> None:
    person("robin")
    assert "no-such" in refused(
        *("decide_approval", "no-such", "approve", "--as", "robin", "--fingerprint", PRINT)
    )


# -- Tokens ----------------------------------------------------------------------------


def test_a_token_to_decide_with_works_as_soon_as_it_is_made(start: Start) -> None:
    approval = asked(start, groups=["finance"])
    made = as_json(
        *("create_token", "desk", "--user", "robin", "--groups", "finance"),
        *("--scopes", "read,approvals:decide"),
    )
    assert made["permissions_given"] == ["runs.decide_approval"]
    answer = Caller(token=made["token"]).post(
        f"approvals/{approval.id}/verdict/", {"verdict": "approve", "fingerprint": PRINT}
    )
    assert answer.json()["status"] == "approved"


def test_making_a_token_to_decide_with_says_that_it_gives_the_permission() -> None:
    command = ["create_token", "desk", "--user", "robin", "--scopes", "approvals:decide"]
    assert "robin has the permission runs.decide_approval from now on" in told(*command)
    assert "from now on" not in told(*command)
    assert "from now on" not in told("create_token", "x", "--user", "sam", "--scopes", "read")
    assert as_json(*command)["permissions_given"] == []
    assert ApiToken.objects.filter(user__username="robin").count() == 3


def test_the_note_of_a_decided_approval_names_the_decider(start: Start) -> None:
    approval = say(asked(start), person("robin"), "deny", reason="too much")
    assert "by robin; too much" in told("list_approvals", "--run", str(approval.run_id))

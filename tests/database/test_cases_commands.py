"""`export_case` and `replay_case`: what they print, and how they end."""

import json
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from django.core.management import call_command
from django.core.management.base import CommandError

from runs import CallTools, ToolCall
from runs.agents import forget_agents
from runs.cases import load_case
from tests.database.casing import decide_by
from tests.database.controlling import failed
from tests.database.gating import Start
from tests.database.kit import ON_DATABASE

pytestmark = ON_DATABASE


def _told(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def _ended(*command: str) -> tuple[int, str, str]:
    """(exit status, standard error, standard output) of a command that does not end well."""
    out = StringIO()
    with pytest.raises(CommandError) as ended:
        call_command(*command, stdout=out)
    return ended.value.returncode, str(ended.value), out.getvalue()


def test_a_case_is_printed_or_written(start: Start, tmp_path: Path) -> None:
    run, _ = failed(start)
    printed = yaml.safe_load(_told("export_case", str(run.id)))
    as_json = json.loads(_told("export_case", str(run.id), "--json"))
    for document in (printed, as_json):
        assert document["cases"][0]["inputs"]["run"] == str(run.id)
    path = str(tmp_path / "case.json")
    said = _told("export_case", str(run.id), "--output", path, "--through", "2")
    assert f"{path}: steps 1–2 of run {run.id}, agent {run.agent}." in said
    assert [one.step for one in load_case(path).inputs.steps] == [1, 2]
    other = str(tmp_path / "case.yaml")
    said = json.loads(_told("export_case", str(run.id), "--output", other, "--json"))
    assert said == {"file": other, "name": f"{run.agent} {run.id}", "steps": 3}


def test_an_export_that_cannot_be_says_why(start: Start, tmp_path: Path) -> None:
    run, _ = failed(start)
    path = str(tmp_path / "case.yaml")
    _told("export_case", str(run.id), "--output", path)
    for command, why in [
        (("export_case", str(run.id), "--output", path), "It exists"),
        (("export_case", str(run.id), "--output", "case.txt"), "End the name in"),
        (("export_case", str(uuid4())), "run"),
        (("export_case", "no-id"), "run"),
    ]:
        code, said, printed = _ended(*command)
        assert (code, printed) == (1, "")
        assert why in said


def test_a_replay_ends_well_where_all_is_as_expected(start: Start, tmp_path: Path) -> None:
    run, _ = failed(start)
    path = str(tmp_path / "case.yaml")
    _told("export_case", str(run.id), "--output", path)
    said = _told("replay_case", path)
    assert "step 1  same       pay()" in said
    assert "All 3 decisions are as expected." in said
    shown: dict[str, Any] = json.loads(_told("replay_case", path, "--step", "3", "--json"))
    assert shown["matches"] is True
    assert [(one["step"], one["verdict"]) for one in shown["steps"]] == [(3, "same")]


def test_a_difference_ends_with_1_and_shows_both(start: Start, tmp_path: Path) -> None:
    run, _ = failed(start)
    path = str(tmp_path / "case.yaml")
    _told("export_case", str(run.id), "--output", path)
    decide_by(run, lambda context: CallTools(ToolCall("\x1b[31mred\n")))
    code, said, printed = _ended("replay_case", path)
    assert (code, said) == (1, "3 of 3 decisions differ: at step 1, 2, 3.")
    assert "- pay()" in printed
    assert "+ \N{REPLACEMENT CHARACTER}[31mred" in printed
    assert 'kind: "fail" → "call_tools"' in printed
    assert "\x1b" not in printed
    code, said, printed = _ended("replay_case", path, "--json")
    assert (code, json.loads(printed)["matches"]) == (1, False)


def test_what_cannot_be_compared_ends_with_2(start: Start, tmp_path: Path) -> None:
    run, _ = failed(start)
    path = str(tmp_path / "case.yaml")
    _told("export_case", str(run.id), "--output", path)
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    for command, why in [
        ((str(broken),), "this is no case"),
        ((str(tmp_path / "none.yaml"),), "cannot be read"),
        ((path, "--step", "9"), "no step 9"),
        ((path, "--llm", "openai:gpt-5-mini"), "--llm"),
    ]:
        code, said, printed = _ended("replay_case", *command)
        assert (code, printed) == (2, "")
        assert why in said
    forget_agents([run.agent])
    code, said, _ = _ended("replay_case", path)
    assert code == 2
    assert run.agent in said

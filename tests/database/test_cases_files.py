"""The file of a case: what Pydantic Evals reads too, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runs.cases import Case, UnreadableCase, load_case
from runs.cases.files import render_case, write_case
from runs.cases.shapes import Expected, Inputs, Seen, StepSeen
from runs.errors import InvalidInput


def _case(result: Any = "done", *, objective: str = "") -> Case:
    return Case(
        name="one",
        inputs=Inputs(
            run="r",
            agent="a",
            objective=objective,
            input={"n": [1, None, True]},
            steps=[StepSeen(step=1, position=1), StepSeen(step=2, position=2)],
            observations=[Seen(step=1, tool="look", result=result)],
        ),
        expected_output=[Expected(step=2, decision={"v": 1, "kind": "finish", "result": result})],
    )


@pytest.mark.parametrize("ending", ["yaml", "yml", "json", "JSON"])
def test_what_is_written_is_read(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"case.{ending}"
    write_case(_case(), path)
    assert load_case(path) == _case()


# What a tool or a person may have written; PostgreSQL stores no NUL and no lone surrogate.
_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_TEXT | st.sampled_from(["2026-11-30", "no", "1e3", "~", "0x1F", "*a", "&a b", "- x\n: y"]))
def test_every_text_comes_back_as_it_was(tmp_path: Path, text: str) -> None:
    for form in ("yaml", "json"):
        path = tmp_path / f"text.{form}"
        path.write_text(render_case(_case({text: text}, objective=text), form), encoding="utf-8")
        assert load_case(path) == _case({text: text}, objective=text)


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_pydantic_evals_reads_it(tmp_path: Path, ending: str) -> None:
    from pydantic_evals import Dataset

    path = tmp_path / f"case.{ending}"
    write_case(_case(), path)
    dataset = Dataset[Inputs, list[Expected], Any].from_file(path)
    (case,) = dataset.cases
    assert (case.name, case.inputs, case.expected_output) == (
        "one",
        _case().inputs,
        _case().expected_output,
    )


def test_what_pydantic_evals_wrote_is_read(tmp_path: Path) -> None:
    from pydantic_evals import Dataset
    from pydantic_evals.evaluators import EqualsExpected

    path = tmp_path / "case.yaml"
    write_case(_case(), path)
    dataset = Dataset[Inputs, list[Expected], Any].from_file(path)
    dataset.add_evaluator(EqualsExpected())
    dataset.to_file(tmp_path / "again.yaml")
    again = load_case(tmp_path / "again.yaml")
    assert (again.inputs, again.expected_output) == (_case().inputs, _case().expected_output)


def test_what_newer_releases_of_it_write_is_read(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    document = json.loads(render_case(_case(), "json"))
    added = {"$schema": "./schema.json", "name": "incidents", "report_evaluators": ["Any"]}
    path.write_text(json.dumps(added | document))
    assert load_case(path) == _case()


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    path.write_text("edited")
    with pytest.raises(InvalidInput, match="may have been edited"):
        write_case(_case(), path)
    assert path.read_text() == "edited"
    with pytest.raises(InvalidInput, match="cannot be written"):
        write_case(_case(), tmp_path / "nowhere" / "case.yaml")


def _written(**changes: Any) -> str:
    document = json.loads(render_case(_case(), "json"))
    document["cases"][0] |= changes
    return json.dumps(document)


_INPUTS = json.loads(_written())["cases"][0]["inputs"]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("case.txt", "", r"End the name in \.yaml, \.yml or \.json"),
        ("case.json", "{", "Expecting property name"),
        ("case.yaml", "a: [", "expected (the )?node content"),
        ("case.yaml", "[" * 100_000, "this is no case"),
        ("case.yaml", "", "the document: Input should be a valid dictionary"),
        ("case.json", "[" * 100_000, "recursion"),
        ("case.yaml", "cases: []", "cases: List should have at least 1 item"),
        ("case.yaml", "!!python/object:os.system {}", "could not determine a constructor"),
        ("case.json", _written(inptus={}), r"cases\.0\.inptus: Extra inputs"),
        (
            "case.json",
            _written(inputs=_INPUTS | {"observations": [{"step": "one", "tool": "x"}]}),
            r"cases\.0\.inputs\.observations\.0\.step: Input should be a valid integer",
        ),
        ("case.json", _written(inputs=_INPUTS | {"steps": []}), r"cases\.0\.inputs\.steps"),
        (
            "case.json",
            _written(expected_output=[{"step": 3}]),
            "step 3 is not in inputs.steps, or is expected twice",
        ),
        (
            "case.json",
            _written(expected_output=[{"step": 1}] * 2),
            "step 1 is not in inputs.steps, or is expected twice",
        ),
        ("case.yaml", "a: &a [1]\nb: [*a, *a]", r"it has an alias \(\*name\)"),
        ("case.json", b"\xff\xfe", "codec can't decode"),
    ],
)
def test_what_is_no_case_is_refused_with_the_place(
    tmp_path: Path, name: str, text: str | bytes, why: str
) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UnreadableCase, match=why) as refused:
        load_case(path)
    assert str(path) in str(refused.value)
    assert len(str(refused.value)) < 1_000


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableCase, match="No such file"):
        load_case(tmp_path / "none.yaml")
    with pytest.raises(UnreadableCase, match="directory"):
        load_case(tmp_path)
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(UnreadableCase, match="--through"):
        load_case(large)


def test_an_unquoted_date_is_text(tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    document = yaml.safe_load(render_case(_case("2026-11-30"), "yaml"))
    text = yaml.safe_dump(document).replace("'2026-11-30'", "2026-11-30")
    path.write_text(text)
    assert load_case(path) == _case("2026-11-30")

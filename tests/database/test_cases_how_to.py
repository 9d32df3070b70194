"""What the how-to about cases shows works as it stands there."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from runs import Finish
from runs.cases.exporting import export_case
from runs.cases.files import write_case
from runs.cases.shapes import Expected
from runs.decisions import CallTools, decode
from tests.database.casing import decide_by
from tests.database.controlling import failed
from tests.database.gating import Start
from tests.database.kit import ON_DATABASE

pytestmark = ON_DATABASE

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/turn-an-incident-into-a-case.md"


def _block(language: str) -> str:
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    return str(block)


def test_the_test_of_the_page_passes_and_fails_as_it_should(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = failed(start)
    (tmp_path / "cases").mkdir()
    write_case(export_case(run_id=run.id), tmp_path / "cases" / "refused.yaml")
    monkeypatch.chdir(tmp_path)
    page: dict[str, Any] = {}
    exec(_block("python"), page)
    test = page["test_the_agent_decides_what_is_expected"]
    (mark,) = test.pytestmark
    assert [file.stem for file in mark.args[1]] == ["refused"]
    test(*mark.args[1])
    decide_by(run, lambda context: Finish())
    with pytest.raises(AssertionError, match="3 of 3 decisions differ"):
        test(*mark.args[1])


def test_the_expectation_of_the_page_is_one() -> None:
    (expected,) = yaml.safe_load(_block("yaml"))["expected_output"]
    body = Expected(**expected).decision
    assert isinstance(decode(body, where="the page"), CallTools)

"""What a README of the catalog shows can be pasted: it registers a tool that passes the checks."""

import re
from pathlib import Path

import pytest
from django.core.checks import ERROR

from tools.checks import check_tools
from tools.registry import all_tools

CATALOG = Path(__file__).resolve().parents[2] / "tools" / "catalog"
FOLDERS = sorted(path.parent for path in CATALOG.glob("*/tool.py"))
SAME_FILES = ("__init__.py", "provider.py", "tool.py", "README.md")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_folder_has_the_same_files(folder: Path) -> None:
    assert [name for name in SAME_FILES if not (folder / name).exists()] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_example_registers_a_tool_that_passes_the_checks(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert examples
    exec(compile(examples[0], str(folder), "exec"), {"__name__": f"example_{folder.name}"})
    assert all_tools()
    assert [message for message in check_tools() if message.level >= ERROR] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_readme_names_its_sources_with_a_date(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    assert re.search(r"[A-Z][a-z]+ 20\d\d", text)
    assert "source" in text.lower()

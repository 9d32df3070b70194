"""The documents speak of things that exist."""

import re
from pathlib import Path

import pytest
from django.core.management import get_commands

from agentops.checks import NAMES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"manage\.py ([a-z_]+)", page.read_text()))
    assert named <= set(get_commands())


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in text] == []


def test_decisions_are_numbered_and_short() -> None:
    notes = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(note.name[:4]) for note in notes] == list(range(1, len(notes) + 1))
    assert [note.name for note in notes if len(note.read_text().splitlines()) > 40] == []

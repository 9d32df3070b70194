"""Pages keep scripts and styles in files of their own: the policy refuses what stands in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
PYTHON = sorted(
    path for app in ("agentops", "approvals", "runs") for path in (ROOT / app).rglob("*.py")
)
STYLES = sorted(
    path for app in ("agentops", "approvals", "runs") for path in (ROOT / app).rglob("*.css")
)

INLINE = {
    "a script": re.compile(r"<script(?![^>]*\ssrc=)", re.IGNORECASE),
    "a style": re.compile(r"<style\b", re.IGNORECASE),
    "a style of an element": re.compile(r"<[^>]*\sstyle\s*=", re.IGNORECASE),
    "a handler": re.compile(r"<[^>]*\son[a-z]+\s*=", re.IGNORECASE),
    "an address that runs": re.compile(r"javascript:", re.IGNORECASE),
}
ELSEWHERE = re.compile(r"""(?:src|href|action)=["'](?:https?:)?//""", re.IGNORECASE)
LOADED = re.compile(r"""url\(\s*["']?(?:https?:)?//|@import""", re.IGNORECASE)


def test_there_are_templates() -> None:
    assert len(TEMPLATES) > 20


@pytest.mark.parametrize("page", TEMPLATES, ids=lambda page: page.name)
def test_nothing_inline_and_nothing_from_elsewhere_stands_in_a_template(page: Path) -> None:
    text = page.read_text()
    assert [what for what, found in INLINE.items() if found.search(text)] == []
    assert ELSEWHERE.search(text) is None


def test_no_markup_in_our_code_has_anything_inline() -> None:
    faults = [
        f"{path.relative_to(ROOT)}: {what}"
        for path in PYTHON
        for what, found in INLINE.items()
        if found.search(path.read_text())
    ]
    assert faults == []


def test_no_style_sheet_loads_anything_from_elsewhere() -> None:
    assert [path.name for path in STYLES if LOADED.search(path.read_text())] == []

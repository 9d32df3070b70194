"""The demo tells the truth, and the README shows what it prints."""

import re
from pathlib import Path

import pytest

from tests.acceptance.demos import ROOT, run_demo

pytestmark = pytest.mark.crash


@pytest.mark.timeout(240)
def test_the_story_holds_and_the_readme_shows_it(stack_dir: Path) -> None:
    done = run_demo(stack_dir)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = re.search(r"<!-- demo:.*?-->\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert shown is not None, "the README has no demo block"
    assert _mask(shown[1]) == _mask(done.stdout)


def _mask(text: str) -> list[str]:
    """The lines without what differs from run to run."""
    for pattern, name in (
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "RUN"),
        (r"(?<=process )\d+", "PID"),
        (r"re_[0-9a-f]+", "REFUND"),
        (r"(?<=127\.0\.0\.1:)\d+", "PORT"),
        (r"(?<=in )/\S*(?=\.agentops)", ""),
        (r"(?<=password )\S+|(?<=Token )\S+|(?<=demo:)\S+", "SECRET"),
    ):
        text = re.sub(pattern, name, text)
    return [line.rstrip() for line in text.strip().splitlines()]

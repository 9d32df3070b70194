"""The demo tells the truth, and the README shows what it prints."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.crash


@pytest.mark.timeout(240)
def test_the_story_holds_and_the_readme_shows_it(tmp_path: Path) -> None:
    said = _run_demo(tmp_path)
    shown = re.search(r"<!-- demo:.*?-->\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert shown is not None, "the README has no demo block"
    assert _mask(shown[1]) == _mask(said)


def _run_demo(data_dir: Path) -> str:
    kept = {"PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH"}
    environment = {name: value for name, value in os.environ.items() if name in kept}
    environment |= {
        "AGENTOPS_DATA_DIR": str(data_dir / ".agentops"),
        "PORT": str(_free_port()),
        "FLOWER_PORT": str(_free_port()),
    }
    done = subprocess.run(
        [sys.executable, "manage.py", "demo", "--exit"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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

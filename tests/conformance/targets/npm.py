"""Programs from npm, exactly as `package-lock.json` beside this file pins them.

    folder = install("stripe-stateful-mock", "0.0.16")     # …/node_modules/stripe-stateful-mock

Guarantees: every file is the one whose hash is in the lock, whatever registry it came from; all
packages are installed once per lock, by one process at a time, below the checkout's `.venv`; no
script of a package is run. Where there is no npm, or no registry can be reached, the test is
skipped with the reason; with `CONFORMANCE_NEEDS_NPM` set it fails instead, so that nobody is
reassured by tests that did not run.

The lock is made with `npm install --omit-lockfile-registry-resolved`: it has hashes and no
addresses, so each machine asks the registry that it is configured for.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

HERE = Path(__file__).resolve().parent
PACKAGES = HERE.parents[2] / ".venv" / "npm"
INSTALL_SECONDS = 150.0  # below the time that pytest gives one test
QUIETLY = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
NPM_CI = ("npm", "ci", "--fetch-retries=1", *QUIETLY)


def install(package: str, version: str) -> Path:
    """The folder of an installed package, which `package.json` must pin at exactly `version`.

    Skips the calling test where that is impossible on this machine.
    """
    pinned = json.loads((HERE / "package.json").read_text())["dependencies"]
    assert pinned.get(package) == version, f"package.json pins {package} at {pinned.get(package)}"
    need_node()
    folder, problem = _installed()
    if problem:
        _skip(problem)
    return folder / "node_modules" / package


def need_node() -> str:
    """The path of node; skips the calling test where node or npm is missing."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        _skip("node and npm are not installed")
    return node


@cache  # one attempt per process: a registry that is out of reach is waited for once
def _installed() -> tuple[Path, str]:
    """The folder with the whole lock's packages, and why it is not there, if it is not."""
    lock = (HERE / "package-lock.json").read_bytes()
    folder = PACKAGES / hashlib.sha256(lock).hexdigest()[:16]
    PACKAGES.mkdir(parents=True, exist_ok=True)
    with _one_process_at_a_time(PACKAGES / "lock"):
        return folder, "" if folder.exists() else _install_into(folder)


def _install_into(folder: Path) -> str:
    """It has its name only once it is complete: a killed installation leaves no half one."""
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, unfinished)
    try:
        ran = subprocess.run(
            NPM_CI, cwd=unfinished, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"npm ci did not end within {INSTALL_SECONDS:.0f} s"
    said = ran.stderr.strip()
    # A file that is not the pinned one is no reason to skip.
    assert "EINTEGRITY" not in said, said[-2000:]
    if ran.returncode != 0:
        return f"npm ci failed: {said[:300]}"
    unfinished.rename(folder)
    return ""


@contextmanager
def _one_process_at_a_time(path: Path) -> Iterator[None]:
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _skip(reason: str) -> NoReturn:
    if os.environ.get("CONFORMANCE_NEEDS_NPM"):
        pytest.fail(reason)
    pytest.skip(reason)

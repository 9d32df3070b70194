"""The shape of the code: imports go one way, files stay readable, nothing names its workshop."""

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APPS = ("agentops", "approvals", "runs", "tools")
LONGEST_FILE = 400
# What belongs to the place where this was written, in two halves so as not to name it here.
FORBIDDEN = tuple(
    left + right
    for left, right in [
        ("/wo", "rk/"),
        ("sha", "red/"),
        ("/ro", "ot/"),
        ("CONTRACT", ".md"),
        ("DESIGN", ".md"),
        ("STYLE", ".md"),
        ("CASES", ".md"),
        ("FIELD-", "NOTES"),
    ]
)
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".html", ".css", ".js", ".txt", ".cfg", ".ini", ""}
NOT_OURS = {"__pycache__", "node_modules", "staticfiles", "build", "dist"}


@functools.cache
def _files() -> list[Path]:
    """Every file of the project that people read."""
    found = []
    for directory, below, names in os.walk(ROOT):
        # Not even entered: tens of thousands of files lie in a virtual environment.
        below[:] = [name for name in below if _is_ours(name)]
        paths = (Path(directory, name) for name in names if _is_ours(name))
        found += [path for path in paths if path.is_file() and path.suffix in TEXT]
    return sorted(found)


def _is_ours(name: str) -> bool:
    hidden = name.startswith(".") and name not in {".ci", ".github"}
    return not hidden and name not in NOT_OURS and not name.endswith(".egg-info")


def _python(app: str = "") -> Iterator[Path]:
    yield from (
        path for path in _files() if path.suffix == ".py" and path.is_relative_to(ROOT / app)
    )


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_imports_go_one_way() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    ran = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 broken" in ran.stdout


@pytest.mark.parametrize("app", APPS)
def test_an_app_never_imports_one_above_it(app: str) -> None:
    above = set(APPS[: APPS.index(app)])
    for path in _python(app):
        # The kit for tool authors drives the kernel, and stands above it.
        of_the_kit = path.is_relative_to(ROOT / "tools" / "testing")
        forbidden = above - {"runs"} if of_the_kit else above
        for node in ast.walk(_tree(path)):
            found = {name.split(".")[0] for name in _imported(node)}
            assert not found & forbidden, f"{path.relative_to(ROOT)} imports {found & forbidden}"


PURE = {"collections", "dataclasses", "datetime", "enum", "typing"}


@pytest.mark.parametrize(
    ("module", "besides"),
    [
        ("runs/state.py", set()),
        ("runs/settling.py", set()),
        ("runs/recovery.py", {"runs.settling", "tools"}),
    ],
)
def test_the_pure_modules_know_neither_django_nor_rows(module: str, besides: set[str]) -> None:
    imported = {name for node in ast.walk(_tree(ROOT / module)) for name in _imported(node)}
    assert {name for name in imported if name.split(".")[0] not in PURE} <= besides


def test_nothing_but_the_tests_imports_the_tests() -> None:
    for app in APPS:
        for path in _python(app):
            walked = ast.walk(_tree(path))
            names = {name.split(".")[0] for node in walked for name in _imported(node)}
            assert not names & {"tests", "pytest"}, path.relative_to(ROOT)


def test_every_file_is_short_enough_to_be_read() -> None:
    # A migration is what a tool writes, and is read by that tool.
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in _python()
        if path.parent.name != "migrations"
    }
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_no_file_names_the_place_where_it_was_written() -> None:
    pattern = re.compile("|".join(re.escape(word) for word in FORBIDDEN))
    found = [
        f"{path.relative_to(ROOT)}: {hit[0]}"
        for path in _files()
        if (hit := pattern.search(path.read_text(errors="replace")))
    ]
    assert found == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in _python()
        if path.parent.name in APPS and path.name not in {"__init__.py", "apps.py"}
        if not ast.get_docstring(_tree(path))
    ]
    assert silent == []


def test_no_module_is_called_utils() -> None:
    vague = {"utils", "helpers", "common", "misc"}
    assert [path.name for path in _python() if path.stem in vague] == []


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case _:
            return []

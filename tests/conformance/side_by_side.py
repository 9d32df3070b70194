"""Checks of several tools at once: most of each is waiting for leases and windows to end.

Each check is made in a process of its own, with an environment, providers and database
connections of its own, because the kit copies its process and must be alone in it.

Guarantees: a check that fails, or that cannot be made here, fails or skips the test that
asks for its report, and no other. All processes end with the test process.
Does not check what was not selected.
"""

import gc
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

# Loaded here once, and not by every process that is forked.
import cel  # noqa: F401  imported for its imports
import pytest
from django.core.management import call_command
from pytest_django.plugin import DjangoDbBlocker

from tools.testing import ALL, Report
from tools.testing.children import Child
from tools.testing.lanes import Case, run_cases, within

Check = Callable[[Path], Report]
# How the processes of a machine share its processors.
AT_ONCE: Final = 2 * (os.cpu_count() or 1)
LONGEST_SECONDS: Final = 400.0
# In these a tool's effect type, its keys and its look-up show; in the others only its code does.
IN_RECOVERY: Final = (
    "killed_before_call",
    "killed_after_effect",
    "answer_timed_out",
    "request_lost",
    "request_late",
    "request_doubled",
    "look_up_lags",
)
# What `check` is asked for of a tool, and of the same code declared in another way.
WHOLE: Final[Mapping[str, Any]] = {"faults": ALL}
AGAIN: Final[Mapping[str, Any]] = {"faults": IN_RECOVERY}


class Reports:
    """Reports by the name of their check, as far as there are any."""

    def __init__(self, made: Mapping[str, Report | str | None], logs: Path) -> None:
        self._made = made
        self._logs = logs

    def __getitem__(self, name: str) -> Report:
        """Skips the test where its check could not be made, and fails it with what it said."""
        match self._made[name]:
            case Report() as report:
                return report
            case str() as reason:
                pytest.skip(reason)
            case None:
                said = _log(self._logs, name).read_text(errors="replace")
                pytest.fail(f"the check of {name} came to no report\n{said}", pytrace=False)


def check_all(checks: Mapping[str, Check], *, logs: Path, are_sound: bool = False) -> Reports:
    """Make the checks, some at once.

    Of tools that `are_sound` one that is not found so is checked once more, alone: times are
    scaled to seconds, and a machine that stood still for one makes a deadline pass.
    """
    made = _make(checks, logs=logs, at_once=AT_ONCE)
    if are_sound:
        doubtful = {
            name: checks[name]
            for name, report in made.items()
            if isinstance(report, Report) and not report.ok
        }
        for name in doubtful:
            print(f"checked once more, after\n{made[name]}")
        again = logs / "again"
        again.mkdir()
        made |= _make(doubtful, logs=again, at_once=1)
    return Reports(made, logs)


def _make(
    checks: Mapping[str, Check], *, logs: Path, at_once: int
) -> dict[str, Report | str | None]:
    cases = [_in_a_process(name, check, logs=logs) for name, check in checks.items()]
    return dict(zip(checks, run_cases(cases, lanes=at_once), strict=True))


def reports_of(checks: Mapping[str, Check], *, are_sound: bool = False) -> Any:
    """A fixture: the reports of those checks that a selected test of its module is named for.

    A test is named for a check by its parameter `checked`; it needs a mark that the database
    is set up for. What the checks wrote there is gone after the module, and not after each test.
    """

    @pytest.fixture(scope="module")
    def reports(
        request: pytest.FixtureRequest,
        django_db_setup: None,
        django_db_blocker: DjangoDbBlocker,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Iterator[Reports]:
        chosen = {name: checks[name] for name in _wanted(request) if name in checks}
        with django_db_blocker.unblock():
            logs = tmp_path_factory.mktemp("checks")
            yield check_all(chosen, logs=logs, are_sound=are_sound)
            call_command("flush", verbosity=0, interactive=False)

    return reports


def _wanted(request: pytest.FixtureRequest) -> Iterator[str]:
    for item in request.session.items:
        if item.path == request.path and isinstance(item, pytest.Function):
            params = item.callspec.params if hasattr(item, "callspec") else {}
            if "checked" in params:
                yield str(params["checked"])


def _in_a_process(name: str, check: Check, *, logs: Path) -> Case[Report | str | None]:
    directory = logs / f"of {name}"
    directory.mkdir()
    answer = directory / "report.pickle"
    child = Child(partial(_write_report, check, directory, answer), log=_log(logs, name))
    try:
        yield within(lambda: child.has_ended, seconds=LONGEST_SECONDS)
    finally:
        child.kill()
    if not answer.exists():
        return None
    made: Report | str = pickle.loads(answer.read_bytes())
    return made


def _write_report(check: Check, directory: Path, answer: Path) -> None:
    made: Report | str
    # What is here now stays: the workers that are forked from here need not count it.
    gc.freeze()
    try:
        made = check(directory)
    except pytest.skip.Exception as skipped:
        made = str(skipped)
    written = answer.with_suffix(".new")
    written.write_bytes(pickle.dumps(made))
    written.rename(answer)


def _log(logs: Path, name: str) -> Path:
    return logs / f"{name}.log"

"""Log lines as another program reads them, whoever wrote them and whatever stands in them."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
import structlog

from agentops import logs
from agentops.telemetry import lines
from runs.events import Event, Name

RUN = UUID("01a22bd9-5349-7692-968b-79f57d62b0dd")
ABOUT = {"run_id": RUN, "agent": "a", "step_number": 3, "fence_token": 7}
CALL = ABOUT | {"operation_id": "op_1", "tool": "pay", "attempt": 1}
# Ends a line, and turns a terminal red.
HOSTILE = 'paid\n{"event": "forged", "level": "info"}\x1b[31m\u2028\udcff'

Heard = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Every line of this process, in the form of machines."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logs.make_formatter(form="json"))
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in ("", "runs", "shop")}
    root.addHandler(handler)
    for name in levels:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield lambda: [json.loads(line) for line in out.getvalue().splitlines()]
    root.removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    structlog.contextvars.clear_contextvars()


@contextmanager
def unreported() -> Iterator[None]:
    """pytest keeps what is logged for its report, which no lone surrogate gets through."""
    root = logging.getLogger()
    kept = [one for one in root.handlers if type(one).__module__.startswith("_pytest")]
    for handler in kept:
        root.removeHandler(handler)
    yield
    for handler in kept:
        root.addHandler(handler)


def test_whoever_writes_while_a_run_is_held_says_which_one_it_is(heard: Heard) -> None:
    tool, ours = logging.getLogger("shop"), structlog.get_logger("runs.something")
    tell(Name.SLICE_STARTING, ABOUT)
    ours.info("between")
    tell(Name.CALL_STARTING, CALL)
    tool.warning("asking %s", "the bank")
    tell(Name.CALL_DONE, CALL | {"outcome": "committed"})
    tool.warning("back")
    tell(Name.RUN_RELEASED, ABOUT | {"state": "READY", "steps": 1, "lease_lost": False})
    tool.warning("outside")
    by_event = {line["event"]: line for line in heard()}
    run = {"run_id": str(RUN), "step": 3, "fence_token": 7}
    for event in ("between", "back"):
        assert by_event[event] | run == by_event[event]
        assert "operation_id" not in by_event[event]
    in_call = by_event["asking the bank"]
    assert in_call | run | {"operation_id": "op_1", "logger": "shop"} == in_call
    assert not {"run_id", "step", "fence_token", "operation_id"} & set(by_event["outside"])
    assert (
        by_event["call_done"] | run | {"tool": "pay", "outcome": "committed"}
        == (by_event["call_done"])
    )


@pytest.mark.parametrize(
    ("name", "more", "level"),
    [
        (Name.CALL_DONE, {"outcome": "committed"}, "debug"),
        (Name.CALL_DONE, {"outcome": "rejected"}, "info"),
        (Name.CALL_DONE, {"outcome": "unknown"}, "warning"),
        (Name.LEASE_LOST, {}, "warning"),
        (Name.INCIDENT, {"kind": "late_commit"}, "warning"),
        (Name.COMMIT_DONE, {}, None),
    ],
)
def test_what_is_uncertain_is_a_warning_and_what_is_planned_is_silent(
    heard: Heard, name: Name, more: dict[str, Any], level: str | None
) -> None:
    tell(name, CALL | more)
    assert [line["level"] for line in heard()] == ([level] if level else [])


def test_hostile_text_is_a_value_of_its_own_line_and_bounded(heard: Heard) -> None:
    with unreported():
        logging.getLogger("shop").error("said %s", HOSTILE)
        structlog.get_logger("runs.x").error("said", what=HOSTILE, long="x" * 100_000)
    plain, ours = heard()
    assert plain["event"] == f"said {HOSTILE}"
    assert (ours["event"], ours["what"]) == ("said", HOSTILE)
    assert len(ours["long"]) < 3_000


def test_a_traceback_is_one_value(heard: Heard) -> None:
    with unreported():
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            logging.getLogger("shop").exception("broken")
    (line,) = heard()
    assert "ValueError: paid" in line["exception"]


def test_for_people_a_value_drives_no_terminal() -> None:
    record = logging.LogRecord("shop", logging.WARNING, "", 1, "said %s", (HOSTILE,), None)
    text = logs.make_formatter(form="console").format(record)
    assert "\x1b[31m" not in text
    assert "\n" not in text


def test_a_process_writes_its_lines_to_standard_error_in_the_form_it_is_told() -> None:
    script = (
        "import django, logging, structlog; django.setup();"
        "structlog.get_logger('runs.x').info('ours', n=1);"
        "logging.getLogger('shop').warning('theirs');"
        "logging.getLogger('httpx').info('chatter')"
    )
    told = [json.loads(line) for line in _run(script, AGENTOPS_LOG_FORMAT="").splitlines()]
    assert [line["event"] for line in told] == ["ours", "theirs"]
    said = _run(script, AGENTOPS_LOG_FORMAT="console")
    assert "ours" in said
    assert not said.startswith("{")


# As Django does by the settings, without waiting for all of it.
SET_UP = """
import logging.config, os, signal
from agentops import logs
logging.config.dictConfig(logs.logging_config(form="json", level="info", apps=[]))
log = logging.getLogger("shop")
"""
EVERY_LINE_UNREAD = """
import django, sys; django.setup()
from runs import events
for number in range(5_000):
    events.emit(events.Name.CALL_DONE, operation_id=str(number), tool="pay", outcome="unknown")
print("all said", flush=True)
sys.stdin.read()
"""


def test_an_answer_does_not_wait_for_its_line_to_be_read() -> None:
    with _begin(EVERY_LINE_UNREAD) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "all said\n"
        _, err = process.communicate(timeout=60)
    said = [json.loads(line) for line in err.splitlines()]
    operations = [line["operation_id"] for line in said if line["event"] == "call_done"]
    lost = [line["event"].rpartition(": ") for line in said if line["event"] != "call_done"]
    # In their order, and what there was no place for is counted.
    assert operations == sorted(operations, key=int)
    assert {words for words, _, _ in lost} == {"log lines lost, not read in time"}
    assert len(operations) + sum(int(count) for _, _, count in lost) == 5_000


def test_a_process_ends_though_nobody_reads_its_lines() -> None:
    with _begin(EVERY_LINE_UNREAD) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "all said\n"
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_a_forked_process_writes_its_own_lines_and_no_others() -> None:
    said = _run(
        f"{SET_UP}log.warning('before');"
        "child = os.fork(); log.warning('child' if child == 0 else 'parent');"
        "child == 0 and (logs.flush(), os._exit(0)); os.waitpid(child, 0)"
    )
    events = [json.loads(line)["event"] for line in said.splitlines()]
    assert sorted(events) == ["before", "child", "parent"]


def test_what_was_said_before_a_flush_is_written_whatever_ends_the_process() -> None:
    script = (
        f"{SET_UP}[log.warning('%s', 'x' * 500) for _ in range(900)];"
        "logs.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    with _begin(script) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert len(err.splitlines()) == 900


def test_a_line_that_cannot_be_formatted_is_named_and_breaks_nothing() -> None:
    said = _run(f"{SET_UP}log.warning('%d', 'many'); log.error('on')")
    broken, after = (json.loads(line) for line in said.splitlines())
    assert broken["event"] == "a log line could not be formatted: <string>:6"
    assert after["event"] == "on"


def _begin(script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _run(script: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=_environment() | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr


def _environment() -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if name != "AGENTOPS_APPS"}
    return known | {"DJANGO_SETTINGS_MODULE": "agentops.settings"}


@pytest.mark.parametrize("given", [{"AGENTOPS_LOG_FORMAT": "xml"}, {"AGENTOPS_LOG_LEVEL": "loud"}])
def test_a_form_or_level_that_there_is_not_is_said_at_start(given: dict[str, str]) -> None:
    (found,) = logs.judge(given)
    assert next(iter(given)) in found.msg
    assert logs.judge({"AGENTOPS_LOG_FORMAT": "JSON", "AGENTOPS_LOG_LEVEL": "Debug"}) == []


def tell(name: Name, about: dict[str, Any]) -> None:
    lines.hear(Event(name, about))  # type: ignore[arg-type]

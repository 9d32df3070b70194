"""The parts that a report rests on: the promise, the table, the cases, the children."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection

from tests.conformance.kit_planted import PLANTED
from tests.conformance.kit_tools import note_tool
from tests.processes import wait_until
from tools import EffectType
from tools.testing import Finding, Report, Row
from tools.testing.children import Child
from tools.testing.lanes import Case, run_cases
from tools.testing.promise import Ending, breach
from tools.testing.scale import at_scale, choose_scale

READ, OURS = EffectType.READ, EffectType.TRANSACTIONAL
KEYED, ONCE = EffectType.IDEMPOTENT_WRITE, EffectType.IRREVERSIBLE
HOW_TO = Path(__file__).resolve().parents[2] / "docs/how-to/prove-a-tool.md"


@pytest.mark.parametrize(
    ("effect_type", "ended", "effects", "kept"),
    [
        (READ, "COMMITTED", 0, True),
        (READ, "REJECTED", 0, True),
        (READ, "COMMITTED", 1, False),
        (READ, "unknown", 0, False),
        (OURS, "COMMITTED", 1, True),
        (OURS, "COMMITTED", 2, False),
        (OURS, "COMMITTED", 0, False),
        (OURS, "a person", 0, False),
        (OURS, "CANCELLED", 0, False),
        (KEYED, "COMMITTED", 1, True),
        (KEYED, "COMMITTED", 0, False),
        (KEYED, "COMMITTED", 2, False),
        (KEYED, "REJECTED", 0, True),
        (KEYED, "REJECTED", 1, False),
        (KEYED, "CANCELLED", 1, False),
        (KEYED, "unknown", 1, False),
        (ONCE, "a person", 0, True),
        (ONCE, "a person", 1, True),
        (ONCE, "a person", 2, False),
    ],
)
def test_the_promise(effect_type: EffectType, ended: str, effects: int, kept: bool) -> None:
    ending = Ending(ended=ended, effects=effects, reason="somebody said so")
    assert (breach(effect_type, ending) == "") is kept


def test_a_person_who_is_not_told_why_is_a_breach() -> None:
    assert breach(ONCE, Ending(ended="a person", effects=1, reason=""))


def _report(*rows: Row, findings: tuple[Finding, ...] = (), probed: bool = True) -> Report:
    return Report(
        tool="refund",
        effect_type="READ",
        provider="shop",
        scale="Times are scaled.",
        probed=probed,
        rows=rows,
        findings=findings,
    )


def _row(**facts: str) -> Row:
    return Row(**{"fault": "no_fault", "says": "", "verdict": "kept"} | facts)  # type: ignore[arg-type]


def test_a_report_is_sound_only_without_broken_rows_and_errors() -> None:
    note = Finding(name="lag", field="lookup", says="it lags", fix="wait", level="note")
    error = Finding(name="lag", field="lookup", says="it lags", fix="wait")
    assert _report(_row(), findings=(note,)).ok
    assert not _report(_row(), findings=(error,)).ok
    assert not _report(_row(verdict="BROKEN")).ok
    assert _report(_row(verdict="not run")).ok


@pytest.mark.parametrize("verdict", ["kept", "BROKEN"])
def test_a_report_whose_declaration_was_not_probed_says_so_whatever_its_rows_are(
    verdict: str,
) -> None:
    report = _report(_row(verdict=verdict), probed=False)
    conclusion = str(report).splitlines()[-1]
    assert "NOT PROBED" in conclusion
    assert "no wrong declaration was found" not in conclusion
    assert report.to_json()["probed"] is False
    probed = _report(_row(verdict=verdict))
    assert "NOT PROBED" not in str(probed)
    assert probed.to_json()["probed"] is True


def test_what_a_provider_says_stays_in_its_cell() -> None:
    hostile = "two\nlines | a bar \x1b[31m\u202e " + "and more " * 100
    (_, _, line) = _report(_row(why=hostile)).table().splitlines()
    assert line.count("|") == 8
    assert "\x1b" not in line
    assert "\u202e" not in line
    assert len(line) < 300


def test_no_time_of_a_declaration_gets_longer_and_none_is_moved_from_zero() -> None:
    spec = note_tool().spec
    scaled = at_scale(spec, choose_scale(spec, call_seconds=0.01))
    assert scaled.timeout_policy.seconds < spec.timeout_policy.seconds
    assert scaled.settle_window < spec.settle_window
    assert scaled.settle_window < scaled.reconcile_within < spec.reconcile_within
    assert scaled.retry_policy.max_attempts == spec.retry_policy.max_attempts
    slow = choose_scale(spec, call_seconds=3600.0)
    assert slow.timeout == spec.timeout_policy.seconds


def test_results_stand_in_the_order_of_the_cases_however_they_end() -> None:
    def case(number: int, ready: Callable[[], bool]) -> Case[int]:
        yield ready
        return number

    ended: list[int] = []
    cases = [
        case(1, lambda: 2 in ended),
        case(2, lambda: True),
        case(3, lambda: 1 in ended),
    ]
    assert run_cases(cases, lanes=2, on_done=ended.append) == [1, 2, 3]
    assert ended == [2, 1, 3]


def test_when_one_case_fails_the_others_are_closed() -> None:
    closed = []

    def endless() -> Case[None]:
        try:
            while True:
                yield lambda: False
        finally:
            closed.append("endless")

    def failing() -> Case[None]:
        yield lambda: True
        raise RuntimeError("no more")

    left_open = endless()
    with pytest.raises(RuntimeError, match="no more"):
        run_cases([left_open, failing()], lanes=2)
    assert closed == ["endless"]


def test_every_finding_that_is_planted_is_explained_in_the_how_to_page() -> None:
    page = HOW_TO.read_text()
    planted = {name for found in PLANTED.values() for name in found}
    explained = {*planted, "key_is_ignored", "survives_rollback", "no_effect_seen"}
    assert [name for name in explained if f"`{name}`" not in page and "." not in name] == []


# -- Children -------------------------------------------------------------------------


def _end_of(child: Child) -> None:
    wait_until(lambda: child.has_ended, what="the child has ended")


def test_a_connection_of_the_parent_looks_closed_to_a_child_and_stays_open(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with ours, theirs:
            log = tmp_path / "child.log"
            child = Child(lambda: print(repr(ours.recv(1)), flush=True), log=log)
            _end_of(child)
            assert child.said.strip() == "b''"
            theirs.sendall(b"!")
            assert ours.recv(1) == b"!"


@pytest.mark.django_db(transaction=True)
def test_a_child_has_a_database_connection_of_its_own_and_leaves_the_parents_alone(
    tmp_path: Path,
) -> None:
    def backend() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    before = backend()
    child = Child(lambda: print(backend(), flush=True), log=tmp_path / "child.log")
    _end_of(child)
    assert int(child.said) != before
    assert backend() == before


def test_a_child_that_raises_has_failed_and_says_what(tmp_path: Path) -> None:
    def work() -> None:
        raise RuntimeError("out of paper")

    child = Child(work, log=tmp_path / "child.log")
    _end_of(child)
    assert child.has_failed
    assert "out of paper" in child.said


def test_a_killed_child_is_no_failed_one(tmp_path: Path) -> None:
    child = Child(lambda: time.sleep(60), log=tmp_path / "child.log")
    child.kill()
    assert child.has_ended
    assert not child.has_failed


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this system does not end children")
def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    def work() -> None:
        own = Child(lambda: time.sleep(60), log=tmp_path / "grandchild.log")
        print(own.pid, flush=True)
        time.sleep(60)

    child = Child(work, log=tmp_path / "child.log")
    wait_until(lambda: child.said.endswith("\n"), what="there is a grandchild")
    grandchild = int(child.said)
    os.kill(grandchild, 0)
    child.kill()
    wait_until(lambda: not _lives(grandchild), what="the grandchild has ended")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False

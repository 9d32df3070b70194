"""Worker rows: what this process says of itself, and how others are known to have ended."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from agentops.management.commands.doctor import examine
from runs import incarnation, workers
from runs.access import OPERATIONS_RECONCILE, Actor, operator
from runs.engine import advance
from runs.errors import InvalidInput, NotPermitted
from runs.incarnation import start_of, this_place, why_gone
from runs.models import AgentRun, StepAttempt, ToolOperation, Worker
from runs.worker_ends import (
    KEPT,
    EndedBy,
    SaidEnds,
    UnknownWorker,
    WorkerSeenAlive,
    end,
    end_child,
    end_gone_neighbours,
    end_workers,
    forget_old,
    standing,
)
from tests.database.admin_pages import HOSTILE, browser_of, list_of, person
from tests.database.kit import (
    ON_DATABASE,
    another_connection,
    ask,
    call_once,
    change,
    scripted_tool,
)
from tests.processes import is_stopped, wait_until
from tools import Call, EffectType, Timeout, tool
from tools.execution import execute, in_flight, wait_until_back
from tools.registry import get_tool

pytestmark = ON_DATABASE
WITH_USERS = pytest.mark.django_db(transaction=True)
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="who lives is read from /proc")

Start = Callable[..., AgentRun]
LEASE = 30.0
LONG_AGO = timedelta(seconds=10 * LEASE)
SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.fixture(autouse=True)
def _lease(settings: Settings) -> None:
    settings.AGENTOPS_LEASE_SECONDS = LEASE


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> str:
    """This process, as if it had just started: the name that it works under."""
    monkeypatch.setattr(workers, "_me", workers._Me())
    return workers._me.name


@pytest.fixture
def other() -> Iterator["subprocess.Popen[bytes]"]:
    """Another living process of this machine."""
    with subprocess.Popen(SLEEP) as process:
        yield process
        process.kill()


def a_worker(name: str = "w", *, seen: timedelta = LONG_AGO, **facts: Any) -> Worker:
    """A worker of this machine whose row says that it is this very process."""
    place = this_place()
    here: dict[str, Any] = {
        "host": place.host,
        "boot_id": place.boot_id,
        "pid_namespace": place.pid_namespace,
        "pid": os.getpid(),
        "pid_started": start_of(os.getpid()),
    }
    worker = Worker.objects.create(name=name, **here | facts)
    Worker.objects.filter(name=name).update(last_seen_at=Now() - seen)
    return worker


def a_call(*, seconds: float) -> Call:
    return Call(
        operation_id="op_1",
        idempotency_key="op_1",
        fence_token=1,
        attempt=1,
        run_id="run_1",
        step_number=1,
        arguments={},
        deadline=datetime.now(UTC) + timedelta(seconds=seconds),
        expires_at_monotonic=time.monotonic() + seconds,
    )


def how_it_ended(name: str = "w") -> str:
    return Worker.objects.get(name=name).ended_by


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


# -- Whether a process is gone ------------------------------------------------------------------


@ON_LINUX
def test_a_living_process_is_not_gone(other: "subprocess.Popen[bytes]") -> None:
    for pid in (os.getpid(), other.pid, 1):
        started = start_of(pid)
        assert started is not None
        assert why_gone(pid=pid, started=started) is None


@ON_LINUX
def test_an_id_that_passed_to_another_process_shows_the_first_one_gone() -> None:
    mine = start_of(os.getpid())
    assert mine is not None
    assert "another one" in (why_gone(pid=os.getpid(), started=mine - 1) or "")


@ON_LINUX
def test_a_stopped_process_is_not_gone(other: "subprocess.Popen[bytes]") -> None:
    started = start_of(other.pid)
    assert started is not None
    other.send_signal(signal.SIGSTOP)
    wait_until(lambda: is_stopped(other.pid), what="it stands still")
    assert why_gone(pid=other.pid, started=started) is None


@ON_LINUX
def test_a_process_that_ended_is_gone_before_and_after_it_is_collected(
    other: "subprocess.Popen[bytes]",
) -> None:
    started = start_of(other.pid)
    assert started is not None
    other.kill()
    wait_until(lambda: is_zombie(other.pid), what="it has ended")
    assert "not yet collected" in (why_gone(pid=other.pid, started=started) or "")
    other.wait()
    assert why_gone(pid=other.pid, started=started) == f"no process {other.pid}"


@ON_LINUX
def test_a_process_whose_first_thread_ended_goes_on() -> None:
    """Its state reads as that of a collectable process, while another thread still acts."""
    program = (
        "import ctypes, threading, time;"
        "threading.Thread(target=time.sleep, args=(600,)).start();"
        "print('on', flush=True); ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        wait_until(lambda: is_zombie(process.pid), what="its first thread has ended")
        started = start_of(process.pid)
        assert started is not None
        assert why_gone(pid=process.pid, started=started) is None
        process.kill()


def test_facts_that_cannot_be_read_prove_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A system without /proc."""
    monkeypatch.setattr(incarnation, "_PROC", tmp_path)
    place = this_place()
    assert (place.boot_id, place.pid_namespace, place.is_known) == ("", "", False)
    assert start_of(os.getpid()) is None
    assert why_gone(pid=os.getpid(), started=1) is None
    a_worker(pid=2**22 - 1, pid_started=None)
    assert end_gone_neighbours(me="me") == []


# -- This process -------------------------------------------------------------------------------


def test_a_process_has_its_row_before_it_begins_anything(fresh: str) -> None:
    with workers.at_work() as name:
        row = Worker.objects.get()
    assert name == row.name == fresh
    assert (row.pid, row.pid_started) == (os.getpid(), start_of(os.getpid()))
    place = this_place()
    assert (row.host, row.boot_id, row.pid_namespace) == (
        place.host,
        place.boot_id,
        place.pid_namespace,
    )
    assert standing(row) == "alive"


def test_a_process_has_one_row_however_often_it_works(fresh: str) -> None:
    for _ in range(3):
        with workers.at_work():
            pass
    assert Worker.objects.count() == 1


def test_a_row_that_cannot_be_written_keeps_no_worker_from_working(fresh: str) -> None:
    with another_connection(autocommit=False) as holder:
        holder.execute("LOCK TABLE runs_worker")
        change("SET lock_timeout = '50ms'")
        try:
            with workers.at_work() as name:
                assert name == fresh
        finally:
            change("RESET lock_timeout")
    assert not Worker.objects.exists()
    with workers.at_work():
        assert Worker.objects.get().name == fresh


def test_a_process_that_reported_its_end_begins_nothing_any_more(fresh: str) -> None:
    with workers.at_work():
        pass
    assert workers.report_end()
    assert how_it_ended(fresh) == EndedBy.REPORTED
    with workers.at_work() as name:
        assert name is None
    assert not workers.report_end()


def test_a_process_at_work_reports_no_end(fresh: str) -> None:
    with workers.at_work():
        assert not workers.report_end()
    assert how_it_ended(fresh) == ""
    with workers.at_work() as name:
        assert name == fresh


def test_a_function_past_its_deadline_keeps_its_process_from_reporting_its_end(fresh: str) -> None:
    goes_on, said = threading.Event(), []

    @tool(effect_type=EffectType.READ, timeout_policy=Timeout(seconds=0.1))
    def linger(call: Call) -> None:
        """Linger."""
        goes_on.wait(30)

    with workers.at_work():
        execute(spec=get_tool("linger"), call=a_call(seconds=0.1), on_late=said.append)
    assert in_flight()
    assert not workers.report_end()
    assert how_it_ended(fresh) == ""
    goes_on.set()
    assert wait_until_back(seconds=20)
    assert workers.report_end()


def test_a_row_is_not_made_after_its_end_was_reported(fresh: str) -> None:
    assert not workers.report_end()
    assert not workers._see(workers._me)
    assert not Worker.objects.exists()


# -- Neighbours ---------------------------------------------------------------------------------


@ON_LINUX
def test_a_neighbour_whose_id_passed_to_another_process_is_ended() -> None:
    started = start_of(os.getpid())
    assert started is not None
    a_worker("earlier", pid_started=started - 1)
    a_worker("this very one")
    assert end_gone_neighbours(me="me") == ["earlier"]
    assert how_it_ended("earlier") == EndedBy.SUCCESSOR
    assert Worker.objects.get(name="earlier").evidence.startswith("me found process ")
    assert how_it_ended("this very one") == ""


@ON_LINUX
def test_a_killed_neighbour_is_ended_and_a_stopped_one_is_not(
    other: "subprocess.Popen[bytes]",
) -> None:
    a_worker(pid=other.pid, pid_started=start_of(other.pid))
    other.send_signal(signal.SIGSTOP)
    wait_until(lambda: is_stopped(other.pid), what="it stands still")
    assert end_gone_neighbours(me="me") == []
    other.kill()
    wait_until(lambda: is_zombie(other.pid), what="it has ended")
    assert end_gone_neighbours(me="me") == ["w"]


@ON_LINUX
@pytest.mark.parametrize("fact", ["host", "boot_id", "pid_namespace"])
def test_a_worker_of_another_place_is_left_alone(fact: str) -> None:
    a_worker(pid_started=1, **{fact: "elsewhere"})
    assert end_gone_neighbours(me="me") == []


@ON_LINUX
def test_a_worker_that_was_just_seen_is_left_alone_whatever_the_kernel_shows() -> None:
    """Two machines woken from one memory snapshot look alike to the kernel."""
    a_worker(pid_started=1, seen=timedelta(seconds=LEASE / 2))
    assert end_gone_neighbours(me="me") == []


@ON_LINUX
def test_a_process_does_not_end_itself() -> None:
    a_worker("me", pid_started=1)
    assert end_gone_neighbours(me="me") == []


# -- Children -----------------------------------------------------------------------------------


def child_ended(*, pid: int, pid_started: int | None, alive_for: float = 60.0) -> list[str]:
    return end_child(
        pid=pid,
        pid_started=pid_started,
        alive_for=timedelta(seconds=alive_for),
        evidence="it was ended by SIGKILL",
    )


def test_a_collected_child_is_ended_also_if_it_was_just_seen() -> None:
    worker = a_worker(pid=4242, pid_started=17, seen=timedelta(0))
    assert child_ended(pid=4242, pid_started=17) == ["w"]
    assert how_it_ended() == EndedBy.SUPERVISOR
    worker.refresh_from_db()
    assert worker.evidence == "it was ended by SIGKILL"
    assert child_ended(pid=4242, pid_started=17) == []


def test_a_worker_that_has_a_childs_former_id_is_left_alone() -> None:
    a_worker(pid=4242, pid_started=18)
    assert child_ended(pid=4242, pid_started=17) == []
    assert child_ended(pid=4242, pid_started=None) == []


def test_without_a_start_time_only_a_worker_younger_than_the_child_is_meant() -> None:
    a_worker("older", pid=4242, pid_started=None)
    change("UPDATE runs_worker SET started_at = now() - interval '2 minutes'")
    a_worker("younger", pid=4242, pid_started=None)
    assert child_ended(pid=4242, pid_started=None) == ["younger"]
    assert how_it_ended("older") == ""


# -- Operators ----------------------------------------------------------------------------------


def said_ended(*names: str, **more: Any) -> SaidEnds:
    said: dict[str, Any] = {"actor": operator("robin"), "evidence": "it is switched off"}
    return end_workers(names=names, **said | more)


def test_an_operators_word_is_kept_with_name_and_reason() -> None:
    a_worker()
    said = said_ended("w")
    assert (said.ended, said.already_ended, said.due) == (["w"], [], [])
    row = Worker.objects.get()
    assert (row.ended_by, row.evidence) == (EndedBy.OPERATOR, "robin: it is switched off")
    assert ask("SELECT ended_at <= now() AND ended_at > now() - interval '1 min' FROM runs_worker")


def test_an_end_is_said_only_by_those_who_may() -> None:
    a_worker()
    with pytest.raises(NotPermitted):
        said_ended("w", actor=Actor(name="robin", scopes=frozenset({OPERATIONS_RECONCILE})))
    assert how_it_ended() == ""


@pytest.mark.parametrize("reason", ["", "  ", "x" * 2_001, "\0"])
def test_an_end_needs_a_reason_that_can_be_kept(reason: str) -> None:
    a_worker()
    with pytest.raises(InvalidInput, match="evidence"):
        said_ended("w", evidence=reason)
    assert how_it_ended() == ""


def test_nobody_is_ended_when_one_of_them_lives() -> None:
    a_worker("a")
    a_worker("b", seen=timedelta(seconds=LEASE / 2))
    with pytest.raises(WorkerSeenAlive, match="b was seen"):
        said_ended("a", "b")
    assert (how_it_ended("a"), how_it_ended("b")) == ("", "")
    assert said_ended("a", "b", even_if_alive=True).ended == ["a", "b"]


def test_nobody_is_ended_when_one_of_them_is_unknown() -> None:
    a_worker("a")
    for name in ("c", "\0"):
        with pytest.raises((UnknownWorker, InvalidInput)):
            said_ended("a", name)
    with pytest.raises(InvalidInput, match="give a host"):
        said_ended()
    assert how_it_ended("a") == ""


def test_a_hosts_workers_are_ended_together_and_no_others() -> None:
    a_worker("a", host="one")
    a_worker("b", host="one")
    a_worker("c", host="another")
    assert said_ended("c", host="one").ended == ["a", "b", "c"]
    again = said_ended(host="one")
    assert (again.ended, again.already_ended) == ([], [])


def test_an_end_stands_whoever_else_says_so() -> None:
    a_worker(pid_started=1)
    assert end("w", by=EndedBy.REPORTED, evidence="first")
    before = Worker.objects.get()
    said = said_ended("w")
    assert (said.ended, said.already_ended) == ([], ["w"])
    assert end_gone_neighbours(me="me") == []
    assert not end("w", by=EndedBy.SUPERVISOR, evidence="third")
    after = Worker.objects.get()
    assert (after.ended_at, after.ended_by, after.evidence) == (
        before.ended_at,
        EndedBy.REPORTED,
        "first",
    )


# -- What follows from an end -------------------------------------------------------------------


@pytest.fixture
def waiting(start: Start) -> Callable[[str], AgentRun]:
    """A run with an unknown operation that the named worker sent, due in an hour."""

    scripted_tool(*[TimeoutError("no answer")] * 5)

    def make(worker: str) -> AgentRun:
        run = start(decider=call_once(), tools=("pay",))
        advance(run_id=run.id, owner=worker)
        change(
            "UPDATE runs_agentrun SET wake_at = now() + interval '1 hour',"
            " sweep_at = now() + interval '1 hour' WHERE id = %s",
            run.id,
        )
        assert ToolOperation.objects.get(run=run).status == "UNKNOWN"
        return run

    return make


def is_due(run: AgentRun) -> bool:
    return bool(
        ask("SELECT wake_at <= now() AND sweep_at <= now() FROM runs_agentrun WHERE id=%s", run.id)
    )


@pytest.mark.parametrize("how", ["operator", "supervisor", "successor", "reported"])
def test_what_a_worker_sent_without_a_known_outcome_is_due_once_it_is_known_to_have_ended(
    how: str, waiting: Callable[[str], AgentRun]
) -> None:
    its, anothers = waiting("w"), waiting("another")
    operation = ToolOperation.objects.get(run=its)
    a_worker(pid_started=1)
    match how:
        case "operator":
            assert said_ended("w").due == [operation.id]
        case "supervisor":
            assert child_ended(pid=os.getpid(), pid_started=1) == ["w"]
        case "successor" if sys.platform == "linux":
            assert end_gone_neighbours(me="me") == ["w"]
        case _:
            assert end("w", by=EndedBy.REPORTED, evidence="it said so")
    assert is_due(its)
    assert not is_due(anothers)


def test_a_run_that_somebody_holds_keeps_its_date(waiting: Callable[[str], AgentRun]) -> None:
    run = waiting("w")
    change(
        "UPDATE runs_agentrun SET lease_owner = 'another', lease_expires_at = now()"
        " + interval '1 min' WHERE id = %s",
        run.id,
    )
    a_worker()
    assert said_ended("w").due == []
    assert not is_due(run)


# -- Races --------------------------------------------------------------------------------------


@contextmanager
def meanwhile(statement: str) -> Iterator[None]:
    """Another connection changes the row, and commits once somebody waits for it."""
    with another_connection(autocommit=False) as first, another_connection() as watcher:
        first.execute(statement)

        def commit_when_met() -> None:
            def somebody_waits() -> bool:
                found = watcher.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    " AND datname = current_database()"
                ).fetchone()
                return bool(found and found[0])

            wait_until(somebody_waits, what="the second one waits for the first")
            first.commit()

        thread = threading.Thread(target=commit_when_met)
        thread.start()
        yield
        thread.join()


def test_of_two_that_end_a_worker_at_once_the_first_is_recorded() -> None:
    a_worker()
    with meanwhile(
        "UPDATE runs_worker SET ended_at = now(), ended_by = 'reported', evidence = 'first'"
    ):
        assert not end("w", by=EndedBy.SUPERVISOR, evidence="second")
    assert Worker.objects.get().evidence == "first"


def test_an_operators_word_that_comes_second_changes_nothing() -> None:
    a_worker()
    with meanwhile(
        "UPDATE runs_worker SET ended_at = now(), ended_by = 'reported', evidence = 'first'"
    ):
        said = said_ended("w")
    assert (said.ended, said.already_ended) == ([], ["w"])
    assert Worker.objects.get().evidence == "first"


def test_a_worker_that_is_seen_while_its_end_is_said_is_not_ended() -> None:
    a_worker()
    with (
        meanwhile("UPDATE runs_worker SET last_seen_at = clock_timestamp()"),
        pytest.raises(WorkerSeenAlive),
    ):
        said_ended("w")
    assert how_it_ended() == ""


def test_a_worker_that_is_declared_ended_while_it_says_that_it_lives_learns_of_it(
    fresh: str,
) -> None:
    assert workers._see(workers._me)
    with meanwhile(
        "UPDATE runs_worker SET ended_at = now(), ended_by = 'operator', evidence = 'x'"
    ):
        assert not workers._see(workers._me)


# -- Forgetting ---------------------------------------------------------------------------------


def test_only_workers_that_ended_long_ago_and_that_no_open_step_names_are_forgotten(
    waiting: Callable[[str], AgentRun],
) -> None:
    run = waiting("needed")
    assert StepAttempt.objects.get(step__run=run).worker == "needed"
    long_ago = datetime.now(UTC) - KEPT - timedelta(days=1)
    for name in ("old", "needed"):
        a_worker(name, ended_at=long_ago, ended_by=EndedBy.REPORTED)
    a_worker("recent", ended_at=long_ago + timedelta(days=2), ended_by=EndedBy.REPORTED)
    a_worker("unended", started_at=long_ago)
    assert forget_old() == 1
    assert set(Worker.objects.values_list("name", flat=True)) == {"needed", "recent", "unended"}


# -- Commands -----------------------------------------------------------------------------------


def told(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def refused(*command: str) -> str:
    with pytest.raises(CommandError) as caught:
        told(*command)
    return str(caught.value)


def test_list_workers_tells_the_living_from_the_silent_and_the_ended() -> None:
    a_worker("living", seen=timedelta(0))
    a_worker("mute")
    a_worker("dead")
    end("dead", by=EndedBy.OPERATOR, evidence=f"robin: {HOSTILE}")
    listed = {row["name"]: row for row in json.loads(told("list_workers", "--json"))}
    assert {name: row["standing"] for name, row in listed.items()} == {
        "living": "alive",
        "mute": "silent",
        "dead": "ended",
    }
    assert listed["dead"]["ended_by"] == "operator"
    alive = json.loads(told("list_workers", "--alive", "--json"))
    assert {row["name"] for row in alive} == {"living", "mute"}
    text = told("list_workers")
    assert "\u202e" not in text
    assert "\u0007" not in text


def test_list_workers_says_when_there_are_more_or_none() -> None:
    assert "manage.py up" in told("list_workers")
    a_worker("a")
    a_worker("b")
    assert "There are more" in told("list_workers", "--limit", "1")
    assert "--limit" in refused("list_workers", "--limit", "0")


def test_worker_ended_takes_names_and_a_host(waiting: Callable[[str], AgentRun]) -> None:
    run = waiting("a")
    a_worker("a")
    a_worker("b", host="one")
    answer = json.loads(
        told("worker_ended", "a", "--host", "one", "--evidence", "power cut", "--json")
    )
    operation = ToolOperation.objects.get(run=run)
    assert answer == {"ended": ["a", "b"], "already_ended": [], "due": [operation.id]}
    assert Worker.objects.get(name="b").evidence == "command line: power cut"
    assert "had ended already" in told("worker_ended", "a", "--evidence", "again")
    assert "known to have ended" in told("worker_ended", "--host", "one", "--evidence", "again")


def test_worker_ended_refuses_in_one_sentence() -> None:
    a_worker(seen=timedelta(0))
    assert "--even-if-alive" in refused("worker_ended", "w", "--evidence", "I think so")
    assert "list_workers" in refused("worker_ended", "x", "--evidence", "gone")
    assert "--evidence" in refused("worker_ended", "w")
    assert how_it_ended() == ""
    assert "w has ended." in told("worker_ended", "w", "--even-if-alive", "--evidence", "I saw it")


@WITH_USERS
def test_doctor_counts_workers_and_names_the_way_out_of_silence() -> None:
    a_worker("living", seen=timedelta(0))
    a_worker("dead")
    end("dead", by=EndedBy.REPORTED, evidence="it said so")
    [found] = [finding for finding in examine() if finding.name == "worker ends"]
    assert (found.level, found.detail) == ("ok", "1 alive, 0 silent, 1 ended")
    a_worker("mute")
    [found] = [finding for finding in examine() if finding.name == "worker ends"]
    assert found.level == "warning"
    assert "1 silent" in found.detail
    assert "worker_ended" in found.fix


# -- The admin ----------------------------------------------------------------------------------


def page_of(name: str) -> str:
    return reverse("admin:runs_worker_change", args=[name])


@WITH_USERS
def test_the_admin_lists_workers_and_shows_how_an_end_is_known(
    waiting: Callable[[str], AgentRun],
) -> None:
    run = waiting("mute <b>")
    a_worker("mute <b>")
    a_worker("dead", host="<i>")
    end("dead", by=EndedBy.OPERATOR, evidence=f"robin: {HOSTILE}")
    client = browser_of(person(superuser=True))
    listed = client.get(list_of("worker")).content.decode()
    assert page_of("dead") in listed
    assert page_of("mute <b>") in listed
    for narrowed, shown in (("no", "mute"), ("yes", "dead"), ("x", "")):
        rows = client.get(f"{list_of('worker')}?ended={narrowed}").content.decode()
        found = {name for name in ("mute", "dead") if f"/worker/{name}" in rows}
        assert found == ({shown} if shown else set())
    dead = client.get(page_of("dead")).content.decode()
    assert "An operator said so" in dead
    assert "robin: &lt;script&gt;" in dead
    assert "Has it ended?" not in dead
    mute = client.get(page_of("mute <b>")).content.decode()
    assert "worker_ended &#x27;mute &lt;b&gt;&#x27;" in mute
    assert ToolOperation.objects.get(run=run).id[:11] in mute
    for page in (listed, dead, mute):
        assert "<script>alert" not in page
        assert "<b>" not in page
        assert "<i>" not in page


@WITH_USERS
def test_the_admin_shows_workers_to_those_who_may_see_them_and_changes_none() -> None:
    a_worker()
    assert browser_of(person()).get(list_of("worker")).status_code == 403
    client = browser_of(person("view_worker"))
    assert client.get(page_of("w")).status_code == 200
    assert "Unknown operations" not in client.get(page_of("w")).content.decode()
    assert client.post(page_of("w")).status_code == 405
    assert client.post(f"{page_of('w')}").status_code == 405
    assert client.get(f"{list_of('worker')}?host=x").status_code in {302, 400}
    assert list_of("worker") in client.get(reverse("admin:index")).content.decode()


@WITH_USERS
def test_a_list_of_workers_costs_the_same_for_2_and_for_20() -> None:
    client = browser_of(person(superuser=True))
    counts = []
    for batch in range(2):
        for number in range(2 + 18 * batch):
            a_worker(f"w{batch}.{number}")
        client.get(list_of("worker"))
        with CaptureQueriesContext(connection) as sent:
            client.get(list_of("worker"))
        counts.append(len(sent))
    assert counts[0] == counts[1]

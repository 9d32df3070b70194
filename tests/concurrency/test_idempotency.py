"""Many callers, and processes that end or stand still, under one idempotency key."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from tests.concurrency.gate import gate, go_through_at_once
from tests.crash.conftest import NewLog
from tests.crash.driving import become_a_worker
from tests.crash.forked import Child
from tests.processes import of_this_test, wait_until
from tools import Reconciled
from tools.errors import KeyInFlight, OutcomeUnknown
from tools.idempotency import Answer, idempotent
from tools.liveness import holding
from tools.models import IdempotencyKey, KeyStatus

pytestmark = pytest.mark.timeout(120)

PROCESSES, THREADS = 5, 10


@pytest.fixture
def ledger(transactional_db: None) -> Iterator[None]:
    """A table of ours that effects write to."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE ledger (entry text NOT NULL)")
        yield
        cursor.execute("DROP TABLE ledger")


def entries() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ledger")
        return int(cursor.fetchone()[0])


# -- What the forked processes do ------------------------------------------------


def write() -> str:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO ledger VALUES ('paid')")
    return "paid"


def send(outside: str) -> str:
    """An effect that no transaction of ours undoes."""
    descriptor = os.open(outside, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, b"sent\n")
    os.close(descriptor)
    return "sent"


def call_here() -> str:
    return told(lambda: idempotent(scope="s", key="k", arguments=1, effect=write))


def call_elsewhere(outside: str) -> str:
    return told(
        lambda: idempotent(
            scope="s",
            key="k",
            arguments=1,
            effect=partial(send, outside),
            transactional=False,
            # However sure it is: nobody may believe it of a call that is being carried out.
            recover=Reconciled.not_found,
            settle_window=timedelta(0),
        )
    )


def told(call: Callable[[], Answer]) -> str:
    try:
        answer = call()
    except (KeyInFlight, OutcomeUnknown) as error:
        return type(error).__name__
    return f"{answer.result} {'again' if answer.replayed else 'first'}"


def die_after_writing(log: str) -> None:
    become_a_worker(log)
    idempotent(scope="s", key="k", arguments=1, effect=lambda: (write(), end_by(signal.SIGKILL)))


def die_after_sending(log: str, outside: str) -> None:
    become_a_worker(log)
    idempotent(
        scope="s",
        key="k",
        arguments=1,
        effect=lambda: (send(outside), end_by(signal.SIGKILL)),
        transactional=False,
    )


def stand_still_after_sending(log: str, outside: str) -> None:
    become_a_worker(log)
    print(call_and_stand_still(outside), flush=True)


def call_and_stand_still(outside: str) -> str:
    return told(
        lambda: idempotent(
            scope="s",
            key="k",
            arguments=1,
            effect=lambda: (send(outside), end_by(signal.SIGSTOP))[0],
            transactional=False,
        )
    )


def fork_in_the_middle(log: str) -> None:
    become_a_worker(log)

    def effect() -> str:
        child = os.fork()
        if child == 0:
            with holding(7) as alone:
                print(f"child: {alone}, {in_flight()}", flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        # The server notices the end of the child's session a moment later.
        wait_until(lambda: in_flight() == "(1, 1)", what="the parent's session alone holds a call")
        return "sent"

    idempotent(scope="s", key="k", arguments=1, effect=effect, transactional=False)


def in_flight() -> str:
    """How many sessions hold how many calls, asked on a connection of its own."""
    with psycopg.connect(of_this_test().database_url) as asked:
        found = asked.execute(
            "SELECT count(DISTINCT pid), count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE locktype = 'advisory' AND granted"
            " AND application_name = 'agentops calls in flight'"
        ).fetchone()
    return str(found)


def end_by(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


# -- Laws --------------------------------------------------------------------------


def fifty_at_once(action: Callable[[], str], new_log: NewLog) -> Counter[str]:
    logs = [new_log() for _ in range(PROCESSES)]
    with ExitStack() as started:
        with gate(expected=PROCESSES * THREADS):
            children = [
                started.enter_context(
                    Child(
                        partial(go_through_at_once, action, threads=THREADS, log=str(log)),
                        log=log,
                    )
                )
                for log in logs
            ]
        ended = [child.wait() for child in children]
    said = Counter(line for log in logs for line in log.read_text().splitlines())
    assert ended == [0] * PROCESSES, said
    return said


def test_fifty_concurrent_calls_under_one_key_are_one_effect_of_ours(
    forks: None, ledger: None, new_log: NewLog
) -> None:
    said = fifty_at_once(call_here, new_log)
    assert entries() == 1
    assert said["paid first"] == 1
    assert said["paid first"] + said["paid again"] + said["KeyInFlight"] == PROCESSES * THREADS


def test_fifty_concurrent_calls_under_one_key_are_one_effect_elsewhere(
    forks: None, new_log: NewLog, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    said = fifty_at_once(partial(call_elsewhere, str(outside)), new_log)
    assert outside.read_text() == "sent\n"
    assert said["sent first"] == 1
    assert said["sent first"] + said["sent again"] + said["KeyInFlight"] == PROCESSES * THREADS


def test_a_process_killed_before_its_commit_leaves_nothing_and_frees_the_key(
    forks: None, ledger: None, new_log: NewLog
) -> None:
    log = new_log()
    with Child(die_after_writing, str(log), log=log) as child:
        assert child.wait() == -signal.SIGKILL
    # Its transaction ends when the server notices, which is at once.
    wait_until(lambda: call_here() != "KeyInFlight", what="the key is free")
    assert call_here() == "paid again"
    assert entries() == 1


def test_a_process_killed_after_its_effect_elsewhere_leaves_it_unknown(
    forks: None, new_log: NewLog, tmp_path: Path
) -> None:
    outside, log = tmp_path / "outside", new_log()
    with Child(die_after_sending, str(log), str(outside), log=log) as child:
        assert child.wait() == -signal.SIGKILL
    assert IdempotencyKey.objects.get().status == KeyStatus.RUNNING

    def again() -> str:
        return told(
            lambda: idempotent(
                scope="s",
                key="k",
                arguments=1,
                effect=partial(send, str(outside)),
                transactional=False,
            )
        )

    wait_until(lambda: again() != "KeyInFlight", what="the process is seen as gone")
    assert again() == "OutcomeUnknown"
    assert outside.read_text() == "sent\n"
    assert IdempotencyKey.objects.get().status == KeyStatus.UNKNOWN


def test_a_process_that_stands_still_is_not_taken_for_dead(
    forks: None, new_log: NewLog, tmp_path: Path
) -> None:
    outside, log = tmp_path / "outside", new_log()
    with Child(stand_still_after_sending, str(log), str(outside), log=log) as child:
        child.wait_until_stopped_or_ended()
        assert [call_elsewhere(str(outside)) for _ in range(3)] == ["KeyInFlight"] * 3
        child.go_on()
        assert child.wait() == 0
    assert log.read_text() == "sent first\n"
    assert call_elsewhere(str(outside)) == "sent again"
    assert outside.read_text() == "sent\n"


def test_a_forked_child_neither_uses_nor_ends_the_session_of_its_parent(
    forks: None, new_log: NewLog
) -> None:
    log = new_log()
    with Child(fork_in_the_middle, str(log), log=log) as child:
        assert child.wait() == 0
    assert log.read_text().splitlines() == ["child: True, (2, 2)"]


def test_what_ends_after_it_was_taken_for_dead_is_counted_and_said(
    forks: None, new_log: NewLog, tmp_path: Path
) -> None:
    outside, log = tmp_path / "outside", new_log()
    with Child(stand_still_after_sending, str(log), str(outside), log=log) as child:
        child.wait_until_stopped_or_ended()
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database()"
                " AND application_name = 'agentops calls in flight'"
            )
        # The look-up is wrong, and believed: there are two.
        assert call_elsewhere(str(outside)) == "sent first"
        child.go_on()
        assert child.wait() == 0
    assert log.read_text() == "OutcomeUnknown\n"
    key = IdempotencyKey.objects.get()
    assert (key.status, key.attempt, key.late_results) == (KeyStatus.FINISHED, 2, 1)

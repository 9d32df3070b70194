"""Supervised processes come back, end in order, and never outlive their supervisor."""

import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentops.supervisor import (
    NEVER_RESTART,
    Ended,
    NotRunning,
    Process,
    RestartPolicy,
    Supervisor,
    UnknownProcess,
)

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 20.0
QUICK = RestartPolicy(first_delay=0.05, max_delay=0.1)

WAIT = "import time; time.sleep(600)"
SAY = "print('ready', flush=True); "
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SAY + WAIT
PARENT = (
    "import subprocess, sys, time; "
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    "print(child.pid, flush=True); time.sleep(600)"
)
OWNER = """
import sys, time
from agentops.supervisor import Process, Supervisor
supervisor = Supervisor([Process(name="child", argv=(sys.executable, "-c", sys.argv[1]))])
supervisor.start()
print(supervisor.pid("child"), flush=True)
time.sleep(600)
"""


def test_delays_grow_up_to_their_limit() -> None:
    policy = RestartPolicy(first_delay=1.0, max_delay=5.0)
    assert [policy.delay(failures=n) for n in (1, 2, 3, 4, 500)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert NEVER_RESTART.delay(failures=1) is None


def test_a_killed_process_is_started_again() -> None:
    ends: list[Ended] = []
    with Supervisor([_python("one", WAIT)], restart_policy=QUICK, on_end=ends.append) as supervisor:
        killed = supervisor.pid("one")
        os.kill(killed, signal.SIGKILL)
        fresh = supervisor.wait_for("one", other_than=killed, seconds=PATIENCE)
        assert supervisor.pids == {"one": fresh}
    assert [(end.pid, end.status) for end in ends] == [(killed, -9), (fresh, -15)]
    assert ends[0].restart_in == QUICK.first_delay
    assert ends[1].restart_in is None
    assert "SIGKILL" in str(ends[0])


def test_a_process_that_keeps_failing_is_started_less_and_less_often() -> None:
    ends: queue.Queue[Ended] = queue.Queue()
    policy = RestartPolicy(first_delay=0.01, max_delay=10.0)
    with Supervisor(
        [_python("one", "raise SystemExit(3)")], restart_policy=policy, on_end=ends.put
    ):
        seen = [ends.get(timeout=PATIENCE) for _ in range(4)]
    assert [end.status for end in seen] == [3, 3, 3, 3]
    assert [end.restart_in for end in seen] == [0.01, 0.02, 0.04, 0.08]


def test_without_restarts_an_ended_process_stays_ended() -> None:
    ends: queue.Queue[Ended] = queue.Queue()
    processes = [_python("short", "pass"), _python("long", WAIT)]
    with Supervisor(processes, restart_policy=NEVER_RESTART, on_end=ends.put) as supervisor:
        end = ends.get(timeout=PATIENCE)
        assert (end.name, end.status, end.restart_in) == ("short", 0, None)
        with pytest.raises(NotRunning):
            supervisor.pid("short")
        assert list(supervisor.pids) == ["long"]


def test_lines_of_both_streams_arrive_whole_and_named() -> None:
    lines: queue.Queue[tuple[str, str]] = queue.Queue()
    program = (
        "import sys; print('grüße', flush=True); print('to stderr', file=sys.stderr, flush=True); "
        "print('x' * 100_000, flush=True); print('no end of line', end='')"
    )
    with Supervisor(
        [_python("one", program)],
        restart_policy=NEVER_RESTART,
        on_line=lambda name, line: lines.put((name, line)),
    ):
        said: list[str] = []
        while not said or said[-1] != "no end of line":
            name, line = lines.get(timeout=PATIENCE)
            assert name == "one"
            said.append(line)
    assert said[:2] == ["grüße", "to stderr"]
    assert "".join(said[2:-1]) == "x" * 100_000


def test_workers_have_ended_before_the_rest_is_asked_to() -> None:
    ends: list[str] = []
    slow = (
        "import signal, sys, time; "
        "signal.signal(signal.SIGTERM, lambda *a: (time.sleep(0.5), sys.exit(0))); "
    )
    said: queue.Queue[str] = queue.Queue()
    supervisor = Supervisor(
        [
            _python("web", SAY + WAIT),
            Process(name="worker", argv=(sys.executable, "-c", slow + SAY + WAIT), stop_order=0),
        ],
        on_line=lambda name, line: said.put(name),
        on_end=lambda ended: ends.append(ended.name),
    )
    with supervisor:
        assert {said.get(timeout=PATIENCE), said.get(timeout=PATIENCE)} == {"web", "worker"}
    assert ends == ["worker", "web"]


def test_a_process_that_ignores_the_request_is_killed_after_its_grace() -> None:
    ends: list[Ended] = []
    said: queue.Queue[str] = queue.Queue()
    process = Process(name="one", argv=(sys.executable, "-c", STUBBORN), grace_seconds=0.2)
    with Supervisor(
        [process], on_line=lambda name, line: said.put(line), on_end=ends.append
    ) as supervisor:
        said.get(timeout=PATIENCE)
        assert supervisor.pid("one")
    assert [end.status for end in ends] == [-9]


def test_kill_cuts_a_running_stop_short() -> None:
    said: queue.Queue[str] = queue.Queue()
    process = Process(name="one", argv=(sys.executable, "-c", STUBBORN), grace_seconds=600)
    supervisor = Supervisor([process], on_line=lambda name, line: said.put(line))
    supervisor.start()
    said.get(timeout=PATIENCE)
    supervisor.kill()
    assert supervisor.wait(PATIENCE)
    assert supervisor.pids == {}


def test_what_a_child_started_ends_with_it() -> None:
    said: queue.Queue[str] = queue.Queue()
    with Supervisor(
        [_python("one", PARENT)],
        restart_policy=NEVER_RESTART,
        on_line=lambda name, line: said.put(line),
    ) as supervisor:
        grandchild = int(said.get(timeout=PATIENCE))
        os.kill(supervisor.pid("one"), signal.SIGKILL)
        _until(lambda: not _lives(grandchild))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part is Linux")
def test_children_die_with_a_killed_supervisor() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, STUBBORN], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        assert _lives(child)
        owner.kill()
        _until(lambda: not _lives(child))


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownProcess, match=r"worker-2.*worker-1"):
        Supervisor([_python("worker-1", WAIT)]).pid("worker-2")


def test_a_callback_that_fails_ends_the_children_and_is_reported() -> None:
    def fail(name: str, line: str) -> None:
        raise RuntimeError("the terminal is gone")

    supervisor = Supervisor([_python("one", SAY + WAIT)], on_line=fail)
    supervisor.start()
    with pytest.raises(RuntimeError, match="the terminal is gone"):
        supervisor.wait(PATIENCE)
    assert supervisor.pids == {}


def _python(name: str, program: str) -> Process:
    return Process(name=name, argv=(sys.executable, "-c", program))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that nobody has collected yet is not alive.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)

"""Real processes for tests: workers and beat, started, stopped and killed.

Guarantees: every program ends with the test process, however that ends (on Linux,
where the kernel sees to it), and what it said is shown when a wait for it fails.
Waiting is always for a condition, with a deadline that names what did not happen.

Does not start servers (`servers.py` does) and knows nothing of what the programs do.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from django.conf import settings
from django.db import connection

from agentops import processes
from agentops.embedded.identity import SHIM
from agentops.supervisor import Process, Supervisor

ROOT = Path(__file__).resolve().parent.parent
POLL_SECONDS = 0.02


class DidNotHappen(AssertionError):
    """A condition that a test waited for did not come true in time."""

    def __init__(self, what: str, *, seconds: float, said: str = "") -> None:
        self.what = what
        super().__init__(f"not within {seconds:.0f} s: {what}" + (f"\n{said}" if said else ""))


def wait_until(condition: Callable[[], bool], *, what: str, seconds: float = 20.0) -> None:
    """Return as soon as `condition()` is true. Raises `DidNotHappen`."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise DidNotHappen(what, seconds=seconds)
        time.sleep(POLL_SECONDS)


def is_stopped(pid: int) -> bool:
    """Whether a SIGSTOP has taken effect on the process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended, perhaps between the opening and the reading
    return stat.rpartition(")")[2].split()[0] == "T"


@dataclass(frozen=True)
class Servers:
    """The database and the broker that programs are pointed at."""

    database_url: str
    broker_url: str


def of_this_test() -> Servers:
    """The servers that all tests share, with the test database in the place of the real one."""
    url = in_database(settings.DATABASE_URL, str(connection.settings_dict["NAME"]))
    return Servers(database_url=url, broker_url=settings.CELERY_BROKER_URL)


def in_database(url: str, name: str) -> str:
    """The libpq URL with another database in it."""
    return re.sub(r"^(postgres(?:ql)?://[^/?]*)(?:/[^?]*)?", rf"\g<1>/{name}", url)


def environment(
    servers: Servers,
    *,
    apps: str = "tests.crash.faultapp",
    lease_seconds: float = 1.0,
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a program that works on `servers`, on top of this process's own."""
    return {
        **os.environ,
        "DATABASE_URL": servers.database_url,
        "CELERY_BROKER_URL": servers.broker_url,
        "AGENTOPS_APPS": apps,
        "AGENTOPS_LEASE_SECONDS": str(lease_seconds),
        "AGENTOPS_SWEEP_SECONDS": "0.5",
        "AGENTOPS_WORKER_CONCURRENCY": "4",
        "PYTHONUNBUFFERED": "1",
        **(more or {}),
    }


class Program:
    """One real process. To be started from the main thread: it ends with its starter's thread."""

    def __init__(
        self, *arguments: str, env: Mapping[str, str], log: Path, name: str = "program"
    ) -> None:
        self.name, self._log = name, log
        guard = ("--parent", str(os.getpid()), "--signal", str(int(signal.SIGKILL)))
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [*SHIM, *guard, "--", sys.executable, *arguments],
                cwd=ROOT,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")[-8000:]

    @property
    def lives(self) -> bool:
        return self._popen.poll() is None

    def kill(self) -> None:
        """SIGKILL, which a stopped process obeys too; returns when it is gone."""
        if self.lives:
            self._popen.kill()
        self._popen.wait()

    def terminate(self) -> None:
        self._popen.terminate()

    def stop(self) -> None:
        """SIGSTOP; returns when it has taken effect."""
        os.kill(self.pid, signal.SIGSTOP)
        self.wait_until_stopped()

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait_until_stopped(self, *, seconds: float = 20.0) -> None:
        wait_until(lambda: is_stopped(self.pid), what=f"{self.name} stands still", seconds=seconds)

    def wait(self, *, seconds: float = 30.0) -> int:
        """The exit status, or the negative number of the signal that ended it."""
        try:
            return self._popen.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise DidNotHappen(f"{self.name} ends", seconds=seconds, said=self.said) from None


def celery_worker(name: str, *, env: Mapping[str, str], log_dir: Path) -> Program:
    """A worker with the arguments that `manage.py up` starts one with."""
    arguments = ("-m", "celery", *processes.worker(name=name))
    return Program(*arguments, env=env, log=log_dir / f"{name}.log", name=name)


def celery_beat(*, env: Mapping[str, str], log_dir: Path) -> Program:
    arguments = ("-m", "celery", *processes.beat(data_dir=log_dir))
    return Program(*arguments, env=env, log=log_dir / "beat.log", name="beat")


class Celery:
    """Workers and beat on one set of servers; what they said is printed at the end."""

    def __init__(self, servers: Servers, *, log_dir: Path, env: Mapping[str, str]) -> None:
        self._env = environment(servers) | dict(env)
        self._log_dir = log_dir
        self._programs: list[Program] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in reversed(self._programs):
            program.kill()
        for program in self._programs:
            # Captured, and shown with a failure alone.
            print(f"-- {program.name} (pid {program.pid}) said:\n{program.said}")

    def worker(self, name: str, **more: str) -> Program:
        """Start a worker; `more` is added to its environment."""
        return self._added(celery_worker(name, env=self._env | more, log_dir=self._log_dir))

    def beat(self) -> Program:
        return self._added(celery_beat(env=self._env, log_dir=self._log_dir))

    def supervised(self) -> Supervisor:
        """A worker and beat under the supervisor of `manage.py up`, to be used in a `with`."""
        programs = {
            "worker": processes.worker(name="worker"),
            "beat": processes.beat(data_dir=self._log_dir),
        }
        return Supervisor(
            Process(
                name=name,
                argv=(sys.executable, "-m", "celery", *arguments),
                environment=self._env,
            )
            for name, arguments in programs.items()
        )

    def manage(self, *arguments: str, seconds: float = 60.0) -> Program:
        """Run a management command to its end, whatever that is."""
        name = arguments[0]
        log = self._log_dir / f"{name}-{len(self._programs)}.log"
        program = self._added(Program("manage.py", *arguments, env=self._env, log=log, name=name))
        program.wait(seconds=seconds)
        return program

    def _added(self, program: Program) -> Program:
        self._programs.append(program)
        return program

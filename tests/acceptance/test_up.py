"""`manage.py up` and `doctor` as a user meets them: real processes, real signals."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from agentops.ports import PortBusy
from agentops.stack import require_ports

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="who lives is read from /proc, and the kernel's part is Linux"
)


class Up:
    """A stack in the foreground of another process, and what it said so far."""

    def __init__(self, environment: dict[str, str], *options: str) -> None:
        self.environment = environment
        self.port = int(environment["PORT"])
        self.flower_port = int(environment["FLOWER_PORT"])
        self.lines: list[dict[str, str]] = []
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--json", *options],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def line_with(self, text: str) -> str:
        """The next line that contains `text`."""
        assert self.process.stdout is not None
        for raw in self.process.stdout:
            said = json.loads(raw)
            self.lines.append(said)
            if text in said["line"]:
                return str(said["line"])
        pytest.fail(f"up ended without saying {text!r}; it said {self.lines}")

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def finish(self) -> int:
        rest = self.process.communicate(timeout=PATIENCE)[0]
        self.lines += [json.loads(line) for line in rest.splitlines()]
        return self.process.returncode


class Stacks:
    """Running stacks of one data directory: a test that ends one leaves the next test another."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._started: list[Up] = []

    def one(self, *options: str) -> Up:
        """The newest that lives, or else a new one."""
        living = [up for up in self._started if up.lives]
        return living[-1] if living else self.another(*options)

    def another(self, *options: str) -> Up:
        up = Up(_environment(self._data_dir), *options)
        self._started.append(up)
        up.line_with("Ctrl-C stops everything")
        return up

    def close(self) -> None:
        for up in self._started:
            if up.lives:
                up.process.send_signal(signal.SIGTERM)
            up.process.communicate(timeout=PATIENCE)


@pytest.fixture(scope="module")
def stacks(stack_dir: Path) -> Iterator[Stacks]:
    started = Stacks(stack_dir)
    yield started
    started.close()


@pytest.fixture
def up(stacks: Stacks) -> Up:
    """One running stack for the tests that do not end it."""
    return stacks.one()


def test_web_answers(up: Up) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{up.port}/healthz") as answer:
        assert answer.status == 200


def test_flower_lets_in_only_who_has_the_login_that_was_printed_once(up: Up) -> None:
    said = [line["line"] for line in up.lines if "login " in line["line"]]
    assert len(said) == 1
    name, _, password = said[0].rpartition("login ")[2].partition(":")
    url = f"http://127.0.0.1:{up.flower_port}/"
    _until(lambda: _status(url) == 401)
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, url, name, password)
    handler = urllib.request.HTTPBasicAuthHandler(passwords)
    with urllib.request.build_opener(handler).open(url) as answer:
        assert answer.status == 200


def test_doctor_names_a_fix_for_everything_that_is_wrong(tmp_path: Path) -> None:
    environment = _environment(tmp_path / "data")
    with socket.create_server(("127.0.0.1", int(environment["PORT"]))):
        said = _manage("doctor", environment=environment)
    assert said.returncode == 1
    lines = said.stdout.splitlines()
    wrong = {one[9:20].strip(): fix for one, fix in pairwise(lines) if one.startswith("error")}
    assert set(wrong) == {"database", "broker", "web port"}
    assert all("→" in fix for fix in wrong.values())
    assert "PORT" in wrong["web port"]
    assert "manage.py up" in said.stdout
    assert "Traceback" not in said.stderr
    assert not (tmp_path / "data").exists()


def test_a_busy_port_is_named_with_the_variable_to_set(
    up: Up, tmp_path: Path, settings: Settings
) -> None:
    changed = {"AGENTOPS_DATA_DIR": str(tmp_path / "data"), "FLOWER_PORT": str(_free_port())}
    refused = _manage("up", environment=up.environment | changed)
    assert refused.returncode != 0
    assert f"Port {up.port} " in refused.stderr
    assert "Set PORT " in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "data").exists()
    settings.PORT, settings.FLOWER_PORT = _free_port(), up.flower_port
    with pytest.raises(PortBusy, match=rf"Port {up.flower_port} .* Set FLOWER_PORT "):
        require_ports()


def test_doctor_finds_a_running_stack_healthy(up: Up) -> None:
    # Workers and sweeps need a moment, and each of these takes as long as a start of Django.
    for _ in range(8):
        status, report = _doctor(up.environment)
        if status == 0:
            break
    assert [check for check in report["checks"] if check["level"] != "ok"] == []
    assert report["ok"] is True
    assert {check["level"] for check in report["checks"]} == {"ok"}
    named = {check["name"] for check in report["checks"]}
    assert {"database", "migrations", "broker", "workers", "sweeps", "disk", "apps"} <= named


def test_a_killed_worker_is_replaced(up: Up) -> None:
    [worker] = _processes(up.environment, "worker-1@")
    os.kill(worker, signal.SIGKILL)
    assert "worker-1 was ended by SIGKILL" in up.line_with("worker-1 ")
    _until(lambda: bool(set(_processes(up.environment, "worker-1@")) - {worker}))


def test_nothing_is_left_after_one_interrupt(up: Up, stacks: Stacks) -> None:
    second = stacks.another("--no-flower")
    up.process.send_signal(signal.SIGINT)
    assert up.finish() == 0
    ended = [line["line"].split()[0] for line in up.lines if "has stopped" in line["line"]]
    assert ended[0] == "worker-1"
    assert set(ended) == {"worker-1", "web", "beat", "flower"}
    assert _processes(up.environment) == []
    # Both share the servers: the end of one must not take them from the other.
    with urllib.request.urlopen(f"http://127.0.0.1:{second.port}/readyz") as answer:
        assert answer.status == 200


def test_nothing_is_left_when_up_is_killed(stacks: Stacks) -> None:
    killed = stacks.one("--no-flower")
    # Itself, web, worker and beat.
    assert len(_processes(killed.environment)) >= 4
    killed.process.kill()
    assert killed.finish() == -signal.SIGKILL
    _until(lambda: _processes(killed.environment) == [])


def test_a_second_interrupt_ends_a_worker_that_does_not_stop(stacks: Stacks) -> None:
    stuck = stacks.one("--no-flower")
    [worker] = _processes(stuck.environment, "worker-1@")
    os.kill(worker, signal.SIGSTOP)
    stuck.process.send_signal(signal.SIGINT)
    stuck.line_with("stopping")
    began = time.monotonic()
    stuck.process.send_signal(signal.SIGINT)
    assert stuck.finish() == 0
    # Its grace is 25 seconds.
    assert time.monotonic() - began < 20
    assert _processes(stuck.environment) == []


def _environment(data_dir: Path) -> dict[str, str]:
    """What a shell would pass on; the ports make the processes of one stack recognisable."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AGENTOPS_", "FLOWER_", "PYTEST_"))
        and name not in {"DATABASE_URL", "CELERY_BROKER_URL"}
    }
    return inherited | {
        "AGENTOPS_DATA_DIR": str(data_dir),
        "PORT": str(_free_port()),
        "FLOWER_PORT": str(_free_port()),
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _manage(*arguments: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def _doctor(environment: dict[str, str]) -> tuple[int, dict[str, Any]]:
    done = _manage("doctor", "--json", environment=environment)
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report


def _processes(environment: dict[str, str], argument: str = "") -> list[int]:
    """The processes of one stack: they, and nobody else, have its port in their environment.

    The embedded servers have an environment of their own; they are known by their directory.
    """
    mark = f"FLOWER_PORT={environment['FLOWER_PORT']}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes()
            ours = mark in (entry / "environ").read_bytes()
        except (OSError, ValueError):
            continue
        if command and ours and argument.encode() in command and b"keeper.py" not in command:
            found.append(int(entry.name))
    return found


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)

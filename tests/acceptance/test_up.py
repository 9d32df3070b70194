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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="who lives is read from /proc, and the kernel's part is Linux"
)


class Up:
    """A stack in the foreground of another process, and what it said so far."""

    def __init__(self, environment: dict[str, str], *, port: int, flower_port: int) -> None:
        self.environment = environment
        self.port = port
        self.flower_port = flower_port
        self.lines: list[dict[str, str]] = []
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--json"],
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

    def finish(self) -> int:
        rest = self.process.communicate(timeout=PATIENCE)[0]
        self.lines += [json.loads(line) for line in rest.splitlines()]
        return self.process.returncode


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up") / "data"


@pytest.fixture(scope="module")
def up(data_dir: Path) -> Iterator[Up]:
    """One running stack for the tests that do not end it."""
    with _started(data_dir) as started:
        yield started


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


def test_a_busy_port_is_named_with_the_variable_to_set(up: Up, tmp_path: Path) -> None:
    environment = up.environment | {"AGENTOPS_DATA_DIR": str(tmp_path / "data")}
    for variable in ("PORT", "FLOWER_PORT"):
        other = {"PORT", "FLOWER_PORT"} - {variable}
        changed = environment | {name: str(_free_port()) for name in other}
        refused = _manage("up", environment=changed)
        assert refused.returncode != 0
        assert f"Port {environment[variable]} " in refused.stderr
        assert f"Set {variable} " in refused.stderr
        assert "Traceback" not in refused.stderr
    assert not (tmp_path / "data").exists()


def test_a_killed_worker_is_replaced(up: Up) -> None:
    [worker] = _processes(up.environment, "worker-1@")
    os.kill(worker, signal.SIGKILL)
    assert "worker-1 was ended by SIGKILL" in up.line_with("worker-1 ")
    _until(lambda: bool(set(_processes(up.environment, "worker-1@")) - {worker}))


def test_nothing_is_left_after_one_interrupt(data_dir: Path, up: Up) -> None:
    with _started(data_dir) as second:
        # Both share the servers: the end of one must not take them from the other.
        second.process.send_signal(signal.SIGINT)
        assert second.finish() == 0
        ended = [line["line"].split()[0] for line in second.lines if "has stopped" in line["line"]]
        assert ended[0] == "worker-1"
        assert set(ended) == {"worker-1", "web", "beat", "flower"}
        assert _processes(second.environment) == []
        with urllib.request.urlopen(f"http://127.0.0.1:{up.port}/readyz") as answer:
            assert answer.status == 200


def test_nothing_is_left_when_up_is_killed(data_dir: Path, up: Up) -> None:
    with _started(data_dir) as started:
        assert len(_processes(started.environment)) == 5
        started.process.kill()
        assert started.finish() == -signal.SIGKILL
        _until(lambda: _processes(started.environment) == [])
        assert up.process.poll() is None


def test_a_second_interrupt_ends_a_worker_that_does_not_stop(data_dir: Path, up: Up) -> None:
    with _started(data_dir) as started:
        [worker] = _processes(started.environment, "worker-1@")
        os.kill(worker, signal.SIGSTOP)
        started.process.send_signal(signal.SIGINT)
        started.line_with("stopping")
        began = time.monotonic()
        started.process.send_signal(signal.SIGINT)
        assert started.finish() == 0
        # Its grace is 25 seconds.
        assert time.monotonic() - began < 20
        assert _processes(started.environment) == []


def test_doctor_names_a_fix_for_everything_that_is_wrong(tmp_path: Path) -> None:
    environment = _environment(tmp_path / "data")
    with socket.create_server(("127.0.0.1", int(environment["PORT"]))):
        status, report = _doctor(environment)
    assert status == 1
    assert report["ok"] is False
    wrong = {check["name"]: check for check in report["checks"] if check["level"] == "error"}
    assert set(wrong) == {"database", "broker", "web port"}
    assert all(check["fix"] for check in wrong.values())
    assert "PORT" in wrong["web port"]["fix"]
    assert not (tmp_path / "data").exists()


def test_doctor_says_what_it_finds_to_people_too(tmp_path: Path) -> None:
    said = _manage("doctor", environment=_environment(tmp_path / "data"))
    assert said.returncode == 1
    assert "manage.py up" in said.stdout
    assert "Traceback" not in said.stderr


@contextmanager
def _started(data_dir: Path) -> Iterator[Up]:
    environment = _environment(data_dir)
    port, flower_port = int(environment["PORT"]), int(environment["FLOWER_PORT"])
    up = Up(environment, port=port, flower_port=flower_port)
    try:
        up.line_with("Ctrl-C stops everything")
        yield up
    finally:
        if up.process.poll() is None:
            up.process.send_signal(signal.SIGTERM)
        up.process.communicate(timeout=PATIENCE)


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

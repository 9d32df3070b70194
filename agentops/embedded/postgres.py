"""The embedded PostgreSQL.

Guarantees durable commits (fsync and synchronous commit are on), no TCP port, a database
`agentops`, and data that is complete or absent: a first start that is interrupted leaves
nothing that a later one would trust.

Who may connect is decided by the socket's directory, which only its owner can enter.
"""

import signal
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql

from agentops.embedded.directories import (
    MIB,
    give_away,
    make_private,
    naming_lack_of_space,
    require_space,
)
from agentops.embedded.errors import DataOfOtherVersion, NoSpace, ServerDidNotStart
from agentops.embedded.identity import Identity, Way, choose_identity, creator, owner, shim
from agentops.embedded.keeper import Plan
from agentops.embedded.placement import Placement, installed_programs, place
from agentops.embedded.server import Server
from agentops.embedded.urls import (
    DATABASE_NAME,
    DATABASE_USER,
    POSTGRES_PORT,
    database_url,
    postgres_socket_dir,
)

_FIRST_START_BYTES = 200 * MIB
_NEEDED_BYTES = 50 * MIB

_SETTINGS = {
    "listen_addresses": "",
    "port": str(POSTGRES_PORT),
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "128MB",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
}
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}


def postgres(data_dir: Path, *, way: Way | None = None) -> Server:
    home = data_dir / "postgres"
    return Server(
        name="PostgreSQL",
        home=home,
        plan=lambda: _plan(data_dir, home=home, way=way),
        is_ready=lambda: _answers(data_dir),
    )


def _plan(data_dir: Path, *, home: Path, way: Way | None) -> Plan:
    fresh = not (home / "data").exists()
    needed = _FIRST_START_BYTES if fresh else _NEEDED_BYTES
    require_space(home, needed_bytes=needed)
    with naming_lack_of_space(home, needed_bytes=needed):
        identity = choose_identity(
            program=installed_programs() / "bin" / "postgres", home=home, way=way
        )
        placement = place(data_dir, home=home, identity=identity)
        if not placement.data.exists():
            _create_cluster(placement, identity=identity, home=home)
        _check_version(placement)
        give_away(placement.data, owner=owner(identity))
        sockets = make_private(postgres_socket_dir(data_dir), owner=owner(identity))
    # No process of this cluster lives, so what they left says nothing. PostgreSQL itself
    # would believe a pid file whose number another program got after a reboot.
    (placement.data / "postmaster.pid").unlink(missing_ok=True)
    names = [f".s.PGSQL.{POSTGRES_PORT}", f".s.PGSQL.{POSTGRES_PORT}.lock"]
    for name in names:
        (sockets / name).unlink(missing_ok=True)
    settings = {**_SETTINGS, "unix_socket_directories": str(sockets)}
    if any((placement.programs / "lib").glob("pg_stat_statements.*")):
        settings["shared_preload_libraries"] = "pg_stat_statements"
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return Plan(
        shim=shim(identity),
        program=[
            str(placement.programs / "bin" / "postgres"),
            "-D",
            str(placement.data),
            *options,
        ],
        environment=_ENVIRONMENT,
        # Fast shutdown, then immediate: the second one costs a recovery at the next start.
        stop=[(signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0)],
        death_signal=signal.SIGINT,
        sockets=[str(sockets / name) for name in names],
    )


def _create_cluster(placement: Placement, *, identity: Identity, home: Path) -> None:
    """Run initdb beside the final place and move the finished cluster there."""
    half_done = placement.unfinished
    uid, as_creator = creator(identity)
    half_done.mkdir(mode=0o700)
    give_away(half_done, owner=uid)
    done = subprocess.run(
        [
            *as_creator,
            "--",
            str(placement.programs / "bin" / "initdb"),
            f"--pgdata={half_done}",
            f"--username={DATABASE_USER}",
            "--auth-local=trust",
            "--auth-host=reject",
            "--encoding=UTF8",
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
        ],
        env=_ENVIRONMENT,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        _explain_failed_initdb(done.stdout + done.stderr, home=home)
    half_done.rename(placement.data)


def _explain_failed_initdb(said: str, *, home: Path) -> None:
    if "No space left on device" in said:
        raise NoSpace(path=home, free_bytes=0, needed_bytes=_FIRST_START_BYTES)
    raise ServerDidNotStart(
        server="PostgreSQL",
        reason="initdb failed",
        log=home / "server.log",
        last_lines=tuple(said.splitlines()[-12:]),
    )


def _check_version(placement: Placement) -> None:
    found = (placement.data / "PG_VERSION").read_text().strip()
    said = subprocess.run(
        [str(installed_programs() / "bin" / "postgres"), "--version"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    expected = said.split()[-1].split(".")[0]
    if found != expected:
        raise DataOfOtherVersion(path=placement.data, found=found, expected=expected)


def _answers(data_dir: Path) -> bool:
    """Whether it takes connections; makes sure that the database exists."""
    conninfo = psycopg.conninfo.make_conninfo(
        database_url(data_dir), dbname="postgres", connect_timeout=5
    )
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            found = connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE_NAME]
            ).fetchone()
            if found is None:
                name = sql.Identifier(DATABASE_NAME)
                connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
    except psycopg.OperationalError:
        return False
    return True

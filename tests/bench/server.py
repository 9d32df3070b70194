"""The PostgreSQL under test, and one empty database per contender on it.

Guarantees that a commit means the same to everybody (`synchronous_commit` and `fsync` are
on, or nothing is measured), and that the databases are dropped again. Other people's work
on the same server is not kept out: it shows in the times, in WAL and in writing commits.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

SHOWN = (
    "server_version",
    "synchronous_commit",
    "fsync",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
)
MUST_BE_ON = ("synchronous_commit", "fsync")


class SettingIsOff(Exception):
    """The server answers a commit before it is on disk, so its speed says nothing."""

    def __init__(self, *, name: str, value: str) -> None:
        super().__init__(f"{name} is {value!r} on this server: set it to 'on' and run again")
        self.name = name
        self.value = value


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that was checked; `url` names the database that administrates the others."""

    url: str
    settings: Mapping[str, str]


def check_server(url: str) -> Server:
    """The server behind `url`; raises SettingIsOff."""
    with psycopg.connect(url, autocommit=True) as connection:
        settings = {name: _setting(connection, name) for name in SHOWN}
    for name in MUST_BE_ON:
        if settings[name] != "on":
            raise SettingIsOff(name=name, value=settings[name])
    return Server(url=url, settings=settings)


@contextmanager
def own_database(server: Server, purpose: str) -> Iterator[str]:
    """The URL of a new, empty database, dropped at the end whoever still uses it.

    Its name holds this process's id, so that two benchmarks can use one server.
    """
    name = f"agentops_bench_{os.getpid()}_{purpose.replace('-', '_')}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield other_url(server.url, dbname=name)
    finally:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )


@contextmanager
def kept_database(
    server: Server, purpose: str, *, fits: Callable[[str], bool]
) -> Iterator[tuple[str, bool]]:
    """The URL of a database that outlives this process, and whether it was there already: one
    that does not fit is made anew, and empty."""
    name = f"agentops_bench_{purpose}"
    url = other_url(server.url, dbname=name)
    with psycopg.connect(server.url, autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        is_kept = known.fetchone() is not None and fits(url)
        if not is_kept:
            for statement in ("DROP DATABASE IF EXISTS {} WITH (FORCE)", "CREATE DATABASE {}"):
                connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
    yield url, is_kept


def other_url(url: str, **changes: str) -> str:
    """`url` with other parameters, in the one form that libpq and SQLAlchemy both read."""
    given = {key: str(value) for key, value in conninfo_to_dict(url).items()} | changes
    user = quote(given.pop("user", ""), safe="")
    password = quote(given.pop("password", ""), safe="")
    name = quote(given.pop("dbname", ""), safe="")
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    return f"postgresql://{login}/{name}?{urlencode(given, quote_via=quote)}"


def _setting(connection: psycopg.Connection, name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    return str(row[0]) if row else ""

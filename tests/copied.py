"""Copies of the migrated test database, for programs that must not share it.

A copy costs a fraction of what migrating an empty database does. It is dropped at the end,
whoever still uses it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
from django.db import connection
from pytest_django import DjangoDbBlocker

from tests.processes import Servers, in_database, of_this_test


@contextmanager
def copied_database(blocker: DjangoDbBlocker) -> Iterator[Servers]:
    """The servers of this test, with the copy in the place of its database."""
    with blocker.unblock():
        servers = of_this_test()
        template, name = connection.settings_dict["NAME"], f"copy_{uuid4().hex[:12]}"
        # Only one that nobody is connected to can be copied.
        _disconnect()
    with psycopg.connect(in_database(servers.database_url, "postgres"), autocommit=True) as at:
        at.execute(f'CREATE DATABASE {name} TEMPLATE "{template}"'.encode())
        try:
            url = in_database(servers.database_url, name)
            yield Servers(database_url=url, broker_url=servers.broker_url)
        finally:
            at.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def at_home_in(servers: Servers, blocker: DjangoDbBlocker) -> Iterator[None]:
    """Inside the block this process works on the copy too."""
    ours = connection.settings_dict["NAME"]
    with blocker.unblock():
        _disconnect()
        connection.settings_dict["NAME"] = servers.database_url.partition("?")[0].rpartition("/")[2]
        try:
            yield
        finally:
            _disconnect()
            connection.settings_dict["NAME"] = ours


def _disconnect() -> None:
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]

"""Statements that the server plans once per connection, whatever their length.

Guarantees: named parameters are numbered once per text, values are bound by the server, and a
statement is prepared at its first use. Meant for the few that every step sends; what else is
asked goes through Django.

Does not open a transaction: in none, a statement is its own commit.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, cast

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections


def fetch_one(sql: str, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The first row. Values are typed by casts in the text; raises psycopg's own errors."""
    return next(iter(fetch_all(sql, values)), None)


def fetch_all(sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """All rows; as above."""
    ours = connections[DEFAULT_DB_ALIAS]
    ours.ensure_connection()
    raw = cast("psycopg.Connection[Any]", ours.connection)
    text, names = _numbered(sql)
    with psycopg.RawCursor(raw) as cursor:
        cursor.execute(text, [values[name] for name in names], prepare=True)
        return cursor.fetchall()


@lru_cache(maxsize=256)
def _numbered(sql: str) -> tuple[bytes, list[str]]:
    """The statement with $1, $2 … and the names behind them.

    Once per shape: psycopg keeps the parsed form of short statements only.
    """
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return _NAMED.sub(number, sql).encode(), names


_NAMED: Final = re.compile(r"%\((\w+)\)s")

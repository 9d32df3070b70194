"""Emptying the test database after a test that committed, quickly.

Django empties tables by TRUNCATE, which makes new files for each of them and its indexes, and
then makes permissions and content types anew: a third of a second, for a handful of rows. Here
only tables that have rows are emptied, row by row, and what migrations made stays.

Guarantees: after a test of one of `DIRECTORIES` no row of it is left. Whoever works with other
processes, which may still be writing, is emptied by TRUNCATE after all: it waits for them.
"""

import functools
from pathlib import Path
from typing import Any, Final

import pytest
from django.db import connection
from django.test import TransactionTestCase

ROOT: Final = Path(__file__).resolve().parent
# Their tests commit from this process alone.
DIRECTORIES: Final = (ROOT / "database", ROOT / "protocol")
# Made by migrations, and looked up by every test.
KEPT: Final = ("django_migrations", "django_content_type", "auth_permission")

_is_quick = False


def pytest_runtest_setup(item: pytest.Item) -> None:
    global _is_quick
    _is_quick = any(item.path.is_relative_to(directory) for directory in DIRECTORIES)


def _empty(case: Any) -> None:
    with connection.cursor() as cursor:
        if not (_is_quick and _is_superuser()):
            found = connection.introspection.django_table_names(only_existing=True)
            names = ", ".join(f'"{name}"' for name in sorted(set(found) - set(KEPT)))
            cursor.execute(f"TRUNCATE {names} CASCADE")
            return
        counts = ", ".join(f'EXISTS (SELECT 1 FROM "{name}")' for name in _tables())
        cursor.execute(f"SELECT {counts}")
        filled = [
            name for name, found in zip(_tables(), cursor.fetchone() or (), strict=True) if found
        ]
        if filled:
            # Foreign keys and the triggers that keep evidence look away.
            deletes = "".join(f'DELETE FROM "{name}";' for name in filled)
            cursor.execute(
                f"SET session_replication_role = replica; {deletes}"
                "SET session_replication_role = origin;"
            )


@functools.cache
def _tables() -> list[str]:
    """As migrated: a test that makes a table of its own has dropped it by now."""
    return [name for name in connection.introspection.table_names() if name not in KEPT]


@functools.cache
def _is_superuser() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('is_superuser') = 'on'")
        return bool((cursor.fetchone() or (False,))[0])


TransactionTestCase._fixture_teardown = _empty  # type: ignore[attr-defined]

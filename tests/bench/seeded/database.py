"""The filled database: made once, kept as long as it fits the code, and used again.

Every function sets Django up, so each belongs in a process of its own.
"""

import hashlib
import time
from datetime import timedelta
from pathlib import Path

import psycopg
from rich.console import Console

from tests.bench.ours import set_up

APPS = "tests.bench.load,tests.bench.seeded.telling"


def stamp(*, copies: int) -> str:
    """Changes with whatever the database was made by."""
    here = Path(__file__).parent
    sources = [*sorted(here.rglob("*.py")), *sorted(here.parents[2].glob("*/migrations/*.py"))]
    text = b"".join(path.read_bytes() for path in sources if path.name != "pages.py")
    return f"{hashlib.sha256(text).hexdigest()[:16]} {copies}"


def is_filled(dsn: str, *, copies: int) -> bool:
    """Whether the database was filled by this very code, to the end."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database"
            " WHERE datname = current_database()"
        ).fetchone()
    return row is not None and row[0] == stamp(copies=copies)


def fill_database(dsn: str, copies: int, steps: int, days: int) -> dict[str, float]:
    """Migrate, tell the stories, copy them over so many `days`, drive one run of so many `steps`,
    roll up.

    Returns seconds by what took them.
    """
    set_up(dsn, apps=APPS)
    from django.core.management import call_command

    from tests.bench.seeded.filling import fill, roll_up_all
    from tests.bench.seeded.stories import tell_all, tell_long

    console, span = Console(stderr=True), timedelta(days=days)
    seconds: dict[str, float] = {}

    def took(what: str, began: float) -> None:
        seconds[what] = round(time.perf_counter() - began, 1)

    call_command("migrate", verbosity=0)
    began = time.perf_counter()
    told = tell_all()
    took("the stories", began)
    began = time.perf_counter()
    fill(dsn, told, copies=copies, span=span, console=console)
    took("copying them", began)
    began = time.perf_counter()
    tell_long(steps)
    took("the long run", began)
    began = time.perf_counter()
    roll_up_all(span=span, console=console)
    took("rolling up", began)
    _sign(dsn, copies=copies)
    return seconds


def _sign(dsn: str, *, copies: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"COMMENT ON DATABASE \"{name}\" IS '{stamp(copies=copies)}'")

"""What the tests of receivers share: effects that write to a ledger, and calls under a key."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from tests.database.kit import ask, change
from tools.idempotency import Answer, idempotent
from tools.models import IdempotencyKey

# Each test commits for real.
ON_TOOLS = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)


@pytest.fixture
def ledger(transactional_db: None) -> Iterator[None]:
    """A table of ours that effects write to."""
    change("CREATE TABLE ledger (entry text NOT NULL)")
    yield
    change("DROP TABLE ledger")


def write(entry: str = "paid", result: Any = "done") -> Callable[[], Any]:
    """An effect that adds one entry to the ledger."""

    def effect() -> Any:
        change("INSERT INTO ledger VALUES (%s)", entry)
        return result

    return effect


def written() -> int:
    return int(ask("SELECT count(*) FROM ledger"))


def never() -> Any:
    """An effect that must not happen."""
    raise AssertionError("it was carried out")


def lose() -> None:
    """An effect whose answer is lost."""
    raise OSError("lost")


def call(effect: Callable[[], Any], **given: Any) -> Answer:
    """A call of one caller, with one key, unless the test says otherwise."""
    named = {"scope": "user 1: pay", "key": "k1", "arguments": {"order": 17}}
    return idempotent(**named | given, effect=effect)


def call_elsewhere(effect: Callable[[], Any], **given: Any) -> Answer:
    return call(effect, transactional=False, **given)


def the_key() -> IdempotencyKey:
    return IdempotencyKey.objects.get()


@contextmanager
def at_it(carry_out: Callable[..., Answer] = call, **given: Any) -> Iterator[None]:
    """Another thread is carrying the call out for as long as the block lasts."""
    begun, may_end = threading.Event(), threading.Event()

    def effect() -> str:
        begun.set()
        assert may_end.wait(timeout=20)
        return "slow"

    def run() -> None:
        try:
            carry_out(effect, **given)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert begun.wait(timeout=20)
        yield
    finally:
        may_end.set()
        thread.join()


def scans(statements: list[str]) -> list[str]:
    """Those that read a table of this app from end to end, though that was made dear."""
    found = []
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        for sql in statements:
            if "tools_" in sql and not sql.startswith("INSERT"):
                cursor.execute(f"EXPLAIN {sql}")
                plan = " | ".join(row[0] for row in cursor.fetchall())
                if "Seq Scan on tools_" in plan:
                    found.append(f"{sql}\n    {plan}")
        cursor.execute("RESET enable_seqscan")
    return found

"""A resource of ours refuses the smaller of two fencing tokens."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tests.database.kit import ask, change
from tests.database.receiving import ON_TOOLS, ledger, write, written
from tests.processes import wait_until
from tools import Call
from tools.errors import InvalidPayload, StaleToken, TransactionNeeded
from tools.fencing import only_newer_call, only_newer_token
from tools.models import FencedResource

__all__ = ["ledger"]

pytestmark = [ON_TOOLS, pytest.mark.usefixtures("ledger")]

THREADS, ROUNDS = 8, 15


def show(token: int, resource: str = "door") -> None:
    with transaction.atomic():
        only_newer_token(resource, token)


def newest(resource: str = "door") -> int:
    return FencedResource.objects.get(resource=resource).token


def test_a_larger_token_passes_and_a_smaller_one_is_refused() -> None:
    show(3)
    show(7)
    with pytest.raises(StaleToken) as caught:
        show(6)
    assert (caught.value.token, caught.value.newest, caught.value.resource) == (6, 7, "door")
    assert "6" in str(caught.value)
    assert "7" in str(caught.value)
    assert newest() == 7


def test_the_holder_may_show_its_token_again() -> None:
    show(7)
    show(7)
    assert newest() == 7


def test_what_a_stale_worker_wrote_is_undone() -> None:
    show(7)

    def write_first() -> None:
        with transaction.atomic():
            write()()
            only_newer_token("door", 6)

    with pytest.raises(StaleToken):
        write_first()
    assert written() == 0


def test_a_refusal_that_is_swallowed_changes_nothing() -> None:
    show(7)
    with transaction.atomic():
        with pytest.raises(StaleToken):
            only_newer_token("door", 6)
        change("INSERT INTO ledger VALUES ('other work')")
    assert newest() == 7


def test_a_token_that_was_rolled_back_was_never_shown() -> None:
    with transaction.atomic():
        only_newer_token("door", 9)
        transaction.set_rollback(True)
    show(1)
    assert newest() == 1


def test_it_is_refused_outside_of_a_transaction() -> None:
    with pytest.raises(TransactionNeeded, match=r"transaction\.atomic"):
        only_newer_token("door", 1)
    assert not FencedResource.objects.exists()


def test_it_is_one_statement() -> None:
    show(1)
    with transaction.atomic(), CaptureQueriesContext(connection) as captured:
        only_newer_token("door", 2)
    assert len(captured.captured_queries) == 1


def test_tokens_of_two_resources_are_not_compared() -> None:
    show(7, "door")
    show(1, "window")


def test_tokens_of_two_runs_are_not_compared_and_of_one_run_they_are() -> None:
    def enter(run_id: str, token: int, resource: str = "") -> None:
        with transaction.atomic():
            only_newer_call(a_call(run_id=run_id, fence_token=token), resource)

    enter("run-1", 7, "door")
    enter("run-2", 1, "door")
    enter("run-1", 1, "window")
    enter("run-1", 2)
    with pytest.raises(StaleToken):
        enter("run-1", 6, "door")
    with pytest.raises(StaleToken):
        enter("run-1", 1)


@pytest.mark.parametrize(
    ("resource", "token", "field"),
    [
        ("", 1, "resource"),
        ("r" * 256, 1, "resource"),
        ("a\0b", 1, "resource"),
        ("\ud800", 1, "resource"),
        ("door", -1, "token"),
        ("door", 2**63, "token"),
        ("door", True, "token"),
        ("door", "7", "token"),
    ],
)
def test_bad_input_names_field_value_and_fix(resource: str, token: int, field: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        show(token, resource)
    assert caught.value.field == field
    assert caught.value.value
    assert caught.value.fix
    assert not FencedResource.objects.exists()


def test_the_largest_values_fit() -> None:
    show(2**63 - 1, "ß" * 255)
    assert newest("ß" * 255) == 2**63 - 1


def test_the_day_it_was_seen_is_written_once_a_day() -> None:
    show(1)
    change("UPDATE tools_fencedresource SET seen_at = now() - interval '23 hours'")
    show(2)
    assert ask("SELECT seen_at < now() - interval '22 hours' FROM tools_fencedresource")
    change("UPDATE tools_fencedresource SET seen_at = now() - interval '25 hours'")
    show(3)
    assert ask("SELECT seen_at > now() - interval '1 hour' FROM tools_fencedresource")


# -- Two connections -------------------------------------------------------------


@pytest.fixture
def elsewhere() -> Iterator[ThreadPoolExecutor]:
    """One further connection, in a thread of its own."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield executor
        executor.submit(lambda: connection.close()).result(timeout=20)


def show_until_it_waits(executor: ThreadPoolExecutor, token: int) -> Future[None]:
    """Show the token on the other connection; returns once that waits for this one."""
    shown = executor.submit(show, token)
    wait_until(
        lambda: bool(ask("SELECT count(*) FROM pg_locks WHERE NOT granted")),
        what="the other connection waits",
    )
    return shown


@pytest.mark.parametrize("known", [True, False])
def test_the_smaller_token_waits_for_the_larger_and_is_refused(
    elsewhere: ThreadPoolExecutor, known: bool
) -> None:
    if known:
        show(1)
    with transaction.atomic():
        only_newer_token("door", 7)
        smaller = show_until_it_waits(elsewhere, 6)
    with pytest.raises(StaleToken):
        smaller.result(timeout=20)


@pytest.mark.parametrize("known", [True, False])
def test_the_larger_token_waits_for_a_smaller_that_came_first(
    elsewhere: ThreadPoolExecutor, known: bool
) -> None:
    if known:
        show(1)
    with transaction.atomic():
        only_newer_token("door", 6)
        larger = show_until_it_waits(elsewhere, 7)
    larger.result(timeout=20)
    assert newest() == 7


def test_the_same_token_waits_too(elsewhere: ThreadPoolExecutor) -> None:
    show(7)
    with transaction.atomic():
        only_newer_token("door", 7)
        larger = show_until_it_waits(elsewhere, 8)
    larger.result(timeout=20)


def test_in_any_race_no_smaller_token_is_written_after_a_larger() -> None:
    change("ALTER TABLE ledger ADD place bigserial, ADD token bigint")
    seeds = random.Random(7)  # the tokens are the same every time, their order is not
    tokens = [[seeds.randrange(40) for _ in range(ROUNDS)] for _ in range(THREADS)]
    refused = []

    def race(mine: list[int]) -> None:
        try:
            for token in mine:
                try:
                    with transaction.atomic():
                        only_newer_token("door", token)
                        change("INSERT INTO ledger (entry, token) VALUES ('race', %s)", token)
                except StaleToken as error:
                    refused.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=race, args=(mine,)) for mine in tokens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    in_order = ask("SELECT array_agg(token ORDER BY place) FROM ledger")
    assert in_order == sorted(in_order)
    assert len(in_order) + len(refused) == THREADS * ROUNDS
    assert refused


def a_call(*, run_id: str, fence_token: int) -> Call:
    return Call(
        operation_id="op",
        idempotency_key="op",
        fence_token=fence_token,
        attempt=1,
        run_id=run_id,
        step_number=1,
        arguments={},
        deadline=datetime.now(UTC),
        expires_at_monotonic=time.monotonic() + 10,
    )

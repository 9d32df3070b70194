"""What is kept of policies, and how a process learns of them."""

import os
from collections.abc import Iterator
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from tests.database.policy_rows import call_of, save_row, thread_of
from tools import policy_store
from tools.models import LONGEST_WINDOW, ToolPolicy
from tools.policy import evaluate, find_stop, known_generation, refresh

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh_process() -> Iterator[None]:
    policy_store.forget()
    yield
    policy_store.forget()


# -- The table -------------------------------------------------------------------------


def test_a_version_is_never_changed_or_removed() -> None:
    row = save_row("big")
    for change in (
        lambda: ToolPolicy.objects.filter(pk=row.pk).update(quorum=2),
        lambda: ToolPolicy.objects.filter(pk=row.pk).update(active=False),
        lambda: ToolPolicy.objects.filter(pk=row.pk).delete(),
    ):
        with pytest.raises(DatabaseError, match="append-only"):
            change()
    assert ToolPolicy.objects.get().quorum == 1


def test_versions_of_a_name_are_one_two_three() -> None:
    save_row("big")
    for version in (1, 3, 0):
        with pytest.raises(IntegrityError):
            save_row("big", version=version)
    save_row("big", version=2)
    save_row("other", version=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"author": ""},
        {"reason": ""},
        {"outcome": "maybe"},
        {"quorum": 0},
        {"approve_by": timedelta(0)},
        {"execute_by": timedelta(seconds=-1)},
        {"window_seconds": 0},
        {"window_seconds": int(LONGEST_WINDOW.total_seconds()) + 1},
        {"window_by": "day"},
        {"outcome": "stop", "when": "amount > 1"},
        {"outcome": "stop", "agent": "support"},
        {"outcome": "stop", "tool": "pay", "provider": "payments"},
        {"outcome": "stop", "window_seconds": 60},
    ],
)
def test_what_makes_no_sense_is_refused_by_the_database(wrong: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError):
        save_row("big", **wrong)


def test_a_smaller_id_never_appears_after_a_larger_one() -> None:
    """Else whoever saw the larger id would never learn of the smaller one."""
    ids = []
    with transaction.atomic():
        ids.append(save_row("first").pk)
        second = thread_of(lambda: ids.append(_save_patiently("second")))
        second.join(timeout=0.3)
        assert second.is_alive()
        assert ToolPolicy.objects.count() == 1
    second.join(timeout=10)
    assert ids == sorted(ids)
    assert len(ids) == 2


def _save_patiently(name: str) -> Any:
    """However long this machine stands still meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '60s'")
    return save_row(name).pk


# -- What a process knows --------------------------------------------------------------


def test_the_first_use_loads_and_no_other_queries() -> None:
    row = save_row("big", outcome="refuse", when="amount > 5")
    assert known_generation() == -1
    with CaptureQueriesContext(connection) as captured:
        assert evaluate(*call_of(amount="6")).outcome == "refuse"
        assert evaluate(*call_of(amount="5")).outcome == "allow"
        find_stop(call_of()[0])
        assert refresh(row.pk) is False
    assert len(captured) == 1
    assert known_generation() == row.pk


def test_a_new_generation_is_loaded_when_it_is_told_of() -> None:
    evaluate(*call_of())
    assert known_generation() == 0
    row = save_row("big", outcome="refuse")
    assert evaluate(*call_of()).outcome == "allow"
    assert refresh(row.pk) is True
    assert evaluate(*call_of()).outcome == "refuse"
    assert (refresh(row.pk), known_generation()) == (False, row.pk)


def test_a_database_that_was_restored_is_believed() -> None:
    """A transaction that is undone stands for the restored backup: the largest id shrinks."""
    with transaction.atomic():
        save_row("big", outcome="refuse")
        assert evaluate(*call_of()).outcome == "refuse"
        transaction.set_rollback(True)
    assert refresh(0) is True
    assert evaluate(*call_of()).outcome == "allow"


def test_the_newest_version_counts_and_a_retired_one_does_not() -> None:
    save_row("big", outcome="refuse")
    save_row("big", outcome="require_approval", version=2)
    assert evaluate(*call_of()).outcome == "require_approval"
    newest = save_row("big", outcome="require_approval", version=3, active=False)
    refresh(newest.pk)
    assert evaluate(*call_of()).outcome == "allow"
    assert known_generation() == newest.pk


def test_what_a_row_says_is_what_is_asked_for() -> None:
    save_row(
        "big",
        groups=["finance", "legal"],
        quorum=3,
        approve_by=timedelta(hours=4),
        execute_by=timedelta(minutes=5),
        escalate_to=["board"],
        escalate_after=timedelta(hours=2),
        remind_after=timedelta(hours=1),
    )
    asked = evaluate(*call_of()).approve
    assert asked is not None
    assert (asked.groups, asked.quorum) == (("finance", "legal"), 3)
    assert (asked.approve_by, asked.execute_by) == (timedelta(hours=4), timedelta(minutes=5))
    assert (asked.escalate_to, asked.escalate_after) == (("board",), timedelta(hours=2))
    assert asked.remind_after == timedelta(hours=1)


@pytest.mark.parametrize("chosen", [{"tool": "pay"}, {"provider": "payments"}, {}])
def test_a_stop_says_who_stopped_what_and_why_and_lifting_it_ends_it(
    chosen: dict[str, str],
) -> None:
    save_row("stop", outcome="stop", author="ada", reason="they double-charge", **chosen)
    spec, _ = call_of()
    told = find_stop(spec)
    assert "ada" in told
    assert "they double-charge" in told
    lifted = save_row("stop", outcome="stop", version=2, active=False, **chosen)
    refresh(lifted.pk)
    assert find_stop(spec) == ""


@pytest.mark.parametrize("chosen", [{"tool": "look"}, {"provider": "mail"}])
def test_a_stop_of_something_else_stops_nothing_here(chosen: dict[str, str]) -> None:
    save_row("stop", outcome="stop", **chosen)
    assert find_stop(call_of()[0]) == ""


def test_a_stop_is_no_part_of_a_decision_or_its_version() -> None:
    before = evaluate(*call_of())
    stopped = save_row("stop", outcome="stop")
    refresh(stopped.pk)
    assert evaluate(*call_of()) == before


def test_threads_that_are_told_at_once_all_go_on_with_the_new_set() -> None:
    evaluate(*call_of())
    row = save_row("big", outcome="refuse")
    outcomes: list[str] = []

    def learn() -> None:
        refresh(row.pk)
        outcomes.append(evaluate(*call_of()).outcome)

    threads: list[Thread] = [thread_of(learn) for _ in range(8)]
    for thread in threads:
        thread.join(timeout=20)
    assert outcomes == ["refuse"] * 8


def test_a_fork_while_a_thread_loads_can_load_itself() -> None:
    with policy_store._loading:
        child = os.fork()
        if child == 0:
            # No query of the child's: its connection is the parent's.
            os._exit(0 if policy_store._loading.acquire(timeout=5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

"""Closed operations are watched: an effect that comes late is an incident, counted once."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import celery
import pytest
from django.db import connection

from runs import events, sweeps, watch
from runs.access import operator
from runs.models import AgentRun, ToolObservation
from runs.resolution import resolve_operation
from runs.state import RunState
from tests.database.kit import (
    KEYED,
    LOST,
    ON_DATABASE,
    PLAIN,
    Script,
    ask,
    call_once,
    drive,
    drive_when_due,
    found,
    incidents,
    let_pass,
    listening,
    operation_edges,
    operation_of,
    scripted_tool,
    verdicts,
)
from tools import Call, EffectType, NotSent, Reconciled, Rejected, external_ref
from tools.registry import isolated_registry

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


NOTHING = Reconciled.not_found()


def _refund(call: Call) -> str:
    external_ref("re_2")
    return "second"


def _repeated(start: Start, *says: Any, **declared: Any) -> tuple[AgentRun, Script]:
    """A run whose call was lost, not found, and sent again under its key; and its look-up."""
    look_up = Script(NOTHING, *says)
    scripted_tool(LOST, _refund, look_up=look_up, **declared)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    assert (run.state, operation_of(run).external_ref) == (RunState.COMPLETED, "re_2")
    return run, look_up


def _rejected(start: Start, *says: Any, **declared: Any) -> tuple[AgentRun, Script]:
    """A run whose unknown call was closed by a person; and its look-up."""
    look_up = Script(NOTHING, *says)
    declared = {"effect": EffectType.NON_IDEMPOTENT_WRITE, "provider": PLAIN} | declared
    scripted_tool(LOST, look_up=look_up, **declared)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    resolve_operation(
        actor=operator(),
        operation_id=operation_of(run).id,
        outcome="rejected",
        evidence="not on the statement",
    )
    drive(run)
    assert operation_of(run).status == "REJECTED"
    return run, look_up


def _watch_due() -> list[Any]:
    """What a sweep and its messages do: whoever is due is looked at."""
    return [watch.watch(operation_id) for operation_id in watch.find_due()]


def _pass_until_watched(run: AgentRun) -> float:
    """Let time go by until the next look; returns how many seconds that were."""
    seconds = ask(
        "SELECT EXTRACT(EPOCH FROM next_watch_at - now())::float8 FROM runs_tooloperation"
        " WHERE run_id = %s",
        run.id,
    )
    assert seconds is not None
    let_pass(seconds=max(0.0, seconds))
    return float(seconds)


# -- Who is watched -----------------------------------------------------------------------------


@pytest.mark.parametrize("close", [_repeated, _rejected])
def test_what_was_sent_again_or_closed_on_a_doubt_is_watched_for_a_day(
    start: Start, close: Callable[..., tuple[AgentRun, Script]]
) -> None:
    run, _ = close(start)
    operation = operation_of(run)
    assert operation.next_watch_at is not None
    assert operation.watch_until is not None
    assert operation.settled_at is not None
    day = timedelta(hours=24)
    assert abs(operation.watch_until - operation.settled_at - day) < timedelta(minutes=1)


@pytest.mark.parametrize("answers", [[7], [Rejected("no")], [NotSent("a"), 7]])
def test_what_was_never_in_doubt_is_not_watched(start: Start, answers: list[Any]) -> None:
    scripted_tool(*answers, look_up=Script())
    run = start(decider=call_once(), tools=("pay",))
    for _ in range(2):
        drive_when_due(run)
    operation = operation_of(run)
    assert operation.settled_at is not None
    assert (operation.next_watch_at, operation.watch_until) == (None, None)


def test_what_was_found_without_a_repeat_is_not_watched(start: Start) -> None:
    scripted_tool(LOST, look_up=Script(found()))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    assert operation_of(run).next_watch_at is None


def test_nobody_watches_what_is_still_open(start: Start) -> None:
    """It is dated when it is sent again; until it is closed, reconciliation asks."""
    look_up = Script(NOTHING)
    scripted_tool(LOST, LOST, look_up=look_up, max_attempts=9)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    assert (operation_of(run).status, operation_of(run).attempts) == ("UNKNOWN", 2)
    let_pass(hours=1)
    assert watch.find_due() == []
    assert watch.watch(operation_of(run).id) is None
    assert len(look_up.calls) == 1


def test_a_closed_operation_is_not_due_before_its_date(start: Start) -> None:
    run, look_up = _repeated(start, NOTHING)
    assert watch.find_due() == []
    _pass_until_watched(run)
    assert watch.find_due() == [operation_of(run).id]
    assert len(look_up.calls) == 1


# -- What is found ------------------------------------------------------------------------------


def test_an_effect_after_a_rejection_is_a_late_commit(start: Start) -> None:
    """Case P2, to the end: it lands although a person had closed the operation."""
    run, _ = _rejected(start, NOTHING, found("landed", "re_1"))
    edges = operation_edges(run)
    _pass_until_watched(run)
    _watch_due()
    assert incidents(run) == []
    _pass_until_watched(run)
    with listening() as heard:
        _watch_due()
    assert incidents(run) == [("LATE_COMMIT", "re_1")]
    assert [event.name for event in heard] == [events.Name.INCIDENT]
    # It is told, and nothing is turned back.
    assert operation_edges(run) == edges
    assert (operation_of(run).status, operation_of(run).result) == ("REJECTED", None)
    assert verdicts(run)[-1] == ("look_up", "committed")


def test_another_effect_beside_the_recorded_one_is_a_duplicate(start: Start) -> None:
    run, _ = _repeated(start, found("the first landed", "re_1"))
    _pass_until_watched(run)
    _watch_due()
    assert incidents(run) == [("DUPLICATE", "re_1")]
    assert operation_of(run).result == "second"


def test_the_recorded_effect_is_not_its_own_duplicate(start: Start) -> None:
    says = [
        found("second", "re_2"),
        Reconciled.committed("both", external_ref="re_1", also=("re_2",)),
        Reconciled.committed("both", external_ref="re_2", also=("re_1", "re_2")),
    ]
    run, _ = _repeated(start, *says)
    for opened in ([], [("DUPLICATE", "re_1")], [("DUPLICATE", "re_1")]):
        _pass_until_watched(run)
        _watch_due()
        assert incidents(run) == opened


def test_the_same_finding_is_counted_once_and_another_one_again(start: Start) -> None:
    says = [found(reference=reference) for reference in ("re_1", "re_1", "re_3")]
    run, _ = _rejected(start, *says)
    for _ in says:
        _pass_until_watched(run)
        _watch_due()
    # The second one is not only late: it is one too many.
    assert incidents(run) == [("LATE_COMMIT", "re_1"), ("DUPLICATE", "re_3")]


@pytest.mark.parametrize(
    "said", [NOTHING, Reconciled.indeterminate("behind"), ValueError("500"), "junk"]
)
def test_a_look_that_finds_nothing_is_written_down_and_goes_on(start: Start, said: Any) -> None:
    run, look_up = _rejected(start, said)
    seen = operation_of(run).observations.count()
    _pass_until_watched(run)
    _watch_due()
    assert (incidents(run), operation_of(run).observations.count()) == ([], seen + 1)
    assert operation_of(run).next_watch_at is not None
    assert len(look_up.calls) == 2


def test_a_look_names_the_same_operation_and_key(start: Start) -> None:
    run, look_up = _repeated(start, NOTHING)
    _pass_until_watched(run)
    _watch_due()
    first, last = look_up.calls
    assert (first.operation_id, first.idempotency_key, first.arguments) == (
        last.operation_id,
        last.idempotency_key,
        last.arguments,
    )


def test_without_a_look_up_late_words_are_still_read(start: Start) -> None:
    """The word came between the reading of the evidence and the close, so nobody told of it."""
    scripted_tool(LOST, effect=EffectType.NON_IDEMPOTENT_WRITE, provider=PLAIN)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    resolve_operation(
        actor=operator(), operation_id=operation_of(run).id, outcome="rejected", evidence="no"
    )
    ToolObservation.objects.create(
        operation_id=operation_of(run).id,
        run_id=run.id,
        source="stale_worker",
        verdict="committed",
        external_ref="re_1",
        attempt=1,
        fence_token=1,
    )
    _pass_until_watched(run)
    _watch_due()
    assert incidents(run) == [("LATE_COMMIT", "re_1")]


# -- When, and by whom --------------------------------------------------------------------------


def test_looks_become_rarer_and_end_with_the_watch(start: Start) -> None:
    run, look_up = _rejected(start, *[NOTHING] * 99)
    until = timedelta(hours=24).total_seconds()
    waits = []
    while operation_of(run).next_watch_at is not None:
        waits.append(_pass_until_watched(run))
        assert len(_watch_due()) == 1
        assert len(waits) < 60
    assert all(40 < wait <= 60 for wait in waits[:2])
    # Half as long again each time, until the end cuts the last one.
    assert all(later >= earlier - 20 for earlier, later in pairwise(waits[:-1]))
    assert waits[-2] > 3600
    assert sum(waits) == pytest.approx(until, abs=300)
    assert len(look_up.calls) == 1 + len(waits) < 25
    let_pass(hours=48)
    assert watch.find_due() == []
    assert watch.watch(operation_of(run).id) is None


def test_the_last_look_is_made_at_the_end_of_the_watch_and_still_counts(start: Start) -> None:
    run, _ = _rejected(start, found("at the very end", "re_1"))
    let_pass(hours=24)
    _watch_due()
    assert incidents(run) == [("LATE_COMMIT", "re_1")]
    assert operation_of(run).next_watch_at is None


def test_a_key_that_is_kept_for_longer_is_watched_for_longer(start: Start) -> None:
    keeps = replace(KEYED, idempotency_retention=timedelta(days=7))
    run, _ = _repeated(start, provider=keeps)
    operation = operation_of(run)
    assert operation.watch_until is not None
    assert operation.first_sent_at is not None
    assert operation.watch_until - operation.first_sent_at >= timedelta(days=7) - timedelta(hours=1)


def test_two_sweeps_at_once_tell_one_watcher(start: Start) -> None:
    run, _ = _rejected(start)
    _pass_until_watched(run)
    together = threading.Barrier(4)
    told: list[list[str]] = []

    def sweep() -> None:
        try:
            connection.ensure_connection()
            together.wait(timeout=10)
            told.append(watch.find_due())
        finally:
            connection.close()

    threads = [threading.Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, told)) == [0, 0, 0, 1]


@pytest.mark.parametrize("second", ["during the look-up", "after it"])
def test_a_doubled_message_asks_once(start: Start, second: str) -> None:
    def look(call: Call) -> Any:
        if second == "during the look-up":
            assert watch.watch(call.operation_id) is None
        return NOTHING

    run, look_up = _rejected(start, look, NOTHING)
    _pass_until_watched(run)
    (due,) = watch.find_due()
    assert watch.watch(due) is not None
    if second == "after it":
        assert watch.watch(due) is None
    assert len(look_up.calls) == 2


def test_a_watcher_that_died_is_followed_by_another(start: Start) -> None:
    run, look_up = _rejected(start, NOTHING)
    _pass_until_watched(run)
    assert len(watch.find_due()) == 1  # its message is lost
    assert watch.find_due() == []
    let_pass(seconds=watch.HELD_SECONDS + 1)
    assert len(_watch_due()) == 1
    assert len(look_up.calls) == 2


def test_a_tool_that_is_not_here_is_asked_about_later_elsewhere(start: Start) -> None:
    run, look_up = _rejected(start, NOTHING)
    _pass_until_watched(run)
    with isolated_registry():
        assert _watch_due() == [None]
    assert operation_of(run).next_watch_at is not None
    _pass_until_watched(run)
    _watch_due()
    assert len(look_up.calls) == 2


def test_a_look_holds_no_lease_and_no_transaction(start: Start) -> None:
    def look(call: Call) -> Any:
        seen.append((AgentRun.objects.get(id=call.run_id).lease_owner, _open_transactions()))
        return NOTHING

    seen: list[tuple[str, int]] = []
    run, _ = _rejected(start, look)
    before = AgentRun.objects.values().get(id=run.id)
    _pass_until_watched(run)
    _watch_due()
    assert seen == [("", 0)]
    after = AgentRun.objects.values().get(id=run.id)
    assert (after["version"], after["fence_token"]) == (before["version"], before["fence_token"])


def test_the_sweep_sends_a_message_for_each_that_is_due(start: Start) -> None:
    run, _ = _rejected(start)
    assert sweeps.run_watches_once() == sweeps.Swept(found=0, hinted=0)
    _pass_until_watched(run)
    assert sweeps.run_watches_once() == sweeps.Swept(found=1, hinted=1)
    assert sweeps.run_watches_once() == sweeps.Swept(found=0, hinted=0)
    celery.current_app.control.purge()


def _open_transactions() -> int:
    return int(
        ask(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND state LIKE 'idle in transaction%%'"
        )
    )

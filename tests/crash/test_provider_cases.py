"""What providers do to a call, and what may be concluded from it.

The providers ignore keys unless a case says otherwise, so that a second send would show.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from runs import watch
from runs.access import operator
from runs.commands import reconcile_now
from runs.errors import StillInFlight
from runs.models import Incident, StepAttempt, ToolOperation
from runs.planning import operation_id
from runs.queries import duplicate_counts
from runs.state import OperationStatus, RunState
from runs.worker_ends import end_workers
from tests.crash.conftest import Providers, StartRun, Work, person_says
from tests.crash.driving import LEFT_TO_A_PERSON
from tests.crash.laws import (
    Books,
    assert_honest,
    assert_left_to_a_person,
    assert_settled,
    wait_until_not_found,
)
from tests.crash.things import things
from tests.processes import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

FOREVER = 1000

LookAgain = Callable[[ToolOperation], None]


@pytest.fixture
def books(providers: Providers) -> Iterator[Books]:
    """Those of a provider that ignores keys."""
    with providers.borrowed(honours_keys=False) as provider:
        yield Books(provider)


@pytest.fixture
def keyed_books(providers: Providers) -> Iterator[Books]:
    with providers.borrowed() as provider:
        yield Books(provider)


@pytest.fixture
def look_again(books: Books, monkeypatch: pytest.MonkeyPatch) -> LookAgain:
    """Watch a closed operation once, as if the time for it had come."""

    def look(operation: ToolOperation) -> None:
        monkeypatch.setenv("KEYLESS_PAYMENTS_URL", books.provider.url)
        watched = ToolOperation.objects.filter(id=operation.id, next_watch_at__isnull=False)
        assert watched.update(next_watch_at=Now()) == 1
        assert watch.find_due() == [operation.id]
        assert watch.watch(operation.id) is not None

    return look


# Scenarios 2 and 3 have the other ways: a time-out, a connection closed and one reset.
LOST: dict[str, dict[str, Any]] = {
    "unreadable": {"kind": "unreadable"},
    "error": {"kind": "error_500", "after_commit": True},
}


@pytest.mark.parametrize("lost", LOST)
def test_an_effect_whose_answer_says_nothing_is_looked_up_and_not_made_again(
    lost: str, books: Books, start_agent: StartRun, work: Work
) -> None:
    """Case P1."""
    books.provider.fault(**LOST[lost])
    run = start_agent("crash_unkeyed")
    assert work(run, at=books.provider).wait() == 0
    assert_settled(run.id, books)
    assert len(books.effects) == len(books.sent) == 1


@pytest.mark.parametrize(
    ("agent", "settles"), [("crash_unkeyed_eager", 2.0), ("crash_unkeyed_lazy", 0.2)]
)
def test_what_did_not_happen_is_sent_again_once_that_is_settled(
    agent: str, settles: float, books: Books, start_agent: StartRun, work: Work
) -> None:
    """Case P2: three look-ups, the last one after the settle window, and the same id."""
    books.provider.fault("reset_before")
    run = start_agent(agent)
    assert work(run, at=books.provider).wait() == 0
    operation = assert_settled(run.id, books)
    assert operation.last_sent_at is not None
    ended_at = operation.observations.get(source="worker", verdict="unknown").observed_at
    asked = [
        datetime.fromisoformat(seen.window["opened_at"])
        for seen in operation.observations.filter(verdict="not_found").order_by("id")
        if seen.window is not None
    ]
    assert len(asked) >= 3
    assert asked[-1] - ended_at >= timedelta(seconds=settles)
    assert ended_at < asked[0] < asked[-1] < operation.last_sent_at
    assert [seen.key for seen in books.sent] == [operation.id] * 2
    assert operation.attempts == 2


def test_what_may_never_be_repeated_is_left_to_a_person_although_it_is_not_found(
    books: Books, start_agent: StartRun, work: Work
) -> None:
    """Case P2 for an IRREVERSIBLE call, which only a person's word sends again."""
    books.provider.fault("reset_before")
    run = start_agent("crash_irreversible")
    assert work(run, at=books.provider).wait() == LEFT_TO_A_PERSON
    operation = assert_left_to_a_person(run.id, books, why="the look-up says not found")
    assert (len(books.effects), len(books.sent)) == (0, 1)
    person_says("not_committed", operation, evidence="they have no trace of it")
    assert work(run, at=books.provider).wait() == 0
    assert_honest(run.id, books)
    assert [seen.key for seen in books.sent] == [operation.id] * 2
    assert len(books.effects) == 1


def test_an_effect_that_comes_after_a_person_closed_it_is_a_late_commit(
    books: Books, start_agent: StartRun, work: Work, look_again: LookAgain
) -> None:
    """Case P2: the look-ups, and the person who believed them, were wrong."""
    books.provider.fault("hold")
    run = start_agent("crash_unkeyed_doubtful")
    worker = work(run, at=books.provider)
    books.provider.wait_until_held()
    operation = ToolOperation.objects.get(run=run)
    wait_until_not_found(operation)
    landed = ToolOperation.objects.exclude(in_flight_until__gt=Now())
    wait_until(landed.filter(id=operation.id).exists, what="nothing is on its way from here")
    worker.kill()
    person_says("rejected", operation, evidence="not found")
    assert work(run, at=books.provider).wait() == 0
    run.refresh_from_db()
    assert run.state == RunState.FAILED
    assert not books.effects
    books.provider.release()
    wait_until(lambda: len(books.effects) == 1, what="the refund lands")
    look_again(operation)
    incident = Incident.objects.get(operation=operation)
    assert incident.kind == Incident.Kind.LATE_COMMIT
    assert incident.external_ref == books.effects[0].refund_id
    assert duplicate_counts().late_commits == 1


def test_a_second_effect_at_a_provider_that_broke_its_word_is_counted(
    books: Books, start_agent: StartRun, work: Work, look_again: LookAgain
) -> None:
    """Case P2: it took longer to settle than declared, which nobody can know, and nobody hides."""
    books.provider.fault("hold")
    run = start_agent("crash_unkeyed")
    assert work(run, at=books.provider).wait() == 0
    operation = assert_settled(run.id, books)
    assert len(books.sent) == 2
    assert not Incident.objects.exists()
    books.provider.release()
    wait_until(lambda: len(books.effects) == 2, what="the first refund lands")
    look_again(operation)
    incident = Incident.objects.get(operation=operation)
    assert incident.kind == Incident.Kind.DUPLICATE
    (other,) = {effect.refund_id for effect in books.effects} - {operation.external_ref}
    assert incident.external_ref == other
    assert duplicate_counts().duplicates == 1


def test_a_look_up_that_lags_behind_the_write_leads_to_no_second_effect(
    books: Books, start_agent: StartRun, work: Work
) -> None:
    """Case P3."""
    books.provider.fault("lose_answer")
    books.provider.fault("lag", method="GET", seconds=600.0, times=5)
    run = start_agent("crash_unkeyed_doubtful")
    assert work(run, at=books.provider).wait() == 0
    operation = assert_settled(run.id, books)
    assert operation.observations.filter(verdict="not_found").count() == 5
    assert len(books.effects) == len(books.sent) == 1


@pytest.mark.parametrize(
    ("kind", "why"),
    [("error_500", "look-up failed"), ("first_page", "only the first page of the list")],
)
def test_a_look_up_that_failed_or_saw_only_a_part_is_no_negative(
    kind: Any, why: str, books: Books, start_agent: StartRun, work: Work
) -> None:
    """Case P4: asked until the objective is over, then a person; and recorded once it is seen."""
    books.provider.place_refund("somebody-elses")
    books = Books(books.provider)
    books.provider.fault("lose_answer")
    books.provider.fault(kind, method="GET", times=FOREVER)
    run = start_agent("crash_unkeyed_listed")
    assert work(run, at=books.provider).wait() == LEFT_TO_A_PERSON
    operation = assert_left_to_a_person(run.id, books, why=why)
    assert operation.look_ups >= 3
    assert not operation.observations.filter(verdict="not_found").exists()
    assert Incident.objects.get(operation=operation).kind == Incident.Kind.OVERDUE
    books.provider.clear_faults()
    reconcile_now(actor=operator(), operation_id=operation.id)
    assert work(run, at=books.provider).wait() == 0
    run.refresh_from_db()
    assert run.state == RunState.COMPLETED
    assert_honest(run.id, books)
    assert len(books.effects) == len(books.sent) == 1


def test_a_key_that_its_provider_has_forgotten_is_not_sent_again(
    keyed_books: Books, start_agent: StartRun, work: Work
) -> None:
    """Case P5: the provider would carry it out anew."""
    keyed_books.provider.fault("lose_answer")
    run = start_agent("crash_expiring_blind")
    worker = work(run, at=keyed_books.provider)
    wait_until(lambda: len(keyed_books.effects) == 1, what="the refund is made")
    keyed_books.provider.forget_keys()
    assert worker.wait() == LEFT_TO_A_PERSON
    why = "the provider may no longer know the idempotency key"
    assert_left_to_a_person(run.id, keyed_books, why=why)
    assert len(keyed_books.effects) == len(keyed_books.sent) == 1


def test_a_key_past_its_retention_is_not_sent_again_although_nothing_happened(
    keyed_books: Books, start_agent: StartRun, work: Work
) -> None:
    """Case P5: it is settled that there is no effect, and a person says what to do."""
    keyed_books.provider.fault("reset_before")
    run = start_agent("crash_expiring")
    assert work(run, at=keyed_books.provider).wait() == LEFT_TO_A_PERSON
    why = "it did not happen, and the provider no longer knows its key"
    assert_left_to_a_person(run.id, keyed_books, why=why)
    assert (len(keyed_books.effects), len(keyed_books.sent)) == (0, 1)


def test_a_key_that_was_used_with_other_arguments_is_refused_and_brought_to_a_person(
    keyed_books: Books, start_agent: StartRun, work: Work
) -> None:
    """Case P7: a refusal of the key is no refusal of the refund."""
    run = start_agent("crash_hasty")
    name = operation_id(run_id=run.id, step_number=1, logical_action="hasty_refund#0")
    assert keyed_books.provider.place_refund("somebody-elses", key=name).is_success
    books = Books(keyed_books.provider)
    assert work(run, at=books.provider).wait() == LEFT_TO_A_PERSON
    operation = assert_left_to_a_person(run.id, books, why="no tries are left")
    assert operation.id == name
    assert {seen.status for seen in books.sent} == {422}
    assert not books.effects
    refused = operation.observations.filter(source="worker")
    assert all("422" in seen.detail and seen.verdict == "unknown" for seen in refused)


def test_an_answer_that_comes_long_after_the_deadline_is_heard_and_nothing_is_sent_meanwhile(
    books: Books, start_agent: StartRun, work: Work
) -> None:
    """Case P8: nobody can look it up, but the one who asked still waits."""
    books.provider.fault("hold")
    run = start_agent("crash_unkeyed_blind_stubborn")
    worker = work(run, at=books.provider)
    books.provider.wait_until_held()
    again = StepAttempt.objects.filter(step__run=run)
    wait_until(lambda: again.count() >= 3, what="the run was looked at twice meanwhile")
    operation = ToolOperation.objects.get(run=run)
    assert operation.status == OperationStatus.UNKNOWN
    assert operation.may_be_in_flight
    books.provider.release()
    assert worker.wait() == 0
    operation = assert_settled(run.id, books)
    assert operation.observations.filter(source="stale_worker", verdict="committed").exists()
    assert len(books.effects) == len(books.sent) == 1


def test_a_thing_that_a_lost_call_had_created_is_adopted(start_agent: StartRun, work: Work) -> None:
    """Case P10: the retry is told that it exists, and what exists is ours."""
    with things() as shelf:
        shelf.lose_answers, shelf.refuse_questions = 1, 1
        run = start_agent("crash_thing")
        assert work(run, at=shelf).wait() == 0
        run.refresh_from_db()
        assert run.state == RunState.COMPLETED
        operation = ToolOperation.objects.get(run=run)
        assert operation.status == OperationStatus.COMMITTED
        assert operation.result == {"name": "lamp", "maker": operation.id}
        assert [status for method, status in shelf.asked if method == "PUT"] == [None, 412]
        assert len(shelf.kept) == 1


def test_a_thing_that_somebody_else_had_created_is_not_adopted(
    start_agent: StartRun, work: Work
) -> None:
    """Case P10: it exists and is not ours, so a person is asked."""
    with things() as shelf:
        shelf.kept["/things/lamp"] = theirs = {"name": "lamp", "maker": "somebody else"}
        run = start_agent("crash_thing")
        assert work(run, at=shelf).wait() == LEFT_TO_A_PERSON
        run.refresh_from_db()
        assert run.state == RunState.WAITING_FOR_RESOLUTION
        operation = ToolOperation.objects.get(run=run)
        assert operation.status == OperationStatus.UNKNOWN
        assert "somebody else made" in operation.error
        assert shelf.kept == {"/things/lamp": theirs}


@pytest.mark.parametrize("agent", ["crash_gift_twice", "crash_two_orders"])
def test_two_actions_that_are_meant_to_be_two_are_two(
    agent: str, books: Books, start_agent: StartRun, work: Work
) -> None:
    """Case M2: the tool is repeatable, or the two have different intents."""
    books.provider.fault("lose_answer")
    run = start_agent(agent)
    assert work(run, at=books.provider).wait() == 0
    run.refresh_from_db()
    assert run.state == RunState.COMPLETED
    first, second = ToolOperation.objects.filter(run=run).order_by("step_number")
    assert (first.repeats_id, second.repeats_id) == (None, None)
    assert [effect.operation_id for effect in books.effects] == [first.id, second.id]
    assert_honest(run.id, books)
    assert duplicate_counts().replays == 0


def test_a_person_cannot_have_it_sent_again_while_its_sender_may_still_wake(
    books: Books, start_agent: StartRun, work: Work
) -> None:
    """Nobody's look into the provider's books can tell what a stopped process will do."""
    run = start_agent("crash_unkeyed_blind_sleepy")
    sleeper = work(run, at=books.provider)
    sleeper.wait_until_stopped_or_ended()
    assert work(run, at=books.provider).wait() == LEFT_TO_A_PERSON
    operation = ToolOperation.objects.get(run=run)
    with pytest.raises(StillInFlight):
        person_says("not_committed", operation, evidence="no trace")
    sleeper.kill()
    name = StepAttempt.objects.get(step__run=run, fence_token=1).worker
    end_workers(actor=operator(), names=[name], evidence="killed it", even_if_alive=True)
    person_says("not_committed", operation, evidence="no trace, and nobody left to leave one")
    assert work(run, at=books.provider).wait() == 0
    assert_honest(run.id, books)
    assert len(books.effects) == len(books.sent) == 1

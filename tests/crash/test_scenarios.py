"""Six ways to lose track of an effect, over a provider that honours keys and one that does not.

Each is met by three tools, declared as their provider deserves: an IDEMPOTENT_WRITE where keys
are honoured, and a NON_IDEMPOTENT_WRITE, with and without a look-up, where they are ignored.
Never two effects, never an end that denies one; and where nothing can be known, a person.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from examples.shop.provider_process import Kind, ProviderProcess
from runs.models import AgentRun, ToolObservation, ToolOperation, Transition
from runs.queries import duplicate_counts
from runs.state import OperationEvent, OperationStatus, RunState
from tests.crash.conftest import Providers, StartRun, Work, person_says
from tests.crash.driving import LEFT_TO_A_PERSON
from tests.crash.laws import (
    Books,
    assert_honest,
    assert_left_to_a_person,
    assert_settled,
    wait_until_at_rest,
    wait_until_finished,
    wait_until_not_found,
)
from tests.processes import Celery, Program, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

NO_LOOK_UP = "the tool has no look-up"
# When a call with a second's deadline would be settled, had its sender ended with it.
WELL_SETTLED = timedelta(seconds=3)
# Until a worker process has started and works.
STARTED = 40.0


@dataclass(frozen=True)
class Declared:
    """A tool as its provider deserves it, by the agent that calls it once."""

    agent: str
    honours_keys: bool = False
    can_look_up: bool = True


KEYED = Declared("crash_refund", honours_keys=True)
SIGHTED = Declared("crash_unkeyed")
# Its provider is declared to take longer to settle than anybody here waits.
DOUBTFUL = Declared("crash_unkeyed_doubtful")
BLIND = Declared("crash_unkeyed_blind", can_look_up=False)
# A look-up that a busy machine makes late is not followed by a second send under the key.
PATIENT = Declared("crash_patient", honours_keys=True)
DECLARED = {
    "keys honoured": PATIENT,
    "keys ignored": SIGHTED,
    "keys ignored and no look-up": BLIND,
}
without_keys = pytest.mark.parametrize(
    "declared", [SIGHTED, BLIND], ids=["keys ignored", "and no look-up"]
)
each_declaration = pytest.mark.parametrize("declared", DECLARED.values(), ids=DECLARED)


@pytest.fixture
def books(declared: Declared, providers: Providers) -> Iterator[Books]:
    """Those of a provider that the declared tool fits."""
    with providers.borrowed(honours_keys=declared.honours_keys) as provider:
        yield Books(provider)


class Shop:
    """Celery workers on both providers, and one run of each declared tool."""

    def __init__(
        self,
        celery: Celery,
        start_agent: StartRun,
        provider: ProviderProcess,
        keyless: ProviderProcess,
    ) -> None:
        self._celery, self._start_agent = celery, start_agent
        self.keyed_books, self.books = Books(provider), Books(keyless)

    def worker(self, name: str, **more: str) -> Program:
        return self._celery.worker(name, KEYLESS_PAYMENTS_URL=self.books.provider.url, **more)

    def start(self) -> None:
        self._celery.beat()
        self.keyed, self.sighted, self.blind = (
            self._start_agent(declared.agent) for declared in (KEYED, SIGHTED, BLIND)
        )

    def fault(self, kind: Kind, **options: Any) -> None:
        """Each run's refund meets it once."""
        self.keyed_books.provider.fault(kind, **options)
        self.books.provider.fault(kind, times=2, **options)

    def wait_until_held(self) -> None:
        self.keyed_books.provider.wait_until_held(seconds=STARTED)
        self.books.provider.wait_until_held(2, seconds=STARTED)

    def release(self) -> None:
        self.keyed_books.provider.release()
        self.books.provider.release()

    def assert_each_made_one_effect(self) -> None:
        """What can be known is recorded, and the rest is with a person, who is told."""
        wait_until_at_rest(self.keyed.id, self.sighted.id, self.blind.id)
        keyed = assert_settled(self.keyed.id, self.keyed_books)
        sighted = assert_settled(self.sighted.id, self.books)
        blind = assert_left_to_a_person(self.blind.id, self.books, why=NO_LOOK_UP)
        assert [one.operation_id for one in self.keyed_books.effects] == [keyed.id]
        assert {one.operation_id for one in self.books.effects} == {sighted.id, blind.id}
        assert sorted(one.key or "" for one in self.books.sent) == sorted([sighted.id, blind.id])


@pytest.fixture
def shop(
    celery: Celery,
    start_agent: StartRun,
    provider: ProviderProcess,
    keyless: ProviderProcess,
) -> Shop:
    return Shop(celery, start_agent, provider, keyless)


def test_a_worker_killed_after_the_commit_and_before_the_record_leaves_one_effect(
    shop: Shop,
) -> None:
    """Scenario 1."""
    shop.fault("hold", after_commit=True)
    doomed = shop.worker("doomed")
    shop.start()
    shop.wait_until_held()
    doomed.kill()
    shop.release()
    shop.worker("replacement")
    shop.assert_each_made_one_effect()


@without_keys
def test_an_answer_that_times_out_after_the_commit_leaves_one_effect(
    declared: Declared, books: Books, start_agent: StartRun, work: Work
) -> None:
    """Scenario 2; `test_answers.py` has it where keys are honoured."""
    books.provider.fault("slow", seconds=60.0)
    _assert_one_effect(declared, books, start_agent, work)


@each_declaration
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_connection_that_drops_after_the_commit_leaves_one_effect(
    reset: bool, declared: Declared, books: Books, start_agent: StartRun, work: Work
) -> None:
    """Scenario 3."""
    books.provider.fault("lose_answer", reset=reset)
    _assert_one_effect(declared, books, start_agent, work)


def _assert_one_effect(declared: Declared, books: Books, start_agent: StartRun, work: Work) -> None:
    """Of a run whose refund was made and sent once; it is recorded, or left to a person."""
    run = start_agent(declared.agent)
    status = work(run, at=books.provider).wait()
    if declared.can_look_up:
        assert status == 0
        assert_settled(run.id, books)
    else:
        assert status == LEFT_TO_A_PERSON
        assert_left_to_a_person(run.id, books, why=NO_LOOK_UP)
    assert len(books.effects) == len(books.sent) == 1


def test_a_worker_stopped_right_before_its_request_and_replaced_sends_nothing_when_it_goes_on(
    shop: Shop,
) -> None:
    """Scenario 4: it stands still before the last look at its lease.

    Where a key makes a repeat harmless, the replacement sends. Where none does, it waits for
    the sender's end or word, and "not sent" is such a word. Who is asked has to say so.
    """
    # No thread more: one that stood still in a sweep would keep the others from sweeping.
    sleeper = shop.worker(
        "sleeper", CRASH_AT="call_starting:all3:SIGSTOP", AGENTOPS_WORKER_CONCURRENCY="3"
    )
    shop.start()
    sleeper.wait_until_stopped(seconds=STARTED)
    shop.worker("replacement")
    wait_until_at_rest(shop.keyed.id, shop.blind.id)
    assert_settled(shop.keyed.id, shop.keyed_books)
    wait_until_not_found(ToolOperation.objects.get(run=shop.sighted), after=WELL_SETTLED)
    assert not shop.books.sent
    sleeper.go_on()
    wait_until_finished(shop.sighted.id)
    assert_settled(shop.sighted.id, shop.books)
    said = ToolObservation.objects.filter(source="stale_worker", fence_token=1)
    wait_until(said.filter(run=shop.blind).exists, what="the sleeper says it of this one too")
    assert set(said.values_list("verdict", flat=True)) == {"not_sent"}
    wait_until_at_rest(shop.blind.id)
    blind = assert_left_to_a_person(shop.blind.id, shop.books, why=NO_LOOK_UP)
    person_says("not_committed", blind, evidence="its sender says that nothing left it")
    wait_until_finished(shop.blind.id)
    assert_honest(shop.blind.id, shop.books)
    assert len(shop.books.effects) == len(shop.books.sent) == 2
    for books in (shop.keyed_books, shop.books):
        assert "1" not in {seen.fence_token for seen in books.sent}


@without_keys
def test_a_request_that_leaves_a_woken_worker_too_late_is_the_only_one(
    declared: Declared, books: Books, start_agent: StartRun, work: Work
) -> None:
    """Scenario 4: it stands still after the last look at its lease, where no check can help.

    So the replacement must not have sent while the one that stands still may go on. What
    settles it is the sleeper's word alone, for both workers live on.
    """
    run = start_agent(f"{declared.agent}_sleepy")
    sleeper = work(run, at=books.provider, stays=True)
    sleeper.wait_until_stopped_or_ended()
    replacement = work(run, at=books.provider, stays=True)
    if declared.can_look_up:
        wait_until(lambda: AgentRun.objects.get(id=run.id).fence_token > 1, what="it took over")
        wait_until_not_found(ToolOperation.objects.get(run=run), after=WELL_SETTLED)
    else:
        wait_until_at_rest(run.id)
        assert_left_to_a_person(run.id, books, why=NO_LOOK_UP)
    assert not books.sent
    sleeper.go_on()
    wait_until_finished(run.id)
    assert [sleeper.wait(), replacement.wait()] == [0, 0], sleeper.said
    run.refresh_from_db()
    assert run.state == RunState.COMPLETED
    assert_honest(run.id, books)
    assert [seen.fence_token for seen in books.sent] == ["1"]
    assert len(books.effects) == 1


@each_declaration
def test_the_same_action_in_a_later_step_is_answered_with_the_recorded_result(
    declared: Declared, books: Books, start_agent: StartRun, work: Work
) -> None:
    """Scenario 5 and case M1: the first answer was lost, so the decider asks once more."""
    books.provider.fault("lose_answer")
    run = start_agent(f"{declared.agent}_twice")
    if work(run, at=books.provider).wait() != 0:
        operation = assert_left_to_a_person(run.id, books, why=NO_LOOK_UP)
        (effect,) = books.effects
        person_says(
            "committed",
            operation,
            evidence="it is in the provider's books",
            external_ref=effect.refund_id,
            result={"refund_id": effect.refund_id, "amount": "42.00"},
        )
        assert work(run, at=books.provider).wait() == 0
    run.refresh_from_db()
    assert run.state == RunState.COMPLETED
    first, second = ToolOperation.objects.filter(run=run).order_by("step_number")
    assert first.id != second.id
    assert second.repeats_id == first.id
    assert second.status == OperationStatus.COMMITTED
    assert second.result == first.result
    assert run.result == second.external_ref
    edges = Transition.objects.filter(operation=second).order_by("id")
    assert list(edges.values_list("event", flat=True)) == [
        OperationEvent.INTEND,
        OperationEvent.REPLAY,
    ]
    assert len(books.effects) == len(books.sent) == 1
    assert_honest(run.id, books)
    counts = duplicate_counts()
    assert (counts.replays, counts.duplicates) == (1, 0)


@pytest.mark.parametrize(
    "declared", [KEYED, DOUBTFUL, BLIND], ids=["keys honoured", "keys ignored", "and no look-up"]
)
def test_an_effect_that_comes_after_the_client_gave_up_and_look_ups_found_nothing_is_the_only_one(
    declared: Declared, books: Books, start_agent: StartRun, work: Work
) -> None:
    """Scenario 6 and case P2: "not found" is not proof."""
    books.provider.fault("hold")
    run = start_agent(declared.agent)
    worker = work(run, at=books.provider)
    books.provider.wait_until_held()
    if declared.can_look_up:
        wait_until_not_found(ToolOperation.objects.get(run=run))
    else:
        assert worker.wait() == LEFT_TO_A_PERSON
    assert not books.effects
    books.provider.release()
    wait_until(lambda: len(books.effects) == 1, what="the refund lands")
    if declared.can_look_up:
        assert worker.wait() == 0
        assert_settled(run.id, books)
    else:
        assert_left_to_a_person(run.id, books, why=NO_LOOK_UP)
    assert len(books.effects) == 1
    # Only under a key is it sent again, and joined to the first.
    assert len({seen.key for seen in books.sent}) == 1
    assert len(books.sent) == 1 or declared.honours_keys

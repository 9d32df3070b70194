"""Many workers ask at once; each law is about two or more real connections."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import celery
import psycopg
import pytest
from django.db import connection

from runs import Finish, flow
from runs.agents import Agent
from runs.concurrency import _LOCK as AGENT_LOCK
from runs.lease import claim
from runs.models import AgentRun, FlowLimit
from runs.turns import take_turn
from tests.database.kit import ON_DATABASE, another_connection, ask, call_once
from tests.processes import of_this_test, wait_until
from tools import Call, EffectType, Limits, Rate, tool

pytestmark = [ON_DATABASE, pytest.mark.timeout(120)]

NAME = "provider bank/acct_1"
WORKERS = 8
WAITS_FOR_A_LOCK = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
"""

Start = Callable[..., AgentRun]
StartMany = Callable[..., list[AgentRun]]


@pytest.fixture(autouse=True)
def _broker() -> Iterator[None]:
    yield
    celery.current_app.control.purge()


@pytest.fixture
def start_many(start: Start) -> StartMany:
    """Start so many runs of one new agent: `start_many(8, concurrency=1, decider=…)`."""
    from runs.access import operator
    from runs.commands import start_run

    def start_all(count: int, **declared: object) -> list[AgentRun]:
        agent = Agent(name="limited", **{"decider": lambda context: Finish(1), **declared})  # type: ignore[arg-type]
        return [start_run(actor=operator(), agent=agent.name).run for _ in range(count)]

    return start_all


class Held:
    """How many hold something at one moment, and how many ever did."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = self.ever = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        with self._lock:
            self.now += 1
            self.ever += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1


def _all_at_once(work: Callable[[int], None], *, workers: int = WORKERS) -> None:
    together = threading.Barrier(workers)
    failed: list[BaseException] = []

    def one(number: int) -> None:
        try:
            connection.ensure_connection()
            together.wait(timeout=10)
            work(number)
        except BaseException as error:
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@contextmanager
def _while_another_one_decides() -> Iterator[psycopg.Connection[object]]:
    """A connection with a transaction that is committed once somebody waits for its lock."""
    with (
        another_connection(autocommit=False) as other,
        psycopg.connect(of_this_test().database_url, autocommit=True) as watching,
    ):

        def somebody_waits() -> bool:
            row = watching.execute(WAITS_FOR_A_LOCK).fetchone()
            return row is not None and row[0] > 0

        yield other
        wait_until(somebody_waits, what="the second one waits for the first")
        other.commit()


# -- Slots --------------------------------------------------------------------------------------


def test_who_waited_for_the_lock_sees_what_the_holder_before_it_took() -> None:
    """Its statement began, and took its snapshot, before the slot was taken."""
    limits = Limits(concurrency=1)
    flow.take(name=NAME, limits=limits, holder="before", seconds=60)
    flow.give_back(["before"])
    answers: list[float | None] = []

    def second() -> None:
        answers.append(flow.take(name=NAME, limits=limits, holder="second", seconds=60))
        connection.close()

    thread = threading.Thread(target=second)
    with _while_another_one_decides() as other:
        other.execute(flow._TAKE, _values(limits, holder="first"))
        thread.start()
    thread.join()
    assert answers[0] is not None
    assert set(FlowLimit.objects.get(name=NAME).slots) == {"first"}


def test_the_first_question_ever_is_asked_by_many_and_answered_once() -> None:
    answers: list[float | None] = []
    _all_at_once(
        lambda number: answers.append(
            flow.take(name=NAME, limits=Limits(concurrency=3), holder=f"{number}", seconds=60)
        )
    )
    assert answers.count(None) == 3
    assert len(FlowLimit.objects.get(name=NAME).slots) == 3


def test_never_do_more_have_a_slot_than_there_are() -> None:
    limits, held = Limits(concurrency=3), Held()

    def work(number: int) -> None:
        for turn in range(12):
            holder = f"{number}.{turn}"
            while flow.take(name=NAME, limits=limits, holder=holder, seconds=60) is not None:
                pass
            with held.one_more():
                ask("SELECT 1")
            flow.give_back([holder])

    _all_at_once(work)
    assert (held.ever, held.most) == (WORKERS * 12, 3)
    assert FlowLimit.objects.get(name=NAME).slots == {}


def test_in_no_period_do_more_leave_than_may() -> None:
    rate = Rate(15, per=timedelta(seconds=1))
    left: list[tuple[float, float]] = []

    def work(number: int) -> None:
        while len(left) < 45:
            before = time.monotonic()
            if (
                flow.take(name=NAME, limits=Limits(rate=rate), holder=f"{number}", seconds=9)
                is None
            ):
                left.append((before, time.monotonic()))

    _all_at_once(work, workers=4)
    for begins, _ in left:
        inside = [one for one in left if one[0] >= begins and one[1] <= begins + 1]
        assert len(inside) <= rate.calls
    # And what may leave does: three periods' worth take hardly more than two.
    assert max(after for _, after in left) - min(before for before, _ in left) < 3.5


def _values(limits: Limits, *, holder: str) -> dict[str, object]:
    return {
        "name": NAME,
        "holder": holder,
        "seconds": 60,
        "concurrency": limits.concurrency,
        "calls": None,
        "per": None,
        "slices": flow.SLICES,
        "farthest": flow.FARTHEST_SECONDS,
    }


# -- Agents -------------------------------------------------------------------------------------


def test_a_claim_that_waited_for_another_one_counts_it(start_many: StartMany) -> None:
    first, second = start_many(2, concurrency=1)
    answers: list[object] = []

    def claim_second() -> None:
        answers.append(claim(run_id=second.id, owner="second"))
        connection.close()

    thread = threading.Thread(target=claim_second)
    with _while_another_one_decides() as other:
        other.execute("SELECT pg_advisory_xact_lock(%s, hashtext('limited'))", [AGENT_LOCK])
        other.execute(
            "UPDATE runs_agentrun SET lease_owner = 'first', fence_token = fence_token + 1,"
            " lease_expires_at = now() + interval '30 s' WHERE id = %s",
            [first.id],
        )
        thread.start()
    thread.join()
    assert answers == [None]


def test_of_an_agent_with_a_limit_of_one_eight_workers_claim_one_run(
    start_many: StartMany,
) -> None:
    runs = start_many(WORKERS, concurrency=1)
    claimed: list[object] = []

    def work(number: int) -> None:
        if (taken := claim(run_id=runs[number].id, owner=f"worker {number}")) is not None:
            claimed.append(taken)

    _all_at_once(work)
    assert len(claimed) == 1
    assert ask("SELECT count(*) FROM runs_agentrun WHERE lease_owner <> ''") == 1


def test_eight_workers_drive_all_runs_of_a_limited_agent_and_never_two_at_once(
    start_many: StartMany,
) -> None:
    held, tried = Held(), itertools.count()

    @tool(effect_type=EffectType.READ, name="pay")
    def pay(call: Call, amount: int) -> int:
        """Look, and stay until others have tried to get in."""
        with held.one_more():
            until = next(tried) + 2 * WORKERS
            wait_until(lambda: next(tried) > until, what="others tried to claim meanwhile")
            return amount

    runs = start_many(6, concurrency=1, decider=call_once(), tools=("pay",))

    def work(number: int) -> None:
        while AgentRun.objects.filter(finished_at=None).exists():
            for run in runs:
                take_turn(hinted=run.id, owner=f"worker {number}")
                next(tried)

    _all_at_once(work)
    assert (held.ever, held.most) == (6, 1)
    assert {run.state for run in AgentRun.objects.all()} == {"COMPLETED"}

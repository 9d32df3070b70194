"""Turns: whose run is driven next, whichever run was hinted at."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import celery
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import Finish, sweeps, turns, wake
from runs.access import operator
from runs.agents import Agent
from runs.commands import start_run
from runs.lease import claim
from runs.models import AgentRun
from runs.turns import choose, take_turn
from tests.database.kit import ON_DATABASE, change
from tests.database.many import add_runs

pytestmark = ON_DATABASE


@pytest.fixture(autouse=True)
def _first_turns() -> Iterator[None]:
    turns._last_turns.clear()
    yield
    celery.current_app.control.purge()


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Who was hinted at, in order."""
    told: list[UUID] = []

    def note(run_id: UUID, *, operation_id: str | None = None) -> bool:
        told.append(run_id)
        return wake.hint(run_id, operation_id=operation_id)

    def note_all(due: Sequence[wake.Hint]) -> int:
        told.extend(one.run_id for one in due)
        return wake.hint_all(due)

    monkeypatch.setattr(turns, "hint", note)
    monkeypatch.setattr(sweeps, "hint_all", note_all)
    return told


def _agent(name: str, **declared: Any) -> str:
    return Agent(name=name, decider=lambda context: Finish(1), **declared).name


def _start(agent: str, *, priority: int = 0, waits: float = 0.0) -> AgentRun:
    run = start_run(actor=operator(), agent=agent).run
    change(
        "UPDATE runs_agentrun SET priority = %s, wake_at = wake_at - make_interval(secs => %s)"
        " WHERE id = %s",
        priority,
        waits,
        run.id,
    )
    return run


def _order(hinted: AgentRun) -> list[UUID]:
    return [candidate.run_id for candidate in choose(hinted.id)]


def _hold(run: AgentRun) -> None:
    assert claim(run_id=run.id, owner="somebody") is not None


# -- Fairness -----------------------------------------------------------------------------------


def test_the_one_run_of_an_agent_is_among_the_first_turns_whoever_has_ten_thousand() -> None:
    flood, drop = _agent("flood"), _agent("drop")
    hinted = _start(flood, waits=3600)
    add_runs(9_999, agent=flood, due_in=-1800)
    only = _start(drop)
    for _ in range(2):
        take_turn(hinted=hinted.id, owner="worker 1")
    only.refresh_from_db()
    assert only.state == "COMPLETED"


def test_agents_take_turns_however_long_the_runs_of_one_have_waited() -> None:
    old, new = _agent("old"), _agent("new")
    hinted, *_ = [_start(old, waits=1000 + n) for n in range(3)]
    for _ in range(3):
        _start(new)
    driven = []
    for _ in range(6):
        take_turn(hinted=hinted.id, owner="worker 1")
        newest = AgentRun.objects.filter(finished_at__isnull=False).latest("finished_at")
        driven.append(newest.agent)
    assert driven == [old, new] * 3


def test_the_agent_with_the_fewest_runs_held_goes_first() -> None:
    busy, idle = _agent("busy"), _agent("idle")
    _hold(_start(busy))
    oldest = _start(busy, waits=100)
    other = _start(idle)
    assert _order(oldest)[:2] == [other.id, oldest.id]


def test_among_equals_without_a_turn_yet_the_one_that_waits_longest_goes_first() -> None:
    one, two = _agent("one"), _agent("two")
    short, long = _start(one, waits=5), _start(two, waits=10)
    assert _order(short)[:2] == [long.id, short.id]


def test_an_agents_run_of_higher_priority_goes_first_however_long_others_wait() -> None:
    agent = _agent("one")
    patient, middle = _start(agent, waits=1000), _start(agent, priority=1, waits=10)
    urgent = _start(agent, priority=9)
    assert _order(patient) == [urgent.id, middle.id, patient.id]


def test_priority_does_not_reach_beyond_the_agent() -> None:
    one, two = _agent("one"), _agent("two")
    _hold(_start(one))
    urgent, plain = _start(one, priority=100, waits=100), _start(two)
    assert _order(urgent)[0] == plain.id


def test_a_sleeping_run_of_higher_priority_holds_up_nobody() -> None:
    agent = _agent("one")
    asleep = _start(agent, priority=9)
    change("UPDATE runs_agentrun SET wake_at = now() + interval '1 h' WHERE id = %s", asleep.id)
    due = _start(agent)
    assert _order(asleep) == [due.id]


def test_a_run_that_vanished_workers_left_behind_has_its_turn() -> None:
    run = _start(_agent("one"))
    _hold(run)
    assert _order(run) == []
    change("UPDATE runs_agentrun SET lease_expires_at = now() - interval '1 s'")
    assert _order(run) == [run.id]


def test_when_nothing_is_due_a_turn_costs_one_query() -> None:
    run = _start(_agent("one"))
    take_turn(hinted=run.id, owner="worker 1")
    with CaptureQueriesContext(connection) as asked:
        assert not take_turn(hinted=run.id, owner="worker 1").claimed
    assert len(asked) == 1


def test_a_hint_of_an_agent_that_is_unknown_here_is_taken_by_its_word() -> None:
    """Such a run is given back; chosen by turns, it would stand before all that is known."""
    known = _start(_agent("known"), waits=10)
    _agent("elsewhere")
    unknown = _start("elsewhere", waits=1000)
    from runs.agents import forget_agents

    forget_agents(["elsewhere"])
    assert _order(unknown)[0] == unknown.id
    assert _order(known) == [known.id]


def test_a_worker_that_others_were_faster_than_goes_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = _agent("one")
    first, second = _start(agent, waits=10), _start(agent)
    found = choose(first.id)
    _hold(first)
    monkeypatch.setattr(turns, "choose", lambda hinted: found)
    take_turn(hinted=first.id, owner="worker 2")
    second.refresh_from_db()
    assert second.state == "COMPLETED"


# -- Limits of agents ---------------------------------------------------------------------------


def test_an_agent_at_its_limit_is_passed_over_and_its_runs_stay_due(hints: list[UUID]) -> None:
    limited, free = _agent("limited", concurrency=1), _agent("free")
    _hold(_start(limited, waits=10))
    waiting, other = _start(limited, waits=5), _start(free)
    assert _order(waiting) == [other.id]
    assert claim(run_id=waiting.id, owner="worker 2") is None
    waiting.refresh_from_db()
    assert waiting.wake_at is not None
    assert waiting.lease_expires_at is None


def test_when_a_place_is_free_the_agents_next_run_is_hinted_at_at_once(hints: list[UUID]) -> None:
    limited = _agent("limited", concurrency=1)
    first, second = _start(limited, waits=10), _start(limited)
    urgent = _start(limited, priority=5)
    take_turn(hinted=first.id, owner="worker 1")
    urgent.refresh_from_db()
    assert urgent.state == "COMPLETED"
    assert hints == [first.id]
    take_turn(hinted=second.id, owner="worker 1")
    assert hints == [first.id, second.id]
    take_turn(hinted=second.id, owner="worker 1")
    assert hints == [first.id, second.id]


def test_the_end_of_a_run_without_a_limit_hints_at_nobody(hints: list[UUID]) -> None:
    agent = _agent("free")
    first, _ = _start(agent), _start(agent)
    take_turn(hinted=first.id, owner="worker 1")
    assert hints == []


def test_a_run_that_waits_takes_no_place() -> None:
    limited = _agent("limited", concurrency=1)
    asleep, due = _start(limited), _start(limited)
    _hold(asleep)
    change(
        "UPDATE runs_agentrun SET lease_owner = '', lease_expires_at = NULL,"
        " wake_at = now() + interval '1 day' WHERE id = %s",
        asleep.id,
    )
    assert claim(run_id=due.id, owner="worker 2") is not None


def test_the_lease_of_a_vanished_worker_takes_no_place() -> None:
    limited = _agent("limited", concurrency=1)
    first, second = _start(limited), _start(limited)
    _hold(first)
    assert claim(run_id=second.id, owner="worker 2") is None
    change(
        "UPDATE runs_agentrun SET lease_expires_at = now() - interval '1 s' WHERE id = %s", first.id
    )
    assert claim(run_id=second.id, owner="worker 2") is not None


def test_what_a_person_settles_waits_for_no_place() -> None:
    limited = _agent("limited", concurrency=1)
    first, second = _start(limited), _start(limited)
    _hold(first)
    assert claim(run_id=second.id, owner="a person", even_if_not_due=True) is not None


def test_a_claim_of_an_agent_without_a_limit_is_one_statement_beside_limited_ones() -> None:
    _agent("limited", concurrency=1)
    run = _start(_agent("free"))
    with CaptureQueriesContext(connection) as asked:
        _hold(run)
    assert len(asked) == 1


# -- The sweep ----------------------------------------------------------------------------------


def test_a_sweep_hints_at_no_more_than_its_part_of_one_agent(
    hints: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "PER_AGENT", 3)
    flood, drop = _agent("flood"), _agent("drop")
    add_runs(20, agent=flood, due_in=-60)
    only = _start(drop)
    assert sweeps.run_once().found == 4
    assert hints.index(only.id) <= 1
    assert sweeps.run_once().found == 0


def test_those_told_before_count_against_their_agents_part_until_they_are_told_again(
    hints: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "PER_AGENT", 3)
    add_runs(20, agent=_agent("flood"), due_in=-60)
    sweeps.run_once()
    told = set(hints)
    change("UPDATE runs_agentrun SET sweep_at = now() - interval '1 s'")
    sweeps.run_once()
    assert set(hints) == told


def test_a_thousand_timers_that_are_due_at_once_are_hinted_at_by_one_sweep() -> None:
    add_runs(1000, agent=_agent("one"), due_in=0)
    assert sweeps.run_once() == sweeps.Swept(found=1000, hinted=1000)


def test_a_sweep_hints_by_priority_within_an_agent(hints: list[UUID]) -> None:
    agent = _agent("one")
    low, high = _start(agent, priority=-5, waits=100), _start(agent, priority=5)
    sweeps.run_once()
    assert hints == [high.id, low.id]


def test_of_a_limited_agent_no_more_are_hinted_at_than_it_has_places(hints: list[UUID]) -> None:
    limited = _agent("limited", concurrency=3)
    held = [_start(limited) for _ in range(6)]
    _hold(held[0])
    assert sweeps.run_once().found == 2


def test_a_run_without_a_sweep_date_is_found_all_the_same() -> None:
    run = _start(_agent("one"))
    change("UPDATE runs_agentrun SET sweep_at = NULL WHERE id = %s", run.id)
    assert sweeps.run_once().found == 1

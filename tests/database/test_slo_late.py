"""What is committed late is counted, and nothing that hangs or is too busy stops the sweep."""

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection

from runs.models import AgentRun, Sweep
from runs.slo import rolling
from runs.slo.rolling import SWEEP, run_once
from runs.slo.slices import SLICE, floor
from tests.database.controlling import finish
from tests.database.gating import held
from tests.database.kit import another_connection, ask, drive
from tests.database.slo_sums import Start, clock, counts, grow_older

pytestmark = pytest.mark.django_db(transaction=True)

_FIND_A_DUPLICATE = """
    INSERT INTO runs_incident (run_id, operation_id, kind, external_ref, detail, at)
    SELECT run_id, id, 'DUPLICATE', 're_2', '', %s FROM runs_tooloperation WHERE run_id = %s"""


@pytest.fixture
def ended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock alone, each slice is final as soon as it has begun."""
    monkeypatch.setattr(rolling, "MARGIN", -SLICE)


def find_duplicate(other: psycopg.Connection[Any], run: AgentRun, at: datetime) -> None:
    """What a transaction writes that is still open."""
    other.execute(_FIND_A_DUPLICATE, [at, run.id])


def watermark() -> datetime:
    done = Sweep.objects.get(name=SWEEP).done_until
    assert done is not None
    return done


@pytest.mark.usefixtures("ended_at_once")
def test_what_is_committed_late_is_counted_however_long_its_transaction_is_open(
    start: Start,
) -> None:
    run, _ = held(start)
    with another_connection(autocommit=False) as other:
        find_duplicate(other, run, clock())
        for _ in range(2):
            assert "duplicates" not in counts()
        other.commit()
    assert counts()["duplicates"] == 1
    # Nobody writes any more.
    assert watermark() > clock()


@pytest.mark.usefixtures("ended_at_once")
def test_a_session_that_hangs_is_waited_for_no_longer_than_that(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling, "LONGEST_WAIT", -SLICE)
    run, _ = held(start)
    with another_connection(autocommit=False) as other:
        find_duplicate(other, run, clock())
        run_once()
        assert watermark() > clock()
        other.rollback()


@pytest.mark.usefixtures("ended_at_once")
def test_who_only_reads_or_works_in_another_database_holds_nothing_up() -> None:
    with another_connection(autocommit=False) as reader, elsewhere() as other:
        reader.execute("SELECT count(*) FROM runs_agentrun")
        other.execute("SELECT pg_current_xact_id()")
        run_once()
        assert watermark() > clock()


def elsewhere() -> psycopg.Connection[Any]:
    """A connection to another database of the same server."""
    with another_connection() as here:
        server = here.info.get_parameters() | {"dbname": "postgres"}
        return psycopg.connect(**server, password=here.info.password or None)


def test_what_was_open_when_it_was_counted_is_counted_again_before_it_is_final(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer ends, and time goes by, while the sweep counts the slice after its own."""
    run, _ = held(start)
    monkeypatch.setattr(rolling, "MARGIN", SLICE)
    first = floor(clock()) - SLICE
    Sweep.objects.create(name=SWEEP, done_until=first)
    with another_connection(autocommit=False) as other:
        find_duplicate(other, run, first)
        looks = 0

        def let_time_go_by(execute: Any, sql: str, *others: Any) -> Any:
            nonlocal looks
            if "pg_stat_activity" in sql:
                looks += 1
                if looks == 2:
                    other.commit()
                    monkeypatch.setattr(rolling, "MARGIN", -SLICE)
            return execute(sql, *others)

        with connection.execute_wrapper(let_time_go_by):
            run_once()
    assert looks >= 2
    assert counts()["duplicates"] == 1


def test_time_that_is_too_busy_for_one_statement_is_counted_in_smaller_ones(start: Start) -> None:
    drive(start(decider=finish))
    grow_older(hours=6)
    drive(start(decider=finish))
    busy = floor(clock()) - timedelta(hours=3)
    given_up: list[timedelta] = []

    def take_too_long(execute: Any, sql: str, values: Any, *others: Any) -> Any:
        if "INSERT INTO runs_rollup" in sql and "since" in values:
            span = values["until"] - values["since"]
            if span > SLICE and values["since"] <= busy < values["until"]:
                given_up.append(span)
                execute("SET LOCAL statement_timeout = 1", (), *others)
                return execute("SELECT pg_sleep(9)", (), *others)
        return execute(sql, values, *others)

    with connection.execute_wrapper(take_too_long):
        assert not run_once(seconds=60).is_behind
    assert given_up
    assert counts()["runs_completed"] == 2


def test_one_slice_may_take_longer_than_several(start: Start) -> None:
    drive(start(decider=finish))
    grow_older(hours=3)
    given: dict[bool, str] = {}

    def note(execute: Any, sql: str, values: Any, *others: Any) -> Any:
        if "INSERT INTO runs_rollup" in sql and "since" in values:
            given[values["until"] - values["since"] > SLICE] = ask("SHOW statement_timeout")
        return execute(sql, values, *others)

    with connection.execute_wrapper(note):
        run_once(seconds=60)
    assert given == {False: "1min", True: "10s"}

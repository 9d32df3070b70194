"""Old slices are folded a few at a time, and one fold that fails holds up no other."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection

from runs.models import Rollup
from runs.slo.measures import Measure
from runs.slo.rolling import FOLDED_AT_ONCE, run_once
from runs.slo.slices import SLICE, floor
from tests.database.kit import ask
from tests.database.slo_sums import clock

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


def fill(*, old: timedelta, length: timedelta, slices: int = 1) -> None:
    """Slices of this length, the first one so old, with one failed run each."""
    first = floor(clock() - old, timedelta(days=1))
    Rollup.objects.bulk_create(
        Rollup(
            starts_at=first + number * length,
            seconds=length.total_seconds(),
            agent="a",
            agent_version="1",
            measure=Measure.RUNS_FAILED,
            count=1,
        )
        for number in range(slices)
    )


def lengths() -> list[tuple[int, int]]:
    """(seconds, count) of every slice, oldest first."""
    return list(Rollup.objects.order_by("starts_at").values_list("seconds", "count"))


def test_much_that_is_old_is_folded_a_few_slices_at_a_time_and_each_may_take_long() -> None:
    fill(old=timedelta(days=4), length=SLICE, slices=100)
    given = []

    def note(execute: Any, sql: str, *others: Any) -> Any:
        if "WITH gone" in sql:
            given.append(ask("SHOW statement_timeout"))
        return execute(sql, *others)

    with connection.execute_wrapper(note):
        assert run_once().folded == 100
    assert given == ["1min"] * (100 // FOLDED_AT_ONCE + 1)
    assert lengths() == [(3_600, 12)] * 8 + [(3_600, 4)]


def test_a_fold_that_fails_holds_up_no_later_one() -> None:
    fill(old=timedelta(days=20), length=HOUR, slices=2)
    fill(old=timedelta(days=4), length=SLICE)

    def fail(execute: Any, sql: str, values: Any, *others: Any) -> Any:
        if "WITH gone" in sql and values["short"] == SLICE.total_seconds():
            raise DatabaseError("too slow")
        return execute(sql, values, *others)

    with (
        connection.execute_wrapper(fail),
        pytest.raises(ExceptionGroup) as found,
    ):
        run_once()
    assert [str(one) for one in found.value.exceptions] == ["too slow"]
    assert lengths() == [(86_400, 2), (300, 1)]

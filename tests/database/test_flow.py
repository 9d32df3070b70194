"""Flow control: who is let go, who is told to wait, and what becomes of a slot."""

import itertools
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from runs import flow
from runs.errors import InsideTransaction
from runs.models import FlowLimit
from tests.database.kit import ON_DATABASE, ask
from tools import Call, EffectType, Limits, Provider, Rate, Timeout, tool
from tools.execution import execute, wait_until_back
from tools.registry import isolated_registry
from tools.spec import ToolSpec

pytestmark = ON_DATABASE

NAME = "provider bank/acct_1"
ONE_AT_A_TIME = Limits(concurrency=1)
TWO_AT_A_TIME = Limits(concurrency=2)
THREE_PER_MINUTE = Limits(rate=Rate(3, per=timedelta(minutes=1)))


@pytest.fixture(autouse=True)
def _nothing_is_held() -> Iterator[None]:
    yield
    flow._mine.__init__()  # type: ignore[misc]


def _take(holder: str, limits: Limits, *, seconds: float = 60.0, name: str = NAME) -> float | None:
    return flow.take(name=name, limits=limits, holder=holder, seconds=seconds)


def _let_pass(seconds: float) -> None:
    """Every time in the limits' rows becomes that much older."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE runs_flowlimit SET told_until = told_until - %(s)s,
                recent = COALESCE((SELECT jsonb_object_agg((key::float8 - %(s)s)::text, value)
                                   FROM jsonb_each(recent)), '{}'),
                slots = COALESCE((SELECT jsonb_object_agg(key, jsonb_build_array(
                                      (value->>0)::float8 - %(s)s, (value->>1)::float8 - %(s)s))
                                  FROM jsonb_each(slots)), '{}')
            """,
            {"s": seconds},
        )


def _holders(name: str = NAME) -> set[str]:
    return set(FlowLimit.objects.get(name=name).slots)


# -- Slots --------------------------------------------------------------------------------------


def test_so_many_have_a_slot_as_there_are_and_the_next_waits() -> None:
    assert [_take(holder, TWO_AT_A_TIME) for holder in ("a", "b")] == [None, None]
    wait = _take("c", TWO_AT_A_TIME)
    assert wait is not None
    assert wait > 0
    assert _holders() == {"a", "b"}


def test_a_slot_that_is_given_back_is_free_at_once() -> None:
    _take("a", ONE_AT_A_TIME)
    flow.give_back(["a"])
    assert _holders() == set()
    assert _take("b", ONE_AT_A_TIME) is None


def test_the_slot_of_a_crashed_holder_comes_back_by_the_databases_clock() -> None:
    _take("crashed", ONE_AT_A_TIME, seconds=40)
    _let_pass(39)
    assert _take("b", ONE_AT_A_TIME) is not None
    _let_pass(2)
    assert _take("b", ONE_AT_A_TIME) is None


def test_a_worker_with_a_wrong_clock_frees_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    _take("a", ONE_AT_A_TIME)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 1e6)
    assert _take("b", ONE_AT_A_TIME) is not None


def test_who_asks_again_keeps_the_slot_and_takes_no_second_one() -> None:
    _take("a", TWO_AT_A_TIME, seconds=10)
    assert _take("a", TWO_AT_A_TIME, seconds=40) is None
    _let_pass(20)
    assert _take("b", TWO_AT_A_TIME) is None
    assert _take("c", TWO_AT_A_TIME) is not None
    assert _holders() == {"a", "b"}


def test_one_name_does_not_count_for_another() -> None:
    assert _take("a", ONE_AT_A_TIME) is None
    assert _take("a", ONE_AT_A_TIME, name="llm openai:gpt-5-mini") is None


def test_limits_that_change_in_code_count_at_once() -> None:
    for holder in "abc":
        assert _take(holder, Limits(concurrency=3)) is None
    assert _take("d", TWO_AT_A_TIME) is not None
    flow.give_back(["a"])
    assert _take("d", TWO_AT_A_TIME) is not None
    assert _take("d", Limits(concurrency=3)) is None


def test_a_request_inside_a_transaction_is_refused() -> None:
    with transaction.atomic(), pytest.raises(InsideTransaction):
        _take("a", ONE_AT_A_TIME)


def test_giving_back_what_nobody_holds_does_nothing() -> None:
    flow.give_back([])
    flow.give_back(["nobody"])


# -- Rates --------------------------------------------------------------------------------------


def test_so_many_leave_in_a_period_and_the_next_waits_for_the_first_to_be_that_old() -> None:
    assert [_take(holder, THREE_PER_MINUTE) for holder in "abc"] == [None] * 3
    wait = _take("d", THREE_PER_MINUTE)
    assert wait is not None
    assert 59 < wait <= 60 + 60 / flow.SLICES
    _let_pass(55)
    assert _take("d", THREE_PER_MINUTE) is not None
    _let_pass(60 / flow.SLICES + 5)
    assert _take("d", THREE_PER_MINUTE) is None


def test_what_left_counts_in_every_period_that_it_is_in() -> None:
    """Not per calendar minute: two halves of a burst around its border are one burst."""
    _take("a", THREE_PER_MINUTE)
    _let_pass(50)
    assert [_take(holder, THREE_PER_MINUTE) for holder in "bc"] == [None] * 2
    _let_pass(14)
    assert _take("d", THREE_PER_MINUTE) is None
    assert _take("e", THREE_PER_MINUTE) is not None


def test_the_same_holder_counts_again_for_the_rate() -> None:
    assert [_take("a", THREE_PER_MINUTE) for _ in range(3)] == [None] * 3
    assert _take("a", THREE_PER_MINUTE) is not None


def test_a_request_that_waits_for_the_rate_holds_no_slot_and_the_other_way_round() -> None:
    limits = Limits(rate=Rate(1, per=timedelta(minutes=1)), concurrency=1)
    _take("a", limits)
    assert _take("b", limits) is not None
    assert _holders() == {"a"}
    _let_pass(70)
    _take("c", ONE_AT_A_TIME)
    assert _take("b", limits) is not None
    assert sum(FlowLimit.objects.get(name=NAME).recent.values()) == 0


def test_those_who_wait_are_told_times_of_their_own() -> None:
    limits = Limits(rate=Rate(10, per=timedelta(seconds=60)))
    for n in range(10):
        assert _take(f"first{n}", limits) is None
    waits = [_take(f"next{n}", limits) for n in range(8)]
    told = [wait for wait in waits if wait is not None]
    assert len(told) == 8
    for earlier, later in itertools.pairwise(told):
        assert 5 < later - earlier < 7


def test_nobody_is_told_to_come_in_an_hour_however_many_wait() -> None:
    limits = Limits(rate=Rate(1, per=timedelta(seconds=50)))
    _take("first", limits)
    waits = [_take(f"next{n}", limits) for n in range(30)]
    assert all(wait is not None and 0 < wait <= flow.FARTHEST_SECONDS for wait in waits)
    assert len({round(wait or 0) for wait in waits}) > 10


def test_a_row_does_not_grow_with_what_passes_through_it() -> None:
    limits = Limits(rate=Rate(10_000, per=timedelta(seconds=60)), concurrency=3)
    for n in range(60):
        assert _take(f"a{n}", limits) is None
        flow.give_back([f"a{n}"])
        _let_pass(7)
    row = FlowLimit.objects.get(name=NAME)
    assert len(row.recent) <= flow.SLICES + 1
    assert row.slots == {}


# -- Providers ----------------------------------------------------------------------------------


def _tool_of(provider: Provider | None, act: Any = None) -> ToolSpec:
    @tool(
        provider=provider,
        effect_type=EffectType.READ,
        name="ask",
        timeout_policy=Timeout(seconds=5),
    )
    def ask_them(call: Call) -> str:
        """Ask."""
        return str(act(call)) if act else "asked"

    return ask_them.spec  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("provider", [None, Provider(name="bank")], ids=["none", "unlimited"])
def test_a_provider_without_limits_costs_no_query(provider: Provider | None) -> None:
    spec = _tool_of(provider)
    with CaptureQueriesContext(connection) as asked:
        assert flow.take_for(spec, holder="a", seconds=5) is None
        flow.give_back_for(spec, ["a"])
        flow.keep_in_flight(seconds=30)
    assert len(asked) == 0


def test_a_request_of_a_limited_provider_is_one_statement() -> None:
    spec = _tool_of(Provider(name="bank", account="acct_1", concurrency=4))
    flow.take_for(spec, holder="first ever", seconds=5)
    with CaptureQueriesContext(connection) as asked:
        assert flow.take_for(spec, holder="a", seconds=5) is None
    assert len(asked) == 1


def test_tools_of_one_provider_and_account_share_its_limits() -> None:
    provider = Provider(name="bank", account="acct_1", concurrency=1)
    assert flow.take_for(_tool_of(provider), holder="a", seconds=5) is None
    assert _holders() == {"a"}


def test_how_much_may_be_sent_is_no_part_of_a_tools_version() -> None:
    with isolated_registry():
        before = _tool_of(Provider(name="bank"))
    rate = Rate(5, per=timedelta(seconds=1))
    after = _tool_of(Provider(name="bank", rate=rate, concurrency=2))
    assert after.version == before.version


# -- Functions that are not back ----------------------------------------------------------------


def test_a_function_that_is_not_back_keeps_its_slot_until_it_is() -> None:
    may_return = threading.Event()
    spec = _tool_of(
        Provider(name="bank", account="acct_1", concurrency=1),
        act=lambda call: may_return.wait(30),
    )
    assert flow.take_for(spec, holder="op", seconds=40) is None
    call = _call("op", seconds=0.05)
    outcome = execute(spec=spec, call=call, on_late=lambda outcome: None)
    assert "still running" in str(outcome)
    flow.give_back_for(spec, ["op"])
    assert _holders() == {"op"}
    _let_pass(39)
    flow.keep_in_flight(seconds=30)
    _let_pass(20)
    assert flow.take_for(spec, holder="other", seconds=5) is not None
    may_return.set()
    assert wait_until_back(seconds=10)
    flow.keep_in_flight(seconds=30)
    assert flow.take_for(spec, holder="other", seconds=5) is None


def test_a_slot_is_never_pushed_back_towards_now() -> None:
    _take("op", ONE_AT_A_TIME, seconds=500)
    with connection.cursor() as cursor:
        cursor.execute(flow._KEEP, {"holders": ["op"], "seconds": 5})
    left = ask(
        "SELECT (slots->'op'->>1)::float8 - EXTRACT(EPOCH FROM now())::float8 FROM runs_flowlimit"
    )
    assert left > 400


def test_giving_back_never_fails_whoever_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _take("a", ONE_AT_A_TIME)
    monkeypatch.setattr(flow, "_FREE", "SELECT no such thing")
    flow.give_back(["a"])
    assert _holders() == {"a"}


def _call(operation_id: str, *, seconds: float) -> Call:
    return Call(
        operation_id=operation_id,
        idempotency_key=operation_id,
        fence_token=1,
        attempt=1,
        run_id="run",
        step_number=1,
        arguments={},
        deadline=datetime.now(UTC) + timedelta(seconds=seconds),
        expires_at_monotonic=time.monotonic() + seconds,
    )

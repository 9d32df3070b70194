"""What a person may not deny while the sender may wake up, and the way out of that."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from runs import events
from runs.access import operator
from runs.errors import StillInFlight
from runs.models import AgentRun, Worker
from runs.resolution import resolve_operation
from runs.state import RunState
from runs.worker_ends import UnknownWorker, end_workers
from tests.database.kit import (
    KEYED,
    LOST,
    ON_DATABASE,
    PLAIN,
    Script,
    call_once,
    change,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    hear_late,
    incidents,
    let_pass,
    operation_of,
    scripted_tool,
)
from tests.database.settling import end_worker
from tests.database.worker_rows import a_worker
from tools import EffectType, Provider
from tools.registry import isolated_registry

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
DENIALS = ["not_committed", "rejected"]


def _asleep(
    start: Start,
    *,
    effect: EffectType = EffectType.NON_IDEMPOTENT_WRITE,
    provider: Provider | None = PLAIN,
) -> tuple[AgentRun, Script]:
    """A run whose "sleeper" stands still just before its bytes leave, taken over long ago."""
    script = scripted_tool("again", effect=effect, provider=provider, max_attempts=1)
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_STARTING):
        drive(run, owner="sleeper")
    expire_lease(run)
    drive(run, owner="worker 2")
    drive_when_due(run, owner="worker 2")
    let_pass(hours=1)
    run.refresh_from_db()
    assert (operation_of(run).status, script.calls) == ("UNKNOWN", [])
    return run, script


def _say(run: AgentRun, outcome: str, **more: Any) -> None:
    try:
        resolve_operation(
            actor=operator("ann"),
            operation_id=operation_of(run).id,
            outcome=outcome,  # type: ignore[arg-type]
            evidence="seen on the statement",
            **more,
        )
    finally:
        run.refresh_from_db()


def _is_refused(run: AgentRun, outcome: str) -> None:
    with pytest.raises(StillInFlight, match="sleeper"):
        _say(run, outcome)
    operation = operation_of(run)
    assert (operation.status, operation.settled_at) == ("UNKNOWN", None)
    # Its intent is held on: no other operation may carry it out.
    assert operation.holds_intent is not None


# -- While the sender may wake --------------------------------------------------------------------


@pytest.mark.parametrize("outcome", DENIALS)
@pytest.mark.parametrize("is_registered", [True, False])
def test_nobody_can_deny_what_a_sender_that_may_wake_up_may_yet_send(
    start: Start, outcome: str, is_registered: bool
) -> None:
    if is_registered:
        a_worker("sleeper")
    run, script = _asleep(start)
    _is_refused(run, outcome)
    drive_when_due(run, owner="worker 2")
    assert (run.finished_at, script.calls) == (None, [])


def test_a_rejection_lets_the_intent_go_and_is_refused_under_a_key_too(start: Start) -> None:
    """Another operation would have another key, and nothing at the provider joins the two."""
    run, script = _asleep(start, effect=EffectType.IDEMPOTENT_WRITE, provider=KEYED)
    _is_refused(run, "rejected")
    assert script.calls == []


def test_a_repeat_under_a_key_that_is_no_longer_kept_is_refused(start: Start) -> None:
    run, script = _asleep(start, effect=EffectType.IDEMPOTENT_WRITE, provider=KEYED)
    let_pass(hours=30)
    _is_refused(run, "not_committed")
    assert script.calls == []


def test_a_key_of_a_tool_that_nobody_here_knows_does_not_join_a_repeat(start: Start) -> None:
    run, _ = _asleep(start, effect=EffectType.IDEMPOTENT_WRITE, provider=KEYED)
    with isolated_registry():
        _is_refused(run, "not_committed")


def test_a_repeat_under_a_key_that_is_kept_is_one_effect_whoever_wakes(start: Start) -> None:
    run, script = _asleep(start, effect=EffectType.IDEMPOTENT_WRITE, provider=KEYED)
    key = operation_of(run).idempotency_key
    _say(run, "not_committed")
    drive_when_due(run, owner="worker 2")
    assert (run.state, run.result) == (RunState.COMPLETED, "again")
    assert [call.idempotency_key for call in script.calls] == [key]


def test_what_happened_may_always_be_said(start: Start) -> None:
    run, script = _asleep(start)
    _say(run, "committed", result="by hand", external_ref="re_1")
    drive_when_due(run, owner="worker 2")
    assert (run.state, run.result, script.calls) == (RunState.COMPLETED, "by hand", [])


def test_a_sender_that_wakes_after_all_is_heard_beside_the_persons_word(start: Start) -> None:
    run, _ = _asleep(start)
    _say(run, "committed", result="by hand", external_ref="re_1")
    hear_late(run, "committed", external_ref="re_2")
    assert incidents(run) == [("DUPLICATE", "re_2")]


# -- The way out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", DENIALS)
@pytest.mark.parametrize("is_registered", [True, False])
def test_a_sender_that_is_said_to_have_ended_stands_in_nobodys_way(
    start: Start, outcome: str, is_registered: bool
) -> None:
    """Also where it could not register: the attempt that it made names it."""
    if is_registered:
        a_worker("sleeper")
    run, script = _asleep(start)
    said = end_workers(actor=operator("ann"), names=["sleeper"], evidence="unplugged")
    assert said.ended == ["sleeper"]
    _say(run, outcome)
    drive_when_due(run, owner="worker 2")
    is_sent_again = outcome == "not_committed"
    assert run.state == (RunState.COMPLETED if is_sent_again else RunState.FAILED)
    assert len(script.calls) == is_sent_again


def test_a_name_that_sent_nothing_is_not_made_a_worker_by_an_end(start: Start) -> None:
    _asleep(start)
    with pytest.raises(UnknownWorker, match="nobody"):
        end_workers(actor=operator("ann"), names=["sleeper", "nobody"], evidence="unplugged")
    assert not Worker.objects.filter(name__in=["sleeper", "nobody"]).exists()


@pytest.mark.parametrize("outcome", DENIALS)
def test_a_function_that_came_back_can_send_no_more(start: Start, outcome: str) -> None:
    scripted_tool(LOST, "again", effect=EffectType.NON_IDEMPOTENT_WRITE, provider=PLAIN)
    run = start(decider=call_once(), tools=("pay",))
    drive(run, owner="sleeper")
    drive_when_due(run, owner="worker 2")
    _say(run, outcome)
    assert operation_of(run).status == ("PREPARED" if outcome == "not_committed" else "REJECTED")


def test_every_sender_of_several_has_to_have_ended(start: Start) -> None:
    run, _ = _asleep(start)
    end_worker("sleeper")
    _say(run, "not_committed")
    with dies_at(events.Name.CALL_STARTING):
        drive(run, owner="second sleeper")
    expire_lease(run)
    for _ in range(2):
        drive_when_due(run, owner="worker 2")
    let_pass(seconds=timedelta(hours=1).total_seconds())
    with pytest.raises(StillInFlight, match="second sleeper"):
        _say(run, "rejected")
    end_worker("second sleeper")
    _say(run, "rejected")
    assert operation_of(run).status == "REJECTED"
    assert change("UPDATE runs_tooloperation SET attempts = attempts WHERE attempts = 2") == 1

"""Reconciliation: what happened is found out before anything is repeated."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from runs import ToolCall, events
from runs.models import AgentRun, ToolObservation
from runs.state import OperationStatus, RunState
from tests.database.kit import (
    KEYED,
    ON_DATABASE,
    Script,
    ask,
    call_once,
    change,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    found,
    operation_edges,
    operation_of,
    run_edges,
    scripted_tool,
    verdicts,
)
from tools import Approve, Call, EffectType, Provider, Reconciled, Rejected

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
LOST = ConnectionResetError("by the peer")
WRITES = [effect for effect in EffectType if effect is not EffectType.READ]
NOT_REPEATABLE = [effect for effect in WRITES if effect is not EffectType.IDEMPOTENT_WRITE]
NO_SIGNATURE = Approve(when="false")


@pytest.fixture
def lose(start: Start) -> Callable[..., tuple[AgentRun, Script]]:
    """A run whose call was made once and its answer lost, and the call's script."""

    def lose_answer(*answers: Any, **declared: Any) -> tuple[AgentRun, Script]:
        declared.setdefault("approval_policy", NO_SIGNATURE)
        script = scripted_tool(LOST, *answers, **declared)
        run = start(decider=call_once(), tools=("pay",))
        drive(run)
        assert operation_of(run).status == OperationStatus.UNKNOWN
        return run, script

    return lose_answer


Lose = Callable[..., tuple[AgentRun, Script]]


# -- Reads --------------------------------------------------------------------------------------


def test_an_unknown_read_is_called_again(lose: Lose) -> None:
    run, script = lose(7, effect=EffectType.READ)
    drive_when_due(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, 7, 2)


def test_a_read_that_never_answers_ends_as_an_answer_to_the_decider(lose: Lose) -> None:
    run, script = lose(LOST, LOST, 7, effect=EffectType.READ, max_attempts=3)
    for _ in range(3):
        drive_when_due(run)
    assert (run.state, len(script.calls)) == (RunState.FAILED, 3)
    assert "no answer in 3 tries" in operation_of(run).error


# -- A provider that can be asked ---------------------------------------------------------------


@pytest.mark.parametrize("effect", WRITES)
def test_what_the_provider_has_is_recorded_and_not_sent_again(
    lose: Lose, effect: EffectType
) -> None:
    look_up = Script(found({"id": "re_1"}, "re_1"))
    run, script = lose(effect=effect, look_up=look_up)
    drive_when_due(run)
    operation = operation_of(run)
    assert (run.state, run.result) == (RunState.COMPLETED, {"id": "re_1"})
    assert (operation.status, operation.external_ref) == ("COMMITTED", "re_1")
    assert (len(script.calls), len(look_up.calls), operation.look_ups) == (1, 1, 1)
    assert verdicts(run) == [("worker", "unknown"), ("look_up", "committed")]
    assert operation_edges(run) == ["INTEND", "SEND", "LOSE_OUTCOME", "COMMIT"]


def test_a_look_up_names_the_same_operation_key_and_arguments(lose: Lose) -> None:
    look_up = Script(found())
    run, script = lose(look_up=look_up)
    drive_when_due(run)
    sent, asked = script.calls[0], look_up.calls[0]
    assert (asked.operation_id, asked.idempotency_key, asked.arguments) == (
        sent.operation_id,
        sent.idempotency_key,
        sent.arguments,
    )


def test_what_the_provider_does_not_have_is_sent_again_under_the_same_key(lose: Lose) -> None:
    look_up = Script(Reconciled.not_found())
    run, script = lose(7, look_up=look_up)
    drive_when_due(run)
    assert (run.state, run.result, len(look_up.calls)) == (RunState.COMPLETED, 7, 1)
    assert len({call.idempotency_key for call in script.calls}) == 1
    assert operation_edges(run) == ["INTEND", "SEND", "LOSE_OUTCOME", "SEND_AGAIN", "COMMIT"]


@pytest.mark.parametrize(
    "said", [Reconciled.indeterminate("the index is behind"), ValueError("500"), "no verdict"]
)
def test_a_provider_that_cannot_say_is_asked_again_and_then_the_same_key_is_sent(
    lose: Lose, said: Any
) -> None:
    look_up = Script(said, said, said)
    run, script = lose(7, look_up=look_up, max_attempts=3)
    for number in (1, 2):
        drive_when_due(run)
        assert (run.state, len(script.calls)) == (RunState.TOOL_STATUS_UNKNOWN, 1)
        assert operation_of(run).look_ups == number
        assert operation_of(run).next_reconcile_at is not None
        assert run.wake_at is not None
    drive_when_due(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, 7, 2)
    assert [one for one in verdicts(run) if one[0] == "look_up"] == [
        ("look_up", "indeterminate")
    ] * 3


@pytest.mark.parametrize("effect", NOT_REPEATABLE)
@pytest.mark.parametrize(
    "said", [Reconciled.not_found(), Reconciled.indeterminate("not yet"), ValueError("500")]
)
def test_what_may_not_be_repeated_goes_to_a_person(
    lose: Lose, effect: EffectType, said: Any
) -> None:
    run, script = lose(7, effect=effect, look_up=Script(said))
    drive_when_due(run)
    _waits_for_a_person(run)
    assert len(script.calls) == 1


# -- A provider that cannot be asked ------------------------------------------------------------


def test_an_idempotent_write_is_sent_again_under_its_key_until_its_tries_are_used(
    lose: Lose,
) -> None:
    run, script = lose(LOST, LOST, LOST, max_attempts=3)
    for _ in range(3):
        drive_when_due(run)
    _waits_for_a_person(run)
    assert len(script.calls) == 3
    assert len({(call.operation_id, call.idempotency_key) for call in script.calls}) == 1
    assert "3 times" in operation_of(run).error


@pytest.mark.parametrize("effect", NOT_REPEATABLE)
def test_a_write_that_may_not_be_repeated_goes_to_a_person_at_once(
    lose: Lose, effect: EffectType
) -> None:
    run, script = lose(7, effect=effect)
    drive_when_due(run)
    _waits_for_a_person(run)
    assert len(script.calls) == 1


@pytest.mark.parametrize("look_up", [None, Script(*[Reconciled.not_found()] * 3)])
def test_a_key_that_the_provider_may_have_forgotten_is_never_sent_again(
    lose: Lose, look_up: Script | None
) -> None:
    run, script = lose(7, look_up=look_up)
    change("UPDATE runs_tooloperation SET key_expires_at = now() + interval '1 s'")
    drive_when_due(run)
    _waits_for_a_person(run)
    assert len(script.calls) == 1
    assert "no longer know the idempotency key" in operation_of(run).error


def test_a_key_lives_from_the_first_send_not_the_last(lose: Lose) -> None:
    run, _ = lose(LOST, 7)
    first = operation_of(run).key_expires_at
    drive_when_due(run)
    operation = operation_of(run)
    assert operation.attempts == 2
    assert operation.key_expires_at == first
    assert first is not None
    assert operation.first_sent_at is not None
    age = first - operation.first_sent_at
    assert age == KEYED.idempotency_retention


@pytest.mark.parametrize(
    ("provider", "sends"),
    [
        (Provider(name="p", idempotency_support="key", idempotency_retention=None), 1),
        (Provider(name="p", idempotency_support="none"), 1),
        (Provider(name="p", idempotency_support="natural_id"), 2),
        (
            Provider(
                name="p", idempotency_support="key", idempotency_retention=timedelta(seconds=90)
            ),
            2,
        ),
    ],
)
def test_only_a_key_that_was_promised_to_be_kept_is_sent_twice(
    lose: Lose, provider: Provider, sends: int
) -> None:
    run, script = lose(7, provider=provider)
    drive_when_due(run)
    assert len(script.calls) == sends
    assert (run.state == RunState.COMPLETED) == (sends == 2)


# -- Refusals -----------------------------------------------------------------------------------


def test_a_refusal_of_the_second_send_is_settled_by_the_provider_or_a_person(
    lose: Lose,
) -> None:
    look_up = Script(Reconciled.not_found(), found("the first landed"))
    run, script = lose(Rejected("already exists"), look_up=look_up, max_attempts=5)
    drive_when_due(run)
    assert operation_of(run).status == OperationStatus.UNKNOWN
    drive_when_due(run)
    assert (run.state, run.result) == (RunState.COMPLETED, "the first landed")
    assert len(script.calls) == 2


def test_a_refusal_of_the_second_send_without_a_look_up_goes_to_a_person(lose: Lose) -> None:
    run, script = lose(Rejected("already exists"), 7, max_attempts=5)
    for _ in range(3):
        drive_when_due(run)
    _waits_for_a_person(run)
    assert len(script.calls) == 2
    assert "already exists" in operation_of(run).error


# -- Evidence that is there already -------------------------------------------------------------


def _late(run: AgentRun, verdict: str, **given: Any) -> None:
    operation = operation_of(run)
    ToolObservation.objects.create(
        operation=operation,
        run_id=run.id,
        source=ToolObservation.Source.STALE_WORKER,
        verdict=verdict,
        attempt=operation.attempts,
        fence_token=operation.fence_token,
        **given,
    )


@pytest.mark.parametrize("effect", EffectType)
def test_the_late_answer_of_a_stale_worker_is_used_without_asking_anybody(
    lose: Lose, effect: EffectType
) -> None:
    look_up = Script(found("must not be asked"))
    run, script = lose(8, effect=effect, look_up=look_up)
    _late(run, "committed", result={"id": "re_1"}, external_ref="re_1")
    drive_when_due(run)
    assert (run.state, run.result) == (RunState.COMPLETED, {"id": "re_1"})
    assert (len(script.calls), len(look_up.calls)) == (1, 0)
    assert "late answer" in ask(
        "SELECT reason FROM runs_transition WHERE event = 'COMMIT' AND operation_id IS NULL"
    )


@pytest.mark.parametrize("effect", WRITES)
def test_the_late_refusal_of_the_only_send_settles_it(lose: Lose, effect: EffectType) -> None:
    run, script = lose(7, effect=effect)
    _late(run, "rejected", detail="no such order")
    drive_when_due(run)
    assert (run.state, len(script.calls)) == (RunState.FAILED, 1)
    assert run.error == "REJECTED: no such order"


def test_evidence_that_comes_while_a_person_is_awaited_settles_it_when_asked(
    lose: Lose,
) -> None:
    run, _ = lose(effect=EffectType.IRREVERSIBLE)
    drive_when_due(run)
    _waits_for_a_person(run)
    _late(run, "committed", result=7)
    change("UPDATE runs_agentrun SET wake_at = now()")
    drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, 7)


def test_asking_once_more_while_a_person_is_awaited_sends_nothing(lose: Lose) -> None:
    look_up = Script(*[Reconciled.not_found()] * 3)
    run, script = lose(7, 7, look_up=look_up, max_attempts=1)
    drive_when_due(run)
    _waits_for_a_person(run)
    for _ in range(2):
        change("UPDATE runs_agentrun SET wake_at = now()")
        drive(run)
        _waits_for_a_person(run)
    assert (len(script.calls), len(look_up.calls)) == (1, 3)


# -- While an earlier send may be on its way ----------------------------------------------------


@pytest.mark.parametrize("effect", [EffectType.READ, EffectType.IDEMPOTENT_WRITE])
def test_nothing_is_sent_again_while_the_first_may_be_on_its_way(
    lose: Lose, effect: EffectType
) -> None:
    run, script = lose(7, effect=effect)
    change("UPDATE runs_tooloperation SET in_flight_until = now() + interval '60 s'")
    change("UPDATE runs_agentrun SET wake_at = now()")
    drive(run)
    assert (run.state, len(script.calls)) == (RunState.TOOL_STATUS_UNKNOWN, 1)
    assert ask("SELECT wake_at > now() + interval '30 s' FROM runs_agentrun")
    drive_when_due(run)
    assert (run.state, len(script.calls)) == (RunState.COMPLETED, 2)


def test_a_worker_that_died_during_the_call_is_looked_into_before_the_repeat(
    start: Start,
) -> None:
    order: list[str] = []

    def note(what: str, answer: Any) -> Callable[[Call], Any]:
        def act(call: Call) -> Any:
            order.append(what)
            return answer

        return act

    look_up = Script(note("look-up", Reconciled.not_found()))
    scripted_tool(note("send", 1), note("send", 2), look_up=look_up)
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_DONE):
        drive(run)
    expire_lease(run)
    drive(run, owner="worker 2")
    assert (run.state, order) == (RunState.COMPLETED, ["send", "look-up", "send"])


def test_a_worker_that_dies_around_the_look_up_is_replaced(lose: Lose) -> None:
    look_up = Script(found("a"), found("b"))
    run, script = lose(look_up=look_up)
    for point in (events.Name.LOOK_UP_STARTING, events.Name.LOOK_UP_DONE):
        expire_lease(run)
        with dies_at(point):
            drive(run)
    expire_lease(run)
    drive(run, owner="worker 3")
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "b", 1)


def test_a_look_up_of_a_worker_that_lost_its_lease_is_kept_as_evidence(lose: Lose) -> None:
    def lose_the_lease(call: Call) -> Reconciled[Any]:
        change("UPDATE runs_agentrun SET fence_token = fence_token + 1, version = version + 1")
        return found("seen by the stale worker")

    run, script = lose(look_up=Script(lose_the_lease))
    assert drive_when_due(run).lease_lost
    assert operation_of(run).status == OperationStatus.UNKNOWN
    assert verdicts(run)[-1] == ("look_up", "committed")
    expire_lease(run)
    drive(run, owner="worker 2")
    assert (run.result, len(script.calls)) == ("seen by the stale worker", 1)


def test_sensitive_values_do_not_reach_the_evidence(start: Start) -> None:
    card = 4111111111111111
    look_up = Script(Reconciled.indeterminate(f"card {card} is busy"))
    scripted_tool(ValueError(f"lost {card}"), look_up=look_up, sensitive=("amount",))
    run = start(decider=call_once(ToolCall("pay", amount=card)), tools=("pay",))
    for _ in range(2):
        drive_when_due(run)
    details = [seen.detail for seen in operation_of(run).observations.order_by("id")]
    assert len(details) == 2
    assert "busy" in details[1]
    assert str(card) not in "".join(details)


def _waits_for_a_person(run: AgentRun) -> None:
    run.refresh_from_db()
    operation = operation_of(run)
    assert (run.state, operation.status) == (RunState.WAITING_FOR_RESOLUTION, "UNKNOWN")
    assert (run.wake_at, run.sweep_at, run.lease_owner) == (None, None, "")
    assert (run.uncertain, run.finished_at, operation.settled_at) == (True, None, None)
    assert run_edges(run).count("NEED_PERSON") == 1

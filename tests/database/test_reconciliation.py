"""Reconciliation: what happened is found out before anything is repeated."""

from collections.abc import Callable
from typing import Any

import pytest

from runs import ToolCall, events
from runs.models import AgentRun, ToolObservation
from runs.state import OperationStatus, RunState
from tests.database.gating import tamper
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    Script,
    ask,
    call_once,
    change,
    dies_at,
    drive,
    drive_late,
    drive_when_due,
    expire_lease,
    found,
    hear_late,
    incidents,
    listening,
    operation_edges,
    operation_of,
    scripted_tool,
    verdicts,
)
from tests.database.settling import waits_for_a_person
from tools import Approve, Call, EffectType, Reconciled

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
HARMLESS = (EffectType.READ, EffectType.TRANSACTIONAL)
# What the outside world may have done: nothing else is ever unknown.
SENT = [effect for effect in EffectType if effect is not EffectType.TRANSACTIONAL]
WRITES = [effect for effect in EffectType if effect not in HARMLESS]
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
    ("said", "verdict"),
    [
        (Reconciled.indeterminate("the index is behind"), "indeterminate"),
        (ValueError("500"), "failed"),
        ("no verdict", "failed"),
    ],
)
def test_a_provider_that_cannot_say_gets_the_same_key_at_once(
    lose: Lose, said: Any, verdict: str
) -> None:
    run, script = lose(7, look_up=Script(said))
    drive_when_due(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, 7, 2)
    assert len({call.idempotency_key for call in script.calls}) == 1
    assert ("look_up", verdict) in verdicts(run)


@pytest.mark.parametrize("said", [Reconciled.not_found(), Reconciled.indeterminate("not yet")])
def test_what_is_irreversible_goes_to_a_person_unless_it_is_found(lose: Lose, said: Any) -> None:
    run, script = lose(7, effect=EffectType.IRREVERSIBLE, look_up=Script(*[said] * 9))
    drive_when_due(run)
    waits_for_a_person(run, asked_on=True)
    assert len(script.calls) == 1


def test_a_person_is_asked_about_what_is_irreversible_only_once_somebody_was_asked(
    lose: Lose,
) -> None:
    """A look-up that failed is no look-up."""
    look_up = Script(ValueError("500"), ValueError("500"), Reconciled.not_found())
    run, script = lose(7, effect=EffectType.IRREVERSIBLE, look_up=look_up)
    for _ in range(2):
        drive_when_due(run)
        assert run.state == RunState.TOOL_STATUS_UNKNOWN
    drive_when_due(run)
    waits_for_a_person(run, asked_on=True)
    assert len(script.calls) == 1


def test_a_provider_that_is_never_reached_is_a_persons_after_the_objective(lose: Lose) -> None:
    look_up = Script(*[ValueError("500")] * 99)
    run, script = lose(7, effect=EffectType.IRREVERSIBLE, look_up=look_up)
    drive_late(run)
    waits_for_a_person(run, asked_on=True)
    assert "ValueError: 500" in operation_of(run).error
    assert len(script.calls) == 1


@pytest.mark.parametrize(
    "said", [Reconciled.not_found(), Reconciled.indeterminate("not yet"), ValueError("500")]
)
def test_what_may_not_be_repeated_is_asked_about_later_and_later(lose: Lose, said: Any) -> None:
    """Whether it may be repeated in the end is told in `test_settling.py`."""
    look_up = Script(*[said] * 9)
    run, script = lose(7, effect=EffectType.NON_IDEMPOTENT_WRITE, look_up=look_up)
    waits = []
    for number in range(1, 6):
        drive_when_due(run)
        assert (run.state, len(script.calls)) == (RunState.TOOL_STATUS_UNKNOWN, 1)
        assert operation_of(run).look_ups == number
        waits.append(
            float(ask("SELECT EXTRACT(EPOCH FROM wake_at - updated_at) FROM runs_agentrun"))
        )
    # 2, 4, 8 … seconds, of which up to a half is random.
    for number, wait in enumerate(waits):
        assert 2**number <= wait <= 2 ** (number + 1)


@pytest.mark.parametrize("effect", WRITES)
def test_two_declarations_of_one_tool_count_in_the_stricter_direction(
    lose: Lose, effect: EffectType
) -> None:
    """It was sent as what may not be repeated; today its tool says otherwise, or the reverse."""
    run, script = lose(7, 7, effect=effect, look_up=Script(*[Reconciled.not_found()] * 9))
    tamper("UPDATE runs_tooloperation SET effect_type = 'IRREVERSIBLE'")
    drive_when_due(run)
    waits_for_a_person(run, asked_on=True)
    assert len(script.calls) == 1


@pytest.mark.parametrize(("nameless", "counted"), [((), 1), (("",), 2)])
def test_a_further_effect_is_counted_once_and_the_recorded_one_never(
    lose: Lose, nameless: tuple[str, ...], counted: int
) -> None:
    also = ("re_1", "re_2", "re_2", *nameless)
    both = Reconciled.committed(1, external_ref="re_1", also=also)
    run, _ = lose(look_up=Script(both))
    with listening() as heard:
        drive_when_due(run)
    assert (run.result, operation_of(run).external_ref) == (1, "re_1")
    opened = incidents(run)
    assert ("DUPLICATE", "re_2") in opened
    assert [kind for kind, _ in opened] == ["DUPLICATE"] * counted
    told = [event.fields["kind"] for event in heard if event.name is events.Name.INCIDENT]
    assert told == ["DUPLICATE"] * counted


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


@pytest.mark.parametrize("effect", SENT)
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


@pytest.mark.parametrize("effect", SENT)
def test_the_late_word_that_nothing_left_lets_it_be_sent_again(
    start: Start, effect: EffectType
) -> None:
    """The sender was missed before it could say so; nobody needs to be asked."""
    look_up = Script()
    script = scripted_tool(
        "nobody hears this", 7, effect=effect, look_up=look_up, approval_policy=Approve("false")
    )
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_STARTING):
        drive(run)
    change("UPDATE runs_agentrun SET lease_expires_at = now(), wake_at = now()")
    hear_late(run, "not_sent", detail="no route")
    expire_lease(run)
    drive(run, owner="worker 2")
    assert (run.state, run.result) == (RunState.COMPLETED, "nobody hears this")
    assert (len(script.calls), len(look_up.calls)) == (1, 0)


@pytest.mark.parametrize("effect", WRITES)
def test_one_send_that_did_not_leave_says_nothing_of_the_other(
    lose: Lose, effect: EffectType
) -> None:
    look_up = Script(*[Reconciled.indeterminate("not yet")] * 9)
    run, script = lose(7, effect=effect, look_up=look_up, max_attempts=1)
    change("UPDATE runs_tooloperation SET attempts = 2")
    hear_late(run, "not_sent", attempt=2)
    drive_when_due(run)
    assert len(script.calls) == 1
    assert run.state != RunState.COMPLETED


def test_evidence_that_comes_while_a_person_is_awaited_settles_it_when_asked(
    lose: Lose,
) -> None:
    run, _ = lose(effect=EffectType.IRREVERSIBLE)
    drive_when_due(run)
    waits_for_a_person(run)
    _late(run, "committed", result=7)
    change("UPDATE runs_agentrun SET wake_at = now()")
    drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, 7)


def test_asking_once_more_while_a_person_is_awaited_sends_nothing(lose: Lose) -> None:
    look_up = Script(*[Reconciled.not_found()] * 9)
    run, script = lose(7, 7, look_up=look_up, effect=EffectType.IRREVERSIBLE)
    drive_when_due(run)
    waits_for_a_person(run, asked_on=True)
    for _ in range(2):
        drive_when_due(run)
        waits_for_a_person(run, asked_on=True)
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
    scripted_tool(
        ValueError(f"lost {card}"),
        look_up=look_up,
        sensitive=("amount",),
        effect=EffectType.NON_IDEMPOTENT_WRITE,
    )
    run = start(decider=call_once(ToolCall("pay", amount=card)), tools=("pay",))
    for _ in range(2):
        drive_when_due(run)
    details = [seen.detail for seen in operation_of(run).observations.order_by("id")]
    assert len(details) == 2
    assert "busy" in details[1]
    assert str(card) not in "".join(details)

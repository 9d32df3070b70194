"""Reconciliation under idempotency keys, and what a refusal says: sends that are made again."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from runs.models import AgentRun
from runs.state import OperationStatus, RunState
from tests.database.kit import (
    KEYED,
    LOST,
    ON_DATABASE,
    Script,
    change,
    drive_in_time,
    drive_late,
    drive_when_due,
    found,
    operation_edges,
    operation_of,
)
from tests.database.settling import waits_for_a_person
from tools import EffectType, Provider, Reconciled, Rejected

pytestmark = ON_DATABASE


NOT_REPEATABLE = [EffectType.NON_IDEMPOTENT_WRITE, EffectType.IRREVERSIBLE]
Lose = Callable[..., tuple[AgentRun, Script]]


# -- A provider that cannot be asked ------------------------------------------------------------


def test_an_idempotent_write_is_sent_again_under_its_key_until_its_tries_are_used(
    lose: Lose,
) -> None:
    run, script = lose(LOST, LOST, LOST, max_attempts=3)
    for _ in range(3):
        drive_when_due(run)
    waits_for_a_person(run)
    assert len(script.calls) == 3
    assert len({(call.operation_id, call.idempotency_key) for call in script.calls}) == 1
    assert "3 times" in operation_of(run).error


@pytest.mark.parametrize("effect", NOT_REPEATABLE)
def test_a_write_that_may_not_be_repeated_goes_to_a_person_at_once(
    lose: Lose, effect: EffectType
) -> None:
    run, script = lose(7, effect=effect)
    drive_when_due(run)
    waits_for_a_person(run)
    assert len(script.calls) == 1


def test_a_key_that_the_provider_may_have_forgotten_is_never_sent_again(lose: Lose) -> None:
    """Case P5."""
    run, script = lose(7)
    change("UPDATE runs_tooloperation SET key_expires_at = now() + interval '1 s'")
    drive_when_due(run)
    waits_for_a_person(run)
    assert len(script.calls) == 1
    assert "no longer know the idempotency key" in operation_of(run).error


@pytest.mark.parametrize(
    "said", [Reconciled.not_found(), Reconciled.indeterminate("behind"), ValueError("500")]
)
def test_under_a_forgotten_key_the_provider_is_asked_until_a_person_is(
    lose: Lose, said: Any
) -> None:
    run, script = lose(7, look_up=Script(*[said] * 99))
    change("UPDATE runs_tooloperation SET key_expires_at = now() + interval '1 s'")
    drive_late(run)
    waits_for_a_person(run, asked_on=True)
    assert len(script.calls) == 1
    assert operation_of(run).look_ups >= 3


@pytest.mark.parametrize(("left", "sends"), [(290, 1), (300 + 5 + 30, 2)])
def test_a_key_is_not_used_in_the_last_part_of_its_life(lose: Lose, left: int, sends: int) -> None:
    """The request needs time to arrive: 5 s of deadline, and five minutes to spare."""
    run, script = lose(7)
    change("UPDATE runs_tooloperation SET key_expires_at = now() + make_interval(secs => %s)", left)
    drive_when_due(run)
    assert len(script.calls) == sends


def test_a_provider_that_replays_its_500_for_the_key_is_looked_up_and_then_a_persons(
    lose: Lose,
) -> None:
    """Case P6: more of the same key brings more of the same answer, so its tries are bounded."""
    look_up = Script(*[Reconciled.not_found()] * 99)
    run, script = lose(*[ValueError("500, replayed")] * 9, look_up=look_up, max_attempts=3)
    drive_in_time(run)
    waits_for_a_person(run, asked_on=True)
    assert len(script.calls) == 3
    assert "REJECT" not in operation_edges(run)
    assert "it did not happen in 3 sends" in operation_of(run).error


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


def test_what_already_exists_is_adopted_if_the_look_up_says_that_it_is_ours(lose: Lose) -> None:
    """Case P10, and P7: the first send landed, and the second one is refused for it."""
    look_up = Script(Reconciled.not_found(), found("the first landed"))
    run, script = lose(Rejected("already exists"), look_up=look_up, max_attempts=5)
    drive_when_due(run)
    assert operation_of(run).status == OperationStatus.UNKNOWN
    drive_when_due(run)
    assert (run.state, run.result) == (RunState.COMPLETED, "the first landed")
    assert len(script.calls) == 2


def test_what_already_exists_and_is_not_ours_is_refused_once_the_first_send_is_settled(
    lose: Lose,
) -> None:
    """Never before: until then the first send may be what exists."""
    look_up = Script(*[Reconciled.not_found()] * 99)
    run, script = lose(Rejected("already exists"), look_up=look_up, max_attempts=5)
    drive_in_time(run)
    assert (run.state, run.error) == (RunState.FAILED, "REJECTED: already exists")
    assert len(script.calls) == 2
    negatives = operation_of(run).observations.filter(verdict="not_found").order_by("id")
    answers = operation_of(run).observations.filter(source="worker").order_by("id")
    assert negatives.last().observed_at - answers.last().observed_at >= KEYED.settle_window  # type: ignore[union-attr]


def test_a_refusal_that_nobody_can_explain_in_time_goes_to_a_person(lose: Lose) -> None:
    """Case P7: same key, other arguments, says the provider; its look-up cannot tell."""
    look_up = Script(*[Reconciled.indeterminate("cannot tell")] * 99)
    run, script = lose(Rejected("another body"), look_up=look_up, max_attempts=5)
    drive_late(run)
    waits_for_a_person(run, asked_on=True)
    assert len(script.calls) == 2
    assert "another body" in operation_of(run).error


def test_a_refusal_of_the_second_send_without_a_look_up_goes_to_a_person(lose: Lose) -> None:
    run, script = lose(Rejected("already exists"), 7, max_attempts=5)
    for _ in range(3):
        drive_when_due(run)
    waits_for_a_person(run)
    assert len(script.calls) == 2
    assert "already exists" in operation_of(run).error

"""An effect outside of our database is begun once, and never again on a guess."""

from datetime import timedelta

import pytest
from django.db import connection, transaction

from tests.database.kit import another_connection, ask, change
from tests.database.receiving import (
    ON_TOOLS,
    at_it,
    call,
    call_elsewhere,
    lose,
    never,
    the_key,
)
from tests.processes import wait_until
from tools import NotSent, Reconciled, Rejected
from tools.errors import (
    DeadlinePassed,
    InvalidPayload,
    KeyInFlight,
    KeyMismatch,
    OutcomeUnknown,
    RejectedBefore,
    TransactionOpen,
    UnreadableResult,
)
from tools.idempotency import Answer, settle_unknown
from tools.models import IdempotencyKey, KeyStatus

pytestmark = ON_TOOLS


def test_it_is_recorded_before_it_is_begun_and_no_transaction_is_open() -> None:
    seen = {}

    def effect() -> str:
        with another_connection() as other:
            row = other.execute("SELECT status, keep_until FROM tools_idempotencykey").fetchone()
            busy = other.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND state LIKE 'idle in transaction%'"
            ).fetchone()
        seen.update(row=row, busy=busy, atomic=connection.in_atomic_block)
        return "sent"

    assert call_elsewhere(effect) == Answer(result="sent", replayed=False)
    assert seen == {"row": ("RUNNING", None), "busy": (0,), "atomic": False}
    assert call_elsewhere(never) == Answer(result="sent", replayed=True)


def test_an_effect_elsewhere_is_refused_inside_a_transaction() -> None:
    with pytest.raises(TransactionOpen), transaction.atomic():
        call_elsewhere(never)
    assert not IdempotencyKey.objects.exists()


@pytest.mark.parametrize("error", [OSError("secret 4711"), SystemExit(1), KeyInFlight(scope="x")])
def test_whatever_it_raises_leaves_the_outcome_unknown(error: BaseException) -> None:
    def effect() -> None:
        raise error

    with pytest.raises(type(error)):
        call_elsewhere(effect)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match=type(error).__name__) as caught:
            call_elsewhere(never)
        assert caught.value.key_id == the_key().id
        assert "4711" not in str(caught.value)
    assert the_key().status == KeyStatus.UNKNOWN


def test_an_unreadable_result_leaves_the_outcome_unknown() -> None:
    with pytest.raises(UnreadableResult):
        call_elsewhere(object)
    with pytest.raises(OutcomeUnknown):
        call_elsewhere(never)


def test_only_what_was_certainly_not_sent_frees_the_key() -> None:
    def not_sent() -> None:
        raise NotSent("no route")

    with pytest.raises(NotSent):
        call_elsewhere(not_sent)
    assert call_elsewhere(lambda: "sent", arguments={"order": 18}).result == "sent"

    def too_late() -> None:
        # An earlier request may have used up the time.
        raise DeadlinePassed(operation_id="op", deadline=ask("SELECT now()"))

    with pytest.raises(DeadlinePassed):
        call_elsewhere(too_late, key="k2")
    with pytest.raises(OutcomeUnknown):
        call_elsewhere(never, key="k2")


def test_a_refusal_from_elsewhere_is_kept() -> None:
    def refuse() -> None:
        raise Rejected("unknown address")

    with pytest.raises(Rejected):
        call_elsewhere(refuse)
    with pytest.raises(RejectedBefore, match="unknown address"):
        call_elsewhere(never)


def test_what_a_look_up_finds_is_the_answer_from_then_on() -> None:
    with pytest.raises(OSError, match="lost"):
        call_elsewhere(lose)
    found = Reconciled.committed({"label": 9})
    assert call_elsewhere(never, recover=lambda: found) == Answer({"label": 9}, replayed=True)
    assert call_elsewhere(never).result == {"label": 9}


def test_not_found_is_believed_only_after_the_settle_window() -> None:
    with pytest.raises(OSError, match="lost"):
        call_elsewhere(lose)
    for minutes in (0, 14):
        change("UPDATE tools_idempotencykey SET unknown_since = now() - %s", _minutes(minutes))
        with pytest.raises(OutcomeUnknown, match="not found"):
            call_elsewhere(never, recover=Reconciled.not_found)
    change("UPDATE tools_idempotencykey SET unknown_since = now() - %s", _minutes(16))
    sent = call_elsewhere(lambda: "second", recover=Reconciled.not_found)
    assert sent == Answer(result="second", replayed=False)
    assert the_key().attempt == 2
    assert call_elsewhere(never).result == "second"


def test_the_settle_window_counts_anew_after_each_attempt() -> None:
    with pytest.raises(OSError, match="lost"):
        call_elsewhere(lose)
    change("UPDATE tools_idempotencykey SET unknown_since = now() - %s", _minutes(16))
    with pytest.raises(OSError, match="lost"):
        call_elsewhere(lose, recover=Reconciled.not_found)
    with pytest.raises(OutcomeUnknown, match="not found"):
        call_elsewhere(never, recover=Reconciled.not_found)


def test_a_look_up_that_failed_or_cannot_say_is_no_look_up() -> None:
    with pytest.raises(OSError, match="lost"):
        call_elsewhere(lose)
    for recover in (lose, lambda: Reconciled.indeterminate("two of them")):
        with pytest.raises(OutcomeUnknown, match=r"OSError|two of them"):
            call_elsewhere(never, recover=recover, settle_window=timedelta(0))


def test_an_unknown_key_with_other_arguments_is_refused() -> None:
    with pytest.raises(OSError, match="lost"):
        call_elsewhere(lose)
    with pytest.raises(KeyMismatch):
        call_elsewhere(never, arguments={"order": 18}, recover=Reconciled.not_found)


def test_an_endpoint_that_became_transactional_repeats_nothing_unknown() -> None:
    with pytest.raises(OSError, match="lost"):
        call_elsewhere(lose)
    with pytest.raises(OutcomeUnknown):
        call(never)
    with at_it(call_elsewhere, key="k2"), pytest.raises(KeyInFlight):
        call(never, key="k2")


def test_of_two_threads_of_one_process_one_carries_it_out() -> None:
    with at_it(call_elsewhere):
        for _ in range(2):
            with pytest.raises(KeyInFlight):
                call_elsewhere(never, recover=Reconciled.not_found, settle_window=timedelta(0))
        assert call_elsewhere(lambda: "other", key="k2").result == "other"
    assert call_elsewhere(never).result == "slow"


def test_a_call_that_ended_is_no_longer_in_flight_though_another_is() -> None:
    with at_it(call_elsewhere, key="k2"):
        with pytest.raises(OSError, match="lost"):
            call_elsewhere(lose)
        # Asked on another session than the one that held it.
        with pytest.raises(OutcomeUnknown):
            call(never)


def sessions() -> int:
    return int(
        ask(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'agentops calls in flight'"
        )
    )


def end_sessions() -> None:
    """As a restart of PostgreSQL would end them."""
    with another_connection() as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database()"
            " AND application_name = 'agentops calls in flight'"
        )


def test_all_calls_in_flight_of_a_process_cost_one_session() -> None:
    with at_it(call_elsewhere), at_it(call_elsewhere, key="k2"):
        assert sessions() == 1
    wait_until(lambda: sessions() == 0, what="the session is gone")


def test_a_call_whose_session_was_lost_is_still_recorded() -> None:
    def effect() -> str:
        end_sessions()
        with connection.cursor() as cursor, another_connection() as other:
            cursor.execute("SELECT pg_backend_pid()")
            other.execute("SELECT pg_terminate_backend(%s, 5000)", cursor.fetchone())
        return "sent"

    assert call_elsewhere(effect).result == "sent"
    assert call_elsewhere(never).result == "sent"


def test_a_lost_session_is_replaced_for_the_next_call() -> None:
    with at_it(call_elsewhere):
        end_sessions()
        with at_it(call_elsewhere, key="k2"):
            assert sessions() == 1
            with pytest.raises(KeyInFlight):
                call_elsewhere(never)
    assert call_elsewhere(never).result == "slow"
    assert call_elsewhere(never, key="k2").result == "slow"


def test_a_person_can_say_what_happened() -> None:
    with pytest.raises(OSError, match="lost"):
        call_elsewhere(lose)
    key_id = the_key().id
    found = Reconciled.committed({"label": 9})
    with pytest.raises(InvalidPayload, match="evidence"):
        settle_unknown(key_id=key_id, found=found, evidence=" ")
    with pytest.raises(InvalidPayload, match="key_id"):
        settle_unknown(key_id=key_id + 1, found=found, evidence="seen")
    with pytest.raises(InvalidPayload, match="found"):
        settle_unknown(key_id=key_id, found=Reconciled.indeterminate("?"), evidence="seen")
    settle_unknown(key_id=key_id, found=found, evidence="seen in the portal")
    assert call_elsewhere(never) == Answer(result={"label": 9}, replayed=True)
    assert the_key().evidence == "seen in the portal"
    with pytest.raises(InvalidPayload, match="key_id"):
        settle_unknown(key_id=key_id, found=Reconciled.not_found(), evidence="no")


def test_a_persons_not_found_frees_the_key() -> None:
    with pytest.raises(OSError, match="lost"):
        call_elsewhere(lose)
    settle_unknown(key_id=the_key().id, found=Reconciled.not_found(), evidence="not there")
    assert not call_elsewhere(lambda: "sent").replayed


def test_nobody_settles_what_is_being_carried_out() -> None:
    with at_it(call_elsewhere), pytest.raises(KeyInFlight):
        settle_unknown(key_id=the_key().id, found=Reconciled.not_found(), evidence="it hangs")


def _minutes(number: int) -> timedelta:
    return timedelta(minutes=number)

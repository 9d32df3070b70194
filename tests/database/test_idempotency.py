"""An endpoint that is called again under one key takes effect once."""

import math
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from tests.database.kit import ask, change
from tests.database.receiving import (
    DAY,
    ON_TOOLS,
    at_it,
    call,
    call_elsewhere,
    ledger,
    lose,
    never,
    scans,
    write,
    written,
)
from tools import Reconciled, Rejected
from tools.errors import (
    InvalidPayload,
    KeyInFlight,
    KeyMismatch,
    OutcomeUnknown,
    RejectedBefore,
    UnreadableResult,
)
from tools.idempotency import Answer
from tools.models import IdempotencyKey

__all__ = ["ledger"]

pytestmark = [ON_TOOLS, pytest.mark.usefixtures("ledger")]


def test_a_repeat_is_answered_to_the_letter_and_takes_no_effect() -> None:
    result = {"z": 1.0, "a": ["é", None, 1e-7], "m": {"b": 2, "a": 100.0}}
    first = call(write(result=result))
    again = call(never)
    assert (first.replayed, again.replayed) == (False, True)
    assert repr(again.result) == repr(first.result) == repr(result)
    assert (first.headers, again.headers) == ({}, {"Idempotent-Replayed": "true"})
    assert written() == 1


def test_a_key_with_other_arguments_is_refused() -> None:
    call(write())
    with pytest.raises(KeyMismatch):
        call(never, arguments={"order": 18})
    assert written() == 1


def test_the_order_of_the_arguments_does_not_matter() -> None:
    call(write(), arguments={"a": 1, "b": 2.0})
    assert call(never, arguments={"b": 2, "a": 1}).replayed


def test_one_key_in_two_scopes_is_two_calls() -> None:
    call(write(), scope="user 1: pay")
    assert not call(write(), scope="user 2: pay").replayed
    # Neither part may run into the other.
    assert not call(write(), scope="user 1: payk", key="1").replayed
    assert written() == 3


def test_an_effect_that_fails_leaves_nothing_and_frees_the_key() -> None:
    def fail() -> None:
        write()()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        call(fail)
    assert written() == 0
    assert not IdempotencyKey.objects.exists()
    assert not call(write(), arguments={"order": 18}).replayed


def test_a_result_that_cannot_be_kept_undoes_its_effect() -> None:
    with pytest.raises(UnreadableResult):
        call(write(result=math.nan))
    assert written() == 0
    assert not call(write()).replayed


def test_a_refusal_is_undone_kept_and_repeated() -> None:
    def refuse() -> None:
        write()()
        raise Rejected("more than was paid")

    with pytest.raises(Rejected, match="more than was paid") as first:
        call(refuse)
    assert not isinstance(first.value, RejectedBefore)
    with pytest.raises(RejectedBefore, match="more than was paid"):
        call(never)
    with pytest.raises(KeyMismatch):
        call(never, arguments={"order": 18})
    assert written() == 0


def test_a_call_that_is_being_carried_out_is_a_conflict_at_once() -> None:
    with at_it(call), pytest.raises(KeyInFlight):
        call(never)
    assert call(never) == Answer(result="slow", replayed=True)


def test_other_keys_do_not_wait() -> None:
    with at_it(call):
        assert call(write(), key="k2").result == "done"


def test_effect_and_answer_share_the_callers_transaction() -> None:
    with transaction.atomic():
        call(write())
        transaction.set_rollback(True)
    assert written() == 0
    with transaction.atomic():
        assert not call(write()).replayed
        assert call(never).replayed
    assert call(never).replayed
    assert written() == 1


def test_the_database_itself_refuses_a_second_effect() -> None:
    def effect() -> str:
        # What a caller without our lock would do meanwhile.
        call(write("inner"))
        return write("outer")()

    with pytest.raises(KeyInFlight):
        call(effect)
    assert written() == 0


def test_an_effect_may_use_other_keys_and_break_other_constraints() -> None:
    def effect() -> Any:
        return call(write(), key="inner").result

    assert call(effect).result == "done"
    with pytest.raises(IntegrityError, match="not-null"):
        call(lambda: change("INSERT INTO ledger VALUES (NULL)"), key="k2")


def test_the_key_is_nowhere_in_the_row() -> None:
    call(write(), key="secret-4711")
    row = ask("SELECT row_to_json(k)::text FROM tools_idempotencykey k")
    assert "secret-4711" not in row
    assert "user 1: pay" in row


@pytest.mark.parametrize(
    ("given", "field", "fix"),
    [
        ({"key": None}, "Idempotency-Key", "1 to 255 printable"),
        ({"key": ""}, "Idempotency-Key", "1 to 255 printable"),
        ({"key": "k" * 256}, "Idempotency-Key", "1 to 255 printable"),
        ({"key": "a\0b"}, "Idempotency-Key", "1 to 255 printable"),
        ({"key": "a\nb"}, "Idempotency-Key", "1 to 255 printable"),
        ({"key": "\ud800"}, "Idempotency-Key", "1 to 255 printable"),
        ({"key": 17}, "Idempotency-Key", "1 to 255 printable"),
        ({"scope": ""}, "scope", "1 to 255 printable"),
        ({"arguments": {"a": math.nan}}, "arguments.a", "finite"),
        ({"arguments": {"a": ["\0"]}}, "arguments.a[0]", "NUL"),
        ({"arguments": "\ud800"}, "arguments", "surrogate"),
        ({"arguments": object()}, "arguments", "JSON"),
        ({"arguments": "x" * 300_000}, "arguments", "at most"),
    ],
)
@pytest.mark.parametrize("carry_out", [call, call_elsewhere])
def test_bad_input_names_field_value_and_fix_and_writes_nothing(
    carry_out: Callable[..., Answer], given: dict[str, Any], field: str, fix: str
) -> None:
    with pytest.raises(InvalidPayload) as caught:
        carry_out(never, **given)
    assert caught.value.field == field
    assert caught.value.value
    assert fix in caught.value.fix
    assert not IdempotencyKey.objects.exists()


@pytest.mark.parametrize(
    "given",
    [
        {"retention": timedelta(0)},
        {"retention": DAY, "remember": DAY / 2},
        {"retention": timedelta(days=100_000)},
        {"recover": Reconciled.not_found},
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"retention|recover"):
        call(never, **given)


def test_the_longest_names_fit() -> None:
    given = {"scope": "ß" * 255, "key": "€" * 255}
    call(write(), **given)
    assert call(never, **given).replayed


def test_a_thread_without_a_connection_has_none_afterwards() -> None:
    seen = []

    def run() -> None:
        for carry_out in (call, call_elsewhere):
            carry_out(write(), key=carry_out.__name__)
            seen.append(connection.connection)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [None, None]
    assert written() == 2
    call(write())
    assert connection.connection is not None


def test_no_call_reads_the_table_from_end_to_end() -> None:
    with CaptureQueriesContext(connection) as captured:
        call(write())
        call(never)
        with pytest.raises(OSError, match="lost"):
            call_elsewhere(lose, key="k2")
        with pytest.raises(OutcomeUnknown):
            call_elsewhere(never, key="k2")
    assert scans([query["sql"] for query in captured.captured_queries]) == []

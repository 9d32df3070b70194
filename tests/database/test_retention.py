"""A key is forgotten long after its result, and never while its caller may still ask."""

import json
import threading
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from tests.database.kit import another_connection, ask, change
from tests.database.receiving import (
    DAY,
    ON_TOOLS,
    call,
    call_elsewhere,
    ledger,
    lose,
    never,
    scans,
    the_key,
    write,
    written,
)
from tests.processes import wait_until
from tools import Rejected, retention
from tools.errors import KeyExpired, KeyMismatch, OutcomeUnknown
from tools.fencing import only_newer_token
from tools.models import FencedResource, IdempotencyKey, KeyStatus
from tools.retention import Purged

__all__ = ["ledger"]

pytestmark = [ON_TOOLS, pytest.mark.usefixtures("ledger")]

NOTHING = Purged(results_dropped=0, keys_forgotten=0, resources_forgotten=0, keys_open=0)


def test_after_its_retention_a_key_is_refused_and_never_carried_out_anew() -> None:
    call(write())
    change("UPDATE tools_idempotencykey SET keep_until = now()")
    with pytest.raises(KeyExpired):
        call(never)
    with pytest.raises(KeyExpired):
        call(never, arguments={"order": 18})
    assert written() == 1


def test_every_sighting_moves_the_end_of_the_tombstone_on() -> None:
    for seen in (call, lambda effect: call(effect, arguments={"order": 18})):
        IdempotencyKey.objects.all().delete()
        call(write())
        change("UPDATE tools_idempotencykey SET keep_until = now(), remember_until = now()")
        with pytest.raises((KeyExpired, KeyMismatch)):
            seen(never)
        assert ask("SELECT remember_until > now() + '29 days' FROM tools_idempotencykey")


def test_a_shorter_memory_shortens_nothing() -> None:
    call(write(), remember=100 * DAY)
    call(never, remember=2 * DAY)
    assert ask("SELECT remember_until > now() + '99 days' FROM tools_idempotencykey")


def test_of_two_sightings_at_once_the_longer_memory_wins() -> None:
    call(write())
    change("UPDATE tools_idempotencykey SET remember_until = now()")

    def see() -> None:
        call(never, remember=2 * DAY)
        connection.close()

    with another_connection(autocommit=False) as other:
        other.execute("UPDATE tools_idempotencykey SET remember_until = now() + '100 days'")
        seeing = threading.Thread(target=see)
        seeing.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        wait_until(lambda: bool(ask(waiting)), what="the other sighting waits")
    seeing.join()
    assert ask("SELECT remember_until > now() + '99 days' FROM tools_idempotencykey")


def test_a_caller_who_polls_costs_no_write() -> None:
    call(write())
    with CaptureQueriesContext(connection) as captured:
        call(never)
    assert [query["sql"][:6] for query in captured.captured_queries] == ["SELECT"]


def test_a_key_is_remembered_for_ten_retentions_and_at_least_thirty_days() -> None:
    for kept, days in ((timedelta(hours=1), 30), (7 * DAY, 70)):
        IdempotencyKey.objects.all().delete()
        call(write(), retention=kept)
        row = the_key()
        assert row.settled_at is not None
        assert row.keep_until == row.settled_at + kept
        assert row.remember_until == row.settled_at + days * DAY


def test_a_cleanup_drops_results_and_keeps_keys() -> None:
    def refuse() -> None:
        raise Rejected("no")

    call(write())
    with pytest.raises(Rejected):
        call(refuse, key="k2")
    call(write(), key="kept")
    change("UPDATE tools_idempotencykey SET keep_until = now() WHERE id < %s", _newest())
    assert retention.run().results_dropped == 2
    assert ask("SELECT count(*) FROM tools_idempotencykey WHERE result || reason <> ''") == 1
    for key in ("k1", "k2"):
        with pytest.raises(KeyExpired):
            call(never, key=key)
    assert call(never, key="kept").result == "done"
    assert retention.run() == NOTHING


def test_a_key_is_forgotten_when_nobody_asked_for_so_long() -> None:
    call(write())
    change("UPDATE tools_idempotencykey SET keep_until = now(), remember_until = now()")
    assert retention.run().keys_forgotten == 1
    # What is not guaranteed: to us this is a new call.
    assert not call(write()).replayed
    assert written() == 2


def test_a_sighting_before_the_cleanup_keeps_the_key() -> None:
    call(write())
    change("UPDATE tools_idempotencykey SET keep_until = now(), remember_until = now()")
    with pytest.raises(KeyExpired):
        call(never)
    assert retention.run().keys_forgotten == 0
    with pytest.raises(KeyExpired):
        call(never)


def test_what_is_in_flight_or_unknown_is_never_cleaned() -> None:
    with pytest.raises(OSError, match="lost"):
        call_elsewhere(lose)

    def effect() -> Purged:
        change("UPDATE tools_idempotencykey SET started_at = now() - interval '9 years'")
        return retention.run()

    seen = call_elsewhere(effect, key="k2").result
    assert isinstance(seen, dict)
    assert (seen["keys_forgotten"], seen["keys_open"]) == (0, 2)
    with pytest.raises(OutcomeUnknown):
        call_elsewhere(never)


@pytest.mark.parametrize("column", ["keep_until", "remember_until", "settled_at"])
@pytest.mark.parametrize("status", [KeyStatus.RUNNING, KeyStatus.UNKNOWN])
def test_the_database_gives_an_open_key_no_date_to_be_cleaned_at(
    column: str, status: KeyStatus
) -> None:
    with pytest.raises(OSError, match="lost"):
        call_elsewhere(lose)
    change("UPDATE tools_idempotencykey SET status = %s", status)
    with pytest.raises(IntegrityError, match="open_is_never_cleaned"):
        change(f"UPDATE tools_idempotencykey SET {column} = now()")


def test_the_database_lets_no_settled_key_stay_for_ever() -> None:
    call(write())
    with pytest.raises(IntegrityError, match="open_is_never_cleaned"):
        change("UPDATE tools_idempotencykey SET remember_until = NULL")


def test_a_cleanup_takes_as_many_batches_as_it_needs() -> None:
    for number in range(5):
        call(write(), key=f"k{number}")
    change("UPDATE tools_idempotencykey SET keep_until = now(), remember_until = now()")
    assert retention.run_once(batch=2).keys_forgotten == 2
    assert retention.run(batch=2).keys_forgotten == 3
    assert not IdempotencyKey.objects.exists()


def test_a_cleanup_waits_for_nobody() -> None:
    call(write())
    call(write(), key="k2")
    change("UPDATE tools_idempotencykey SET keep_until = now(), remember_until = now()")
    with another_connection(autocommit=False) as other:
        other.execute("SELECT 1 FROM tools_idempotencykey WHERE id = %s FOR UPDATE", [_newest()])
        with transaction.atomic():
            change("SET LOCAL lock_timeout = '100ms'")
            assert retention.run_once().keys_forgotten == 1
    assert retention.run_once().keys_forgotten == 1


def test_a_resource_that_nobody_used_for_long_is_forgotten() -> None:
    for resource in ("old", "new"):
        with transaction.atomic():
            only_newer_token(resource, 7)
    change(
        "UPDATE tools_fencedresource SET seen_at = now() - interval '91 days'"
        " WHERE resource = 'old'"
    )
    assert retention.run().resources_forgotten == 1
    assert FencedResource.objects.get().resource == "new"


def test_a_cleanup_reads_no_table_from_end_to_end() -> None:
    with CaptureQueriesContext(connection) as captured:
        retention.run()
        retention.count_due()
    assert len(captured.captured_queries) == 8
    assert scans([query["sql"] for query in captured.captured_queries]) == []


def test_the_command_counts_and_cleans() -> None:
    call(write())
    with pytest.raises(OSError, match="lost"):
        call_elsewhere(lose, key="k2")
    change(
        "UPDATE tools_idempotencykey SET keep_until = now(), remember_until = now()"
        " WHERE settled_at IS NOT NULL"
    )
    due = {"results_dropped": 1, "keys_forgotten": 1, "resources_forgotten": 0, "keys_open": 1}
    assert json.loads(_command("--json", "--dry-run")) == {"dry_run": True, **due}
    assert _command("--dry-run").startswith("Would drop 1 results; would forget 1 keys and 0")
    assert json.loads(_command("--json")) == {"dry_run": False, **due}
    assert _command() == (
        "Dropped 0 results; forgot 0 keys and 0 fenced resources. "
        "1 keys are in flight or unknown and stay.\n"
    )


def test_the_command_says_in_one_sentence_that_there_is_no_table() -> None:
    change("ALTER TABLE tools_idempotencykey RENAME TO elsewhere")
    try:
        with pytest.raises(CommandError, match=r"manage\.py migrate"):
            _command()
    finally:
        change("ALTER TABLE elsewhere RENAME TO tools_idempotencykey")


def _command(*arguments: str) -> str:
    said = StringIO()
    call_command("purge_keys", *arguments, stdout=said)
    return said.getvalue()


def _newest() -> int:
    return int(ask("SELECT max(id) FROM tools_idempotencykey"))

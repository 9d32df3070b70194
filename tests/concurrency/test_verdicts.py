"""Twenty people decide at once, each over a connection of their own."""

import threading
from collections import Counter
from contextlib import ExitStack
from functools import partial

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from approvals import sweeps
from approvals.errors import RanOut
from approvals.models import Verdict
from runs.models import AgentRun, Approval, Notice
from tests.concurrency.deciding import Said, say_next
from tests.concurrency.gate import gate, go_through_at_once
from tests.concurrency.test_claims import _statements_wait_after_their_snapshot, _wait_for_barrier
from tests.crash.conftest import NewLog
from tests.crash.forked import Child
from tests.database.approving import Start, asked, let_run_out, person, say
from tests.processes import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]

PROCESSES, PEOPLE = 2, 20


def click_at_once(approval: Approval, clicks: list[Said], new_log: NewLog) -> Counter[str]:
    """Every click at the same moment; how often each thing became of one."""
    shares = [clicks[start::PROCESSES] for start in range(PROCESSES)]
    logs = [new_log() for _ in shares]
    with ExitStack() as started:
        with gate(expected=len(clicks)):
            children = [
                started.enter_context(
                    Child(
                        partial(
                            go_through_at_once,
                            partial(say_next, approval.id, approval.fingerprint, share),
                            threads=len(share),
                            log=str(log),
                        ),
                        log=log,
                    )
                )
                for share, log in zip(shares, logs, strict=True)
            ]
        assert [child.wait() for child in children] == [0] * PROCESSES
    approval.refresh_from_db()
    return Counter(line for log in logs for line in log.read_text().splitlines())


def people() -> list[str]:
    return [person().username for _ in range(PEOPLE)]


def events(approval: Approval) -> list[str]:
    return list(
        Notice.objects.filter(run=approval.run_id, kind="approval.decided").values_list(
            "event_id", flat=True
        )
    )


def test_of_twenty_who_approve_at_once_one_decides(
    forks: None, start: Start, new_log: NewLog
) -> None:
    approval = asked(start)
    said = click_at_once(approval, [Said(name) for name in people()], new_log)
    assert said == {"approved": 1, "AlreadyDecided": PEOPLE - 1}
    assert Verdict.objects.get().name == approval.decided_by
    assert events(approval) == [f"approval.decided:{approval.id}"]


def test_of_ten_who_approve_and_ten_who_deny_at_once_one_decides(
    forks: None, start: Start, new_log: NewLog
) -> None:
    approval = asked(start)
    names = people()
    clicks = [
        Said(name, "approve" if place % 4 < 2 else "deny") for place, name in enumerate(names)
    ]
    said = click_at_once(approval, clicks, new_log)
    assert said == {approval.status: 1, "AlreadyDecided": PEOPLE - 1}
    assert approval.status in {"approved", "denied"}
    only = Verdict.objects.get()
    assert {"approve": "approved", "deny": "denied"}[only.verdict] == approval.status
    assert (
        Notice.objects.get(run=approval.run_id, kind="approval.decided").status == approval.status
    )


def test_one_person_who_clicks_twenty_times_is_heard_once(
    forks: None, start: Start, new_log: NewLog
) -> None:
    approval, robin = asked(start, quorum=2), person("robin")
    clicks = [Said(robin.username, event_id="click 1")] * PEOPLE
    said = click_at_once(approval, clicks, new_log)
    assert said == {"pending": 1, "AlreadySigned": PEOPLE - 1}
    assert Verdict.objects.count() == 1
    assert events(approval) == []


def test_one_event_that_twenty_people_send_is_heard_once(
    forks: None, start: Start, new_log: NewLog
) -> None:
    approval = asked(start, quorum=2)
    said = click_at_once(approval, [Said(name, event_id="e") for name in people()], new_log)
    assert said == {"pending": 1, "EventSeen": PEOPLE - 1}
    assert Verdict.objects.count() == 1


def test_of_twenty_who_sign_where_two_are_asked_for_two_are_counted(
    forks: None, start: Start, new_log: NewLog
) -> None:
    approval = asked(start, quorum=2)
    said = click_at_once(approval, [Said(name) for name in people()], new_log)
    assert said == {"pending": 1, "approved": 1, "AlreadyDecided": PEOPLE - 2}
    assert Verdict.objects.count() == 2
    assert events(approval) == [f"approval.decided:{approval.id}"]


def test_a_word_that_waits_for_the_run_is_judged_by_what_it_finds_then(start: Start) -> None:
    """Somebody holds the run while its approval runs out: the wait does not stretch the time."""
    approval, robin = asked(start), person("robin")
    refused: list[type[Exception]] = []

    def decide_slowly() -> None:
        try:
            say(approval, robin)
        except RanOut as error:
            refused.append(type(error))
        finally:
            connection.close()

    slow = threading.Thread(target=decide_slowly)
    with transaction.atomic():
        AgentRun.objects.select_for_update(no_key=True).get(id=approval.run_id)
        slow.start()
        wait_until(_somebody_waits, what="the word waits for the run's lock")
        let_run_out_from_elsewhere(approval)
    slow.join()
    assert refused == [RanOut]
    approval.refresh_from_db()
    assert approval.status == "pending"


def let_run_out_from_elsewhere(approval: Approval) -> None:
    elsewhere = threading.Thread(target=_run_out, args=(approval,))
    elsewhere.start()
    elsewhere.join()


def _run_out(approval: Approval) -> None:
    let_run_out(approval)
    connection.close()


def _somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


def test_the_sweep_leaves_a_run_that_somebody_decides_on_to_them(start: Start) -> None:
    approval = asked(start)
    let_run_out(approval)
    swept: list[sweeps.Swept] = []

    def sweep() -> None:
        swept.append(sweeps.run_once())
        connection.close()

    with transaction.atomic():
        AgentRun.objects.select_for_update(no_key=True).get(id=approval.run_id)
        elsewhere = threading.Thread(target=sweep)
        elsewhere.start()
        elsewhere.join()
    assert swept == [sweeps.Swept()]
    assert sweeps.run_once() == sweeps.Swept(expired=1)


def test_a_sweep_that_saw_a_request_pending_before_it_was_decided_reminds_nobody(
    start: Start,
) -> None:
    """Its statement sees the request pending, then waits, then gets the lock of the run."""
    approval = asked(start, remind_at=Now())
    reminded: list[int] = []
    with _statements_wait_after_their_snapshot() as (enter, leave, let_on):

        def sweep_slowly() -> None:
            enter()
            # The part of a sweep whose statement is to be slow.
            with transaction.atomic():
                reminded.append(sweeps._remind())
            leave()

        slow = threading.Thread(target=sweep_slowly)
        slow.start()
        _wait_for_barrier()
        say(approval, person())
        let_on()
        slow.join()
    assert reminded == [0]
    approval.refresh_from_db()
    assert approval.status == "approved"
    assert not Notice.objects.filter(kind="approval.reminder").exists()


def test_many_sweeps_at_once_expire_and_tell_once(start: Start) -> None:
    requests = [asked(start, remind_at=None) for _ in range(3)]
    for approval in requests:
        let_run_out(approval)
    ready, swept = threading.Barrier(6), []

    def sweep() -> None:
        ready.wait()
        swept.append(sweeps.run_once().expired)
        connection.close()

    threads = [threading.Thread(target=sweep) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(swept) == 3
    assert Notice.objects.filter(kind="approval.decided", status="expired").count() == 3

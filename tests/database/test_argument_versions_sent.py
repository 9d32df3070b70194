"""A tool takes other arguments than those that are stored: after something may have been sent."""

from typing import Any

import pytest

from runs import ToolCall, events
from runs.access import operator
from runs.engine import Slice, advance
from runs.errors import StillInFlight
from runs.models import AgentRun
from runs.resolution import resolve_operation
from runs.serving import UNSERVED_SECONDS
from runs.watch import watch
from tests.database.kit import (
    KEYED,
    LOST,
    Script,
    call_once,
    change,
    dies_at,
    drive,
    drive_in_time,
    drive_late,
    drive_when_due,
    expire_lease,
    found,
    incidents,
    let_pass,
    make_due,
    operation_edges,
    scripted_tool,
    verdicts,
)
from tests.database.redeploying import (
    DEPLOYED,
    Start,
    in_cents,
    old_worker_lives,
    operations_of,
    outcomes_of,
    pay_any,
    pay_version,
    redeployed,
)
from tests.database.sagas import Books, compensated, compensations, failing_run, stuck
from tests.database.settling import end_worker
from tools import Approve, Call, EffectType, Reconciled, tool
from tools.registry import isolated_registry

pytestmark = pytest.mark.django_db(transaction=True)

OLD = {"amount": 1}
UNKNOWN, PERSON = "TOOL_STATUS_UNKNOWN", "WAITING_FOR_RESOLUTION"


def _lost(start: Start, **declared: Any) -> tuple[AgentRun, Script]:
    """A run whose `pay(amount=1)` may have taken effect, and is due to be asked about."""
    script = scripted_tool(LOST, "sent again by the old tool", **declared)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    make_due(run)
    assert run.state == UNKNOWN
    return run, script


def never(call: Call) -> Reconciled[Any]:
    return Reconciled.not_found()


def by_arguments(call: Call) -> Reconciled[Any]:
    return found(dict(call.arguments))


# -- Never again as it is ------------------------------------------------------


def test_it_is_not_sent_again_under_its_key(start: Start) -> None:
    run, old_script = _lost(start)
    with isolated_registry():
        script = pay_any("paid", reconcile_handler=never)
        drive(run)
    # Of an unchanged tool the same key would have been sent at once.
    assert (run.state, script.calls, len(old_script.calls)) == (UNKNOWN, [], 1)


def test_a_proof_commits_it_all_the_same(start: Start) -> None:
    run, _ = _lost(start)
    with redeployed(reconcile_handler=lambda call: found({"id": "re_1"})) as script:
        drive(run)
    assert (run.state, run.result, script.calls) == ("COMPLETED", {"id": "re_1"}, [])
    assert outcomes_of(run) == [("COMMITTED", "", OLD)]


def test_without_a_look_up_it_is_a_persons(start: Start) -> None:
    run, _ = _lost(start)
    with redeployed(migrate_arguments=in_cents) as script:
        drive(run)
    assert (run.state, script.calls) == (PERSON, [])
    assert "stored for another version of its tool" in operations_of(run)[0].error


def test_what_look_ups_do_not_settle_in_time_is_a_persons(start: Start) -> None:
    run, _ = _lost(start)
    unsure = Reconciled.indeterminate("it cannot say")
    with redeployed(reconcile_handler=lambda call: unsure) as script:
        drive_late(run)
    assert (run.state, script.calls) == (PERSON, [])
    assert incidents(run) == [("OVERDUE", "")]


@pytest.mark.parametrize("effect", [EffectType.IDEMPOTENT_WRITE, EffectType.NON_IDEMPOTENT_WRITE])
def test_once_it_is_settled_that_it_did_not_happen_it_is_planned_anew(
    start: Start, effect: EffectType
) -> None:
    run, _ = _lost(start, effect=effect)
    now: dict[str, Any] = {"effect_type": effect, "migrate_arguments": in_cents}
    with redeployed(reconcile_handler=never, **now) as script:
        drive_in_time(run)
    assert (run.state, [call.arguments for call in script.calls]) == (
        "COMPLETED",
        [{"cents": 100}],
    )
    old, new = operations_of(run)
    assert script.calls[0].idempotency_key == new.id
    edges = operation_edges(run)
    assert edges[2:5] == ["LOSE_OUTCOME", "NOT_SENT", "REPLACE"]
    # It may still take effect late: then it is an incident, and never hidden.
    assert old.next_watch_at is not None


def test_a_lost_read_is_migrated_and_made_anew(start: Start) -> None:
    run, _ = _lost(start, effect=EffectType.READ, provider=None)
    now: dict[str, Any] = {"effect_type": EffectType.READ, "migrate_arguments": in_cents}
    with redeployed("seen", provider=None, **now) as script:
        drive(run)
    assert (run.result, script.calls[0].arguments) == ("seen", {"cents": 100})


def test_an_irreversible_call_is_a_persons_as_ever(start: Start) -> None:
    fits: dict[str, Any] = {"approval_policy": Approve(when="false")}
    run, _ = _lost(start, effect=EffectType.IRREVERSIBLE, **fits)
    now: dict[str, Any] = {"effect_type": EffectType.IRREVERSIBLE, "migrate_arguments": in_cents}
    with redeployed(reconcile_handler=never, **fits, **now) as script:
        drive_in_time(run)
    assert (run.state, script.calls) == (PERSON, [])


# -- What a look-up may read ---------------------------------------------------


def test_a_look_up_reads_the_migrated_arguments(start: Start) -> None:
    run, _ = _lost(start)
    with redeployed(reconcile_handler=by_arguments, migrate_arguments=in_cents):
        drive(run)
    assert (run.state, run.result) == ("COMPLETED", {"cents": 100})


def test_a_look_up_that_reads_what_nobody_can_migrate_is_none(start: Start) -> None:
    run, _ = _lost(start)
    with redeployed(reconcile_handler=by_arguments):
        drive(run)
    assert run.state == UNKNOWN
    assert verdicts(run)[-1] == ("look_up", "failed")
    seen = operations_of(run)[0].observations.latest("id")
    assert "declares no migrate_arguments" in seen.detail


def test_a_look_up_by_the_operations_id_needs_no_arguments(start: Start) -> None:
    run, _ = _lost(start)
    [operation] = operations_of(run)
    with redeployed(reconcile_handler=lambda call: found(call.operation_id)):
        drive(run)
    assert run.result == operation.id


def test_a_watch_reads_no_outdated_arguments_either(start: Start) -> None:
    run, _ = _lost(start)
    [operation] = operations_of(run)
    end_worker("worker 1")
    resolve_operation(
        actor=operator(), operation_id=operation.id, outcome="rejected", evidence="no trace"
    )
    let_pass(minutes=2)
    with redeployed(reconcile_handler=by_arguments):
        seen = watch(operation.id)
    assert seen is not None
    assert (seen.verdict, incidents(run)) == ("failed", [])


# -- Left to those who can -----------------------------------------------------


def test_it_is_left_to_a_living_worker_that_may_send_it_again(start: Start) -> None:
    run, old_script = _lost(start)
    before = pay_version()
    with redeployed(migrate_arguments=in_cents) as script, old_worker_lives(before):
        drive(run)
        assert (run.state, script.calls) == (UNKNOWN, [])
        left = run.wake_at - run.updated_at
        assert 0 < left.total_seconds() <= UNSERVED_SECONDS + 1
    drive_when_due(run)
    assert run.result == "sent again by the old tool"
    assert len(old_script.calls) == 2


def test_it_is_left_to_them_no_longer_than_its_objective(start: Start) -> None:
    run, _ = _lost(start)
    before = pay_version()
    with redeployed(migrate_arguments=in_cents) as script, old_worker_lives(before):
        let_pass(hours=2)
        change("UPDATE runs_worker SET last_seen_at = now()")
        drive_when_due(run)
    assert (run.state, script.calls) == (PERSON, [])


# -- A person's word -----------------------------------------------------------


def test_nobody_denies_what_its_sender_may_yet_send_under_another_key(start: Start) -> None:
    scripted_tool("never heard")
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_STARTING):
        drive(run, owner="sleeper")
    expire_lease(run)
    [operation] = operations_of(run)

    def deny() -> None:
        resolve_operation(
            actor=operator(), operation_id=operation.id, outcome="not_committed", evidence="none"
        )

    with redeployed(migrate_arguments=in_cents) as script:
        drive(run)
        let_pass(hours=1)
        with pytest.raises(StillInFlight, match="sleeper"):
            deny()
        end_worker("sleeper")
        deny()
        run.refresh_from_db()
        drive(run)
    assert [call.arguments for call in script.calls] == [{"cents": 100}]


# -- Corrections ---------------------------------------------------------------


def _failing(start: Start, books: Books, handler: Any) -> AgentRun:
    """A run whose `do_a(amount=7)` took effect, and which is about to fail and correct it."""
    books.define_undo("a")
    scripted_tool(books.entry("do_a"), name="do_a", compensation_handler=handler, provider=KEYED)
    run = failing_run(start, "a")
    advance(run_id=run.id, owner="worker 1", turn=Slice(steps=1))
    run.refresh_from_db()
    assert run.state == "READY"
    return run


def _redeploy_do_a(books: Books, handler: Any, migrate: Any = None) -> None:
    books.define_undo("a")

    @tool(name="do_a", **DEPLOYED | {"compensation_handler": handler, "migrate_arguments": migrate})
    def act(call: Call, amount: int, currency: str = "EUR") -> None:
        """Do."""


def test_a_correction_by_arguments_of_another_version_waits_for_a_person(start: Start) -> None:
    books = Books()
    run = _failing(start, books, "undo_a")
    with isolated_registry():
        _redeploy_do_a(books, "undo_a")
        stuck(run)
    assert "do_a were stored for version" in run.pause_reason
    assert books.names == ["do_a"]


def test_a_correction_gets_the_migrated_arguments(start: Start) -> None:
    books = Books()
    run = _failing(start, books, "undo_a")
    with isolated_registry():
        _redeploy_do_a(books, "undo_a", lambda old, version: {"amount": old["amount"] + 1})
        compensated(run)
    assert [one.arguments for one in compensations(run)] == [{"amount": 8}]


@pytest.mark.parametrize("reads", [True, False])
def test_a_handler_that_reads_outdated_arguments_fails_and_any_other_goes_on(
    start: Start, reads: bool
) -> None:
    books = Books()

    def handler(call: Call) -> ToolCall:
        effect = call.compensates
        assert effect is not None
        return ToolCall("undo_a", amount=effect.arguments["amount"] if reads else 3)

    run = _failing(start, books, handler)
    with isolated_registry():
        _redeploy_do_a(books, handler)
        if reads:
            assert "OutdatedArguments" in stuck(run).pause_reason
        else:
            assert [one.arguments for one in compensations(compensated(run))] == [{"amount": 3}]

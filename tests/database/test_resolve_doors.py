"""A person's word on an unknown operation, over the API and by the command: one law, two doors."""

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.models.functions import Now

from runs.access import operator
from runs.engine import advance
from runs.models import AgentRun, ToolObservation, ToolOperation, Transition
from runs.resolution import resolve_operation
from tests.database.callers import Caller, caller
from tests.database.stories import SECRET, Start, parked_run, uncertain_run

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)

WORD = {"outcome": "committed", "evidence": "seen in the ledger, entry 5"}
GOOD = {**WORD, "external_ref": "re_9", "result": {"refund": 9}}


@pytest.fixture
def api() -> Caller:
    return caller(username="robin")


def address(run: AgentRun) -> str:
    return f"operations/{run.operations.get().id}/resolve/"


def written() -> list[Any]:
    """Everything that a resolution may write."""
    return [
        list(AgentRun.objects.order_by("id").values("state", "version", "result", "error")),
        list(ToolOperation.objects.order_by("id").values("status", "result", "external_ref")),
        Transition.objects.count(),
        ToolObservation.objects.count(),
    ]


def hold(run: AgentRun) -> None:
    """Let a worker be at work on the run."""
    AgentRun.objects.filter(pk=run.pk).update(
        lease_owner="worker 7", lease_expires_at=Now() + timedelta(minutes=1)
    )


def keep_in_flight(run: AgentRun) -> None:
    """Let the run's send be on its way."""
    run.operations.update(in_flight_until=Now() + timedelta(minutes=1))


def settled(run: AgentRun) -> None:
    """Let somebody else be first."""
    resolve_operation(actor=operator("sam"), operation_id=run.operations.get().id, **WORD)  # type: ignore[arg-type]


# -- What each outcome does ------------------------------------------------------------


def test_committed_records_the_effect_and_the_run_goes_on_after_it(
    api: Caller, start: Start
) -> None:
    run = parked_run(start)
    answer = api.post(address(run), GOOD)
    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["status"], shown["external_ref"]) == ("COMMITTED", "re_9")
    assert shown["result"] == {"refund": 9}
    assert shown["attempts"] == 1
    assert shown == api.get(f"operations/{shown['operation_id']}/").json()
    advance(run_id=run.id, owner="third")
    run.refresh_from_db()
    assert run.result == {"status": "COMMITTED", "result": {"refund": 9}}
    assert run.operations.get().attempts == 1


def test_not_committed_sends_the_same_operation_again(api: Caller, start: Start) -> None:
    run = parked_run(start)
    before = run.operations.get()
    shown = api.post(address(run), {"outcome": "not_committed", "evidence": "no entry"}).json()
    assert (shown["status"], shown["operation_id"]) == ("PREPARED", before.id)
    advance(run_id=run.id, owner="third")
    run.refresh_from_db()
    after = run.operations.get()
    assert run.state == "COMPLETED"
    assert (after.id, after.idempotency_key) == (before.id, before.idempotency_key)
    assert (after.status, after.attempts) == ("COMMITTED", 2)


def test_rejected_closes_it_and_nothing_is_sent(api: Caller, start: Start) -> None:
    run = parked_run(start)
    shown = api.post(address(run), {"outcome": "rejected", "evidence": "account closed"}).json()
    assert shown["status"] == "REJECTED"
    assert "account closed" in shown["error"]
    advance(run_id=run.id, owner="third")
    run.refresh_from_db()
    assert run.result["status"] == "REJECTED"
    assert run.operations.get().attempts == 1


def test_who_said_it_and_why_stands_in_the_journal_and_in_the_evidence(
    api: Caller, start: Start
) -> None:
    run = parked_run(start)
    shown = api.post(address(run), GOOD).json()
    edge = Transition.objects.filter(operation=shown["operation_id"]).latest("id")
    assert (edge.actor, edge.from_state, edge.to_state) == ("robin", "UNKNOWN", "COMMITTED")
    assert WORD["evidence"] in edge.reason
    word = shown["observations"][-1]
    assert (word["source"], word["verdict"]) == ("person", "committed")
    assert (word["detail"], word["external_ref"]) == (WORD["evidence"], "re_9")


def test_an_operation_that_is_still_being_asked_about_may_be_settled_too(
    api: Caller, start: Start
) -> None:
    run = uncertain_run(start, found=False)
    assert run.state == "TOOL_STATUS_UNKNOWN"
    assert api.post(address(run), GOOD).json()["status"] == "COMMITTED"


def test_evidence_that_repeats_a_secret_is_shown_without_it(api: Caller, start: Start) -> None:
    run = parked_run(start)
    shown = api.post(
        address(run), {**GOOD, "evidence": f"card {SECRET}", "result": {"card": SECRET}}
    )
    assert shown.status_code == 200
    assert SECRET not in shown.content.decode()
    assert SECRET not in api.get(f"runs/{run.id}/timeline/").content.decode()


# -- Conflicts -------------------------------------------------------------------------


def test_what_is_settled_stays_settled(api: Caller, start: Start) -> None:
    run = parked_run(start)
    settled(run)
    before = written()
    for outcome in ("committed", "not_committed", "rejected"):
        answer = api.post(address(run), {"outcome": outcome, "evidence": "I know better"})
        assert answer.status_code == 409
        assert answer.json()["type"].endswith("already-settled")
        assert answer.json()["value"] == "COMMITTED"
    assert written() == before


def test_while_a_send_is_on_its_way_only_an_effect_can_be_known(api: Caller, start: Start) -> None:
    run = parked_run(start)
    keep_in_flight(run)
    before = written()
    for outcome in ("not_committed", "rejected"):
        answer = api.post(address(run), {"outcome": outcome, "evidence": "no entry"})
        assert answer.status_code == 409
        assert answer.json()["type"].endswith("still-in-flight")
    after = written()
    assert after[1:] == before[1:]
    assert api.post(address(run), GOOD).status_code == 200


def test_what_our_own_evidence_proves_cannot_be_denied(api: Caller, start: Start) -> None:
    run = parked_run(start)
    ToolObservation.objects.create(
        run=run,
        operation=run.operations.get(),
        source=ToolObservation.Source.STALE_WORKER,
        verdict=ToolObservation.Verdict.COMMITTED,
        external_ref="re_5",
        attempt=1,
        fence_token=1,
    )
    before = written()
    for outcome in ("not_committed", "rejected"):
        answer = api.post(address(run), {"outcome": outcome, "evidence": "no entry"})
        assert answer.status_code == 409
        assert answer.json()["type"].endswith("proven-committed")
    assert written()[1:] == before[1:]
    assert api.post(address(run), GOOD).status_code == 200


def test_a_run_that_a_worker_holds_is_to_be_tried_again(api: Caller, start: Start) -> None:
    run = parked_run(start)
    hold(run)
    before = written()
    answer = api.post(address(run), GOOD)
    assert answer.status_code == 409
    assert answer.json()["type"].endswith("run-held")
    assert answer["Retry-After"] == "1"
    assert written() == before


def test_of_many_persons_at_once_one_is_heard(start: Start) -> None:
    run = parked_run(start)
    people = [caller(username=f"person{n}") for n in range(4)]
    ready, answers = Barrier(len(people)), []

    def say(person: Caller, outcome: str) -> None:
        ready.wait()
        answers.append(person.post(address(run), {"outcome": outcome, "evidence": "so I saw"}))
        connection.close()

    outcomes = ("committed", "rejected", "not_committed", "committed")
    threads = [Thread(target=say, args=pair) for pair in zip(people, outcomes, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert ToolObservation.objects.filter(source="person").count() == 1


# -- What does not fit -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({}, "outcome", ["required"]),
        ({"outcome": "committed"}, "evidence", ["required"]),
        ({**WORD, "outcome": "commited"}, "outcome", ["'commited'", "not_committed"]),
        ({**WORD, "outcome": None}, "outcome", ["not_committed"]),
        ({**WORD, "evidence": ""}, "evidence", ["0 characters", "how you know"]),
        ({**WORD, "evidence": " \n "}, "evidence", ["how you know"]),
        ({**WORD, "evidence": "a\0b"}, "evidence", ["NUL"]),
        ({**WORD, "evidence": "\ud800"}, "evidence", ["unicode"]),
        ({**WORD, "evidence": "x" * 2_001}, "evidence", ["2000"]),
        ({**WORD, "evidence": 5}, "evidence", ["string"]),
        ({**WORD, "external_ref": "x" * 256}, "external_ref", ["255"]),
        ({**WORD, "external_ref": "re\0"}, "external_ref", ["NUL"]),
        ({**WORD, "result": {"a": float("nan")}}, "result.a", ["finite"]),
        ({**WORD, "result": {"a": "\0"}}, "result.a", ["NUL"]),
        ({**WORD, "evidance": "typo"}, "evidance", ["Did you mean evidence?"]),
        ({**WORD, "outcome": "rejected", "result": 1}, "result", ["Leave it out"]),
        ({**WORD, "outcome": "not_committed", "external_ref": "r"}, "external_ref", ["Leave it"]),
        ([1], "body", ["object"]),
    ],
)
def test_a_bad_word_is_refused_by_name_and_writes_nothing(
    api: Caller, start: Start, body: Any, field: str, words: list[str]
) -> None:
    run = parked_run(start)
    before = written()
    answer = api.post(address(run), body)
    assert answer.status_code == 400
    problem = answer.json()
    assert problem["field"] == field
    assert all(word in json.dumps(problem, ensure_ascii=False) for word in words), problem
    assert written() == before


@pytest.mark.parametrize("operation_id", ["op_0", "%00", "x" * 500])
def test_an_operation_that_does_not_exist_is_404(api: Caller, operation_id: str) -> None:
    answer = api.post(f"operations/{operation_id}/resolve/", WORD)
    assert answer.status_code == 404
    assert answer.json()["type"].endswith("unknown-operation")


def test_a_token_without_the_scope_settles_nothing(start: Start) -> None:
    run = parked_run(start)
    before = written()
    answer = caller("read", "runs:write", "operations:reconcile").post(address(run), WORD)
    assert answer.status_code == 403
    assert answer.json()["value"] == "operations:resolve"
    assert written() == before


# -- The command -----------------------------------------------------------------------


def told(*command: str) -> str:
    out = StringIO()
    call_command("resolve_operation", *command, stdout=out)
    return out.getvalue()


def say(operation: str, outcome: str = "committed", *more: str) -> list[str]:
    return [operation, "--outcome", outcome, "--evidence", "seen in the ledger", *more]


def test_the_command_settles_and_says_what_became_of_it(start: Start, tmp_path: Path) -> None:
    run = parked_run(start)
    operation = run.operations.get()
    file = tmp_path / "result.json"
    file.write_text('{"refund": 9}', encoding="utf-8")
    text = told(*say(operation.id, "committed", "--external-ref", "re_9", "--result", f"@{file}"))
    assert f"Operation {operation.id} is COMMITTED" in text
    assert str(run.id) in text
    operation.refresh_from_db()
    assert (operation.result, operation.external_ref) == ({"refund": 9}, "re_9")
    assert operation.journal.latest("id").actor == "command line"


def test_the_command_prints_the_operation_for_programs(start: Start) -> None:
    run = parked_run(start)
    shown = json.loads(told(*say(run.operations.get().id, "rejected", "--json")))
    assert shown["status"] == "REJECTED"
    assert shown["observations"][-1]["source"] == "person"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--outcome", "maybe"], ["outcome", "maybe", "not_committed"]),
        (["--evidence", " "], ["evidence", "how you know"]),
        (["--result", "{"], ["--result", "no JSON"]),
        (["--result", "@/nowhere/x.json"], ["--result", "/nowhere/x.json", "read"]),
        (["--result", "@a\0b"], ["--result", "read"]),
        (["--result", "NaN"], ["result", "finite"]),
        (["--outcome", "rejected", "--result", "1"], ["result", "Leave it out"]),
    ],
)
def test_the_command_names_what_does_not_fit(
    start: Start, change: list[str], words: list[str]
) -> None:
    run = parked_run(start)
    before = written()
    with pytest.raises(CommandError) as caught:
        told(*say(run.operations.get().id), *change)
    assert caught.value.returncode == 1
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert written() == before


def test_the_command_meets_the_same_conflicts(start: Start) -> None:
    with pytest.raises(CommandError, match="there is no operation 'op_0'"):
        told(*say("op_0"))
    run = parked_run(start)
    operation = run.operations.get().id
    keep_in_flight(run)
    with pytest.raises(CommandError, match="on its way until"):
        told(*say(operation, "rejected"))
    settled(run)
    with pytest.raises(CommandError, match="is COMMITTED"):
        told(*say(operation, "rejected"))

"""The incident timeline: complete, in order, in pages, and without secrets."""

from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.access import operator
from runs.commands import reconcile_now
from runs.engine import advance
from runs.errors import InvalidInput
from runs.models import AgentRun, Incident, ToolObservation, Transition
from runs.paging import Page
from runs.resolution import resolve_operation
from runs.shapes import TimelineEntry
from runs.timeline import read_newest, read_timeline
from tests.database.callers import caller
from tests.database.stories import (
    SECRET,
    Start,
    parked_run,
    reconciled_run,
    taken_over_run,
    uncertain_run,
)
from tools import Call, EffectType, tool

FIELDS = {
    "at",
    "seq",
    "kind",
    "actor",
    "run_id",
    "step_number",
    "attempt",
    "operation_id",
    "fence_token",
    "from",
    "to",
    "reason",
    "prompt_version",
    "llm_version",
    "tool_version",
    "policy_version",
    "approval_id",
    "external_ref",
    "timeout_stage",
    "reconciliation_result",
    "evidence",
}

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)


def whole(run: AgentRun) -> list[TimelineEntry]:
    return list(read_timeline(run_id=run.id).items)


def the(entries: list[TimelineEntry], kind: str) -> TimelineEntry:
    (found,) = [entry for entry in entries if entry.kind == kind]
    return found


def test_every_journal_row_and_every_observation_is_in_it(start: Start) -> None:
    run = reconciled_run(start)
    entries = whole(run)
    kinds = [entry.kind for entry in entries]
    assert kinds[0] == "run.create"
    assert kinds[-1] == "run.complete"
    assert sum(kind.startswith("observation.") for kind in kinds) == 2
    assert len(entries) == (
        Transition.objects.filter(run=run).count() + ToolObservation.objects.count()
    )
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)


def test_the_edges_of_the_run_form_one_chain(start: Start) -> None:
    edges = [entry for entry in whole(reconciled_run(start)) if entry.kind.startswith("run.")]
    assert edges[0].from_state is None
    for before, after in pairwise(edges):
        assert after.from_state == before.to_state


def test_what_was_learned_stands_before_what_it_led_to(start: Start) -> None:
    kinds = [entry.kind for entry in whole(reconciled_run(start))]
    assert kinds.index("observation.worker") < kinds.index("operation.lose_outcome")
    assert kinds.index("observation.look_up") < kinds.index("operation.commit")


def test_a_lost_answer_tells_who_sent_what_under_which_token(start: Start) -> None:
    entries = whole(reconciled_run(start))
    lost = the(entries, "operation.lose_outcome")
    assert (lost.actor, lost.fence_token, lost.step_number, lost.attempt) == ("first", 1, 1, 1)
    assert (lost.from_state, lost.to_state) == ("RUNNING", "UNKNOWN")
    assert lost.operation_id is not None
    assert lost.tool_version is not None
    assert lost.policy_version is not None
    seen = the(entries, "observation.worker")
    assert (seen.actor, seen.operation_id) == ("first", lost.operation_id)
    assert seen.evidence is not None
    assert seen.evidence["verdict"] == "unknown"


def test_a_reconciliation_tells_what_the_provider_said(start: Start) -> None:
    entries = whole(reconciled_run(start))
    seen = the(entries, "observation.look_up")
    assert (seen.actor, seen.fence_token, seen.attempt) == ("second", 2, 2)
    assert seen.reconciliation_result == "committed"
    assert seen.external_ref == "re_1"
    committed = the(entries, "operation.commit")
    assert (committed.actor, committed.external_ref) == ("second", "re_1")
    assert "run.resume" in [entry.kind for entry in entries]


def test_a_take_over_shows_both_workers_and_both_tokens(start: Start) -> None:
    run = taken_over_run(start)
    assert run.state == "COMPLETED"
    entries = whole(run)
    taken = the(entries, "run.take_over")
    assert (taken.actor, taken.fence_token) == ("second", 2)
    assert "token 2" in taken.reason
    sent = [entry for entry in entries if entry.kind == "operation.send"]
    assert (sent[0].actor, sent[0].fence_token) == ("first", 1)


def test_what_a_take_over_found_is_told_by_whoever_took_over(start: Start) -> None:
    entries = whole(taken_over_run(start))
    found = the(entries, "observation.take_over")
    # It speaks about the send of the first worker, under the first token.
    assert (found.actor, found.fence_token, found.attempt) == ("second", 1, 1)
    assert found.evidence is not None
    assert found.evidence["send"] == 1
    kinds = [entry.kind for entry in entries]
    assert kinds.index("observation.take_over") < kinds.index("run.take_over")


def test_a_send_shows_when_its_bytes_may_have_left(start: Start) -> None:
    seen = the(whole(uncertain_run(start)), "observation.worker")
    assert seen.evidence is not None
    window = seen.evidence["window"]
    assert window["opened_at"] <= window["returned_at"] <= window["deadline"]


def test_a_person_s_word_stands_under_their_name_with_their_evidence(start: Start) -> None:
    run = parked_run(start)
    resolve_operation(
        actor=operator("robin"),
        operation_id=run.operations.get().id,
        outcome="committed",
        evidence=f"seen in the ledger, card {SECRET}",
        external_ref="re_9",
    )
    entries = whole(run)
    word = the(entries, "observation.person")
    assert (word.actor, word.external_ref) == ("robin", "re_9")
    assert word.reason == "seen in the ledger, card [redacted]"
    kinds = [entry.kind for entry in entries]
    assert kinds.index("observation.person") < kinds.index("operation.commit")
    assert the(entries, "operation.commit").actor == "robin"
    assert SECRET not in str(entries)


def run_with_incidents(start: Start) -> AgentRun:
    """A reconciled run with an incident in its middle and two after its end."""
    run = uncertain_run(start)
    open_incident(run, Incident.Kind.OVERDUE, "")
    reconcile_now(actor=operator())
    advance(run_id=run.id, owner="second")
    open_incident(run, Incident.Kind.LATE_COMMIT, "re_2")
    open_incident(run, Incident.Kind.DUPLICATE, "re_3")
    return run


def open_incident(run: AgentRun, kind: str, ref: str) -> None:
    Incident.objects.create(
        run=run,
        operation=run.operations.get(),
        kind=kind,
        external_ref=ref,
        detail=f"found for {SECRET}",
    )


def test_an_incident_stands_where_it_was_found(start: Start) -> None:
    entries = whole(run_with_incidents(start))
    kinds = [entry.kind for entry in entries]
    assert kinds.index("run.lose_outcome") < kinds.index("incident.overdue")
    assert kinds.index("incident.overdue") < kinds.index("observation.look_up")
    assert kinds[-3:] == ["run.complete", "incident.late_commit", "incident.duplicate"]
    late = entries[-2]
    assert late.external_ref == "re_2"
    assert late.operation_id is not None
    assert late.reason == (
        "An effect appeared after its operation was closed: found for [redacted]"
    )
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)


def test_a_decision_tells_who_decided(start: Start) -> None:
    entries = whole(reconciled_run(start))
    first, last = [entry for entry in entries if entry.kind == "run.record_decision"]
    assert first.evidence is not None
    assert last.evidence is not None
    assert (first.evidence["decision"], last.evidence["decision"]) == ("call_tools", "finish")
    assert "decide" in first.evidence["decider"]
    assert list(first.evidence["tool_versions"]) == ["refund"]


def test_every_edge_has_a_reason(start: Start) -> None:
    assert all(entry.reason for entry in whole(reconciled_run(start)))


def test_no_secret_is_in_it(start: Start) -> None:
    run = reconciled_run(start)
    assert any(SECRET in str(one.result) for one in ToolObservation.objects.all())
    assert SECRET not in str(whole(run))
    assert "[redacted]" in str(whole(run))


def test_pages_lead_through_it_forwards_and_backwards(start: Start) -> None:
    run = run_with_incidents(start)
    entries = whole(run)
    assert sum(entry.kind.startswith("incident.") for entry in entries) == 3
    for size in (1, 3, len(entries), 1000):
        forwards, last = read_on(run, size)
        assert forwards == entries
        assert read_back(run, last, size) == entries


def read_on(run: AgentRun, size: int) -> tuple[list[TimelineEntry], Page[TimelineEntry]]:
    page = read_timeline(run_id=run.id, size=size)
    assert page.previous is None
    entries = list(page.items)
    while page.next is not None:
        page = read_timeline(run_id=run.id, cursor=page.next, size=size)
        entries += page.items
    return entries, page


def read_back(run: AgentRun, page: Page[TimelineEntry], size: int) -> list[TimelineEntry]:
    entries = list(page.items)
    while page.previous is not None:
        later = page
        page = read_timeline(run_id=run.id, cursor=page.previous, size=size)
        assert page.next is not None
        again = read_timeline(run_id=run.id, cursor=page.next, size=len(later.items))
        assert again.items == later.items
        entries = [*page.items, *entries]
    return entries


def test_the_newest_page_ends_with_the_end(start: Start) -> None:
    run = run_with_incidents(start)
    entries = whole(run)
    for size in (1, 5, len(entries), 1000):
        newest = read_newest(run_id=run.id, size=size)
        assert list(newest.items) == entries[-size:]
        assert newest.next is None
        assert (newest.previous is None) == (size >= len(entries))


def test_entries_that_come_later_are_on_the_next_page(start: Start) -> None:
    run = uncertain_run(start)
    before = whole(run)
    page = read_timeline(run_id=run.id, size=len(before) - 1)
    ToolObservation.objects.create(
        run=run,
        operation=run.operations.get(),
        source=ToolObservation.Source.STALE_WORKER,
        verdict=ToolObservation.Verdict.COMMITTED,
        attempt=1,
        fence_token=1,
    )
    rest = read_timeline(run_id=run.id, cursor=page.next, size=100)
    assert [*page.items, *rest.items][:-1] == before
    late = rest.items[-1]
    assert (late.kind, late.seq) == ("observation.stale_worker", len(before) + 1)
    assert late.reason == "It happened"


def test_other_runs_are_not_in_it(start: Start) -> None:
    one = reconciled_run(start)
    other = start(decider=lambda context: Finish())
    advance(run_id=other.id, owner="test")
    assert {entry.run_id for entry in whole(one)} == {one.id}
    assert {entry.run_id for entry in whole(other)} == {other.id}


def long_run(start: Start, *, steps: int) -> AgentRun:
    def decide(context: Context) -> Decision:
        if context.step_number > steps:
            return Finish()
        return CallTools(*(ToolCall("look", n=context.step_number) for _ in range(2)))

    run = start(decider=decide, tools=("look",))
    advance(run_id=run.id, owner="test")
    run.refresh_from_db()
    assert run.state == "COMPLETED"
    return run


def test_it_costs_the_same_however_long_it_is(start: Start) -> None:
    @tool(effect_type=EffectType.READ)
    def look(call: Call, n: int) -> int:
        """Look."""
        return n

    def queries(run: AgentRun) -> int:
        with CaptureQueriesContext(connection) as captured:
            read_timeline(run_id=run.id)
        return len(captured)

    assert queries(long_run(start, steps=1)) == queries(long_run(start, steps=12)) == 9


@pytest.mark.django_db
@pytest.mark.parametrize("cursor", ["", "x", "%00", "eyJzZXEiOi0xfQ", "eyJiYWNrIjoieCJ9", "W10"])
def test_a_foreign_cursor_is_refused(start: Start, cursor: str) -> None:
    run = start(decider=lambda context: Finish())
    with pytest.raises(InvalidInput, match="cursor"):
        read_timeline(run_id=run.id, cursor=cursor)


def test_the_api_shows_the_fields_of_the_contract(start: Start) -> None:
    run = reconciled_run(start)
    api = caller()
    page = api.get(f"runs/{run.id}/timeline/").json()
    assert set(page) == {"next", "previous", "results"}
    assert page["next"] is None
    entries: list[dict[str, Any]] = page["results"]
    assert all(set(entry) == FIELDS for entry in entries)
    assert (entries[0]["from"], entries[0]["to"]) == (None, "READY")
    short = api.get(f"runs/{run.id}/timeline/", page_size=4).json()
    assert short["results"] == entries[:4]
    assert api.get(short["next"]).json()["results"] == entries[4:8]

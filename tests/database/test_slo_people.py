"""What is counted of requests for signatures, of answers, incidents, audits and llms."""

from datetime import timedelta
from decimal import Decimal

import pytest

from approvals import sweeps
from runs.models import AgentRun, EffectAudit, Incident, LlmRequest
from runs.slo.measures import Measure
from tests.database.approving import let_run_out, person, say
from tests.database.gating import PAID, Start, held, request_of, run_out_unused, sign
from tests.database.kit import drive, operation_of
from tests.database.llm_rows import BAD, DOWN, USED
from tests.database.slo_sums import buckets, clock, counts, grow_older, sums, tools, total
from tests.database.test_gate_moves import propose_500

pytestmark = pytest.mark.django_db(transaction=True)


def of_approvals() -> dict[str, int]:
    return {
        name.removeprefix("approvals_"): count
        for name, count in counts().items()
        if name.startswith("approvals_")
    }


def test_a_request_that_is_signed_as_it_was_asked(start: Start) -> None:
    run, _ = held(start)
    grow_older(minutes=10)
    sign(run)
    drive(run)
    assert of_approvals() == {"unchanged": 1}
    assert tools(Measure.APPROVALS_UNCHANGED) == {"pay": 1}
    assert buckets(Measure.APPROVAL_SECONDS) == {900: 1}


def test_a_change_counts_once_and_the_signature_on_it_by_itself(start: Start) -> None:
    run, _ = held(start)
    propose_500(run)
    assert of_approvals() == {"changed": 1}
    sign(run)
    drive(run)
    assert of_approvals() == {"changed": 1, "unchanged": 1}


def test_a_request_that_is_refused(start: Start) -> None:
    run, _ = held(start)
    say(request_of(run), person(), "deny")
    drive(run)
    assert of_approvals() == {"denied": 1}
    assert sum(buckets(Measure.APPROVAL_SECONDS).values()) == 1


def test_a_request_that_runs_out_was_decided_by_nobody(start: Start) -> None:
    run, _ = held(start)
    let_run_out(request_of(run))
    sweeps.run_once()
    drive(run)
    assert of_approvals() == {"expired": 1}
    assert buckets(Measure.APPROVAL_SECONDS) == {}
    assert counts().get("runs_touched") is None


def test_what_was_signed_and_is_not_what_would_leave_is_a_mismatch(start: Start) -> None:
    versions = iter(("1", "2", "2"))
    run, script = held(start, PAID, resource_version=lambda call: next(versions))
    sign(run)
    drive(run)
    assert (run.state, script.calls) == ("WAITING_FOR_APPROVAL", [])
    assert of_approvals() == {"unchanged": 1, "mismatched": 1}


def test_a_signature_that_ran_out_unused_is_no_mismatch(start: Start) -> None:
    run, _ = held(start)
    sign(run)
    run_out_unused(request_of(run))
    drive(run)
    assert run.state == "WAITING_FOR_APPROVAL"
    assert of_approvals() == {"unchanged": 1}


def test_incidents_by_kind(start: Start) -> None:
    run, _ = held(start)
    operation = operation_of(run)
    for kind in (*Incident.Kind, Incident.Kind.DUPLICATE):
        Incident.objects.create(
            run=run, operation=operation, kind=kind, external_ref=f"re_{Incident.objects.count()}"
        )
    assert counts() == {
        "late_commits": 1,
        "duplicates": 2,
        "unknown_over_objective": 1,
        "unapproved": 1,
    }
    assert tools(Measure.DUPLICATES) == {"pay": 2}


def test_an_audit_counts_what_it_could_not_match(start: Start) -> None:
    held(start)
    span = {"since": clock() - timedelta(hours=1), "until": clock()}
    EffectAudit.objects.create(tool="pay", effects=9, matched=4, unaccounted=3, missing=2, **span)
    EffectAudit.objects.create(tool="pay", effects=9, matched=8, unaccounted=1, **span)
    assert counts() == {"effects_unaccounted": 4, "effects_missing": 2}
    found = {(one.agent, one.tool, one.count) for one in sums(Measure.EFFECTS_UNACCOUNTED)}
    assert found == {("", "pay", 4)}


def ask_llm(run: AgentRun, **columns: object) -> None:
    step = run.steps.latest("number")
    LlmRequest.objects.create(run=run, step=step, fence_token=1, **columns)


def test_llms_are_counted_with_what_they_took_and_cost_also_where_nothing_came_of_it(
    start: Start,
) -> None:
    run, _ = held(start)
    ask_llm(run, **USED)
    ask_llm(run, **BAD | {"latency_ms": 1_200})
    ask_llm(run, **DOWN)
    assert counts() == {"llm_requests": 3, "llm_failures": 2}
    assert buckets(Measure.LLM_SECONDS)[1] == 1
    assert buckets(Measure.LLM_SECONDS)[2] == 1
    known = LlmRequest.objects.exclude(input_tokens=None)
    tokens = sum(one.input_tokens + one.output_tokens for one in known)
    assert (total(Measure.LLM_TOKENS), tokens) == (tokens, 2_560)
    assert total(Measure.LLM_COST_USD) == float(Decimal("0.0012"))

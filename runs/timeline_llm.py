"""What the timeline says of llms: each request that was made of one, and each handoff.

Guarantees: what the rows of a page refer to is read at once, and nothing is read for a page
that has none of them; what an llm wrote is shown without the values of sensitive arguments.

Does not order them; `timeline.py` does.
"""

from collections.abc import Sequence
from typing import TypeAlias

from runs.handoffs import BY_ROWS
from runs.models import TEXT_LIMIT, Handoff, LlmRequest, StepAttempt
from runs.presenting_llm import (
    facts_of_handoff,
    facts_of_request,
    say_figures,
    say_handoff,
    say_outcome,
)
from runs.sensitive import Secrets
from runs.shapes import TimelineEntry
from runs.timeline_subject import Subject
from tools.redaction import bound_text

LlmRow: TypeAlias = LlmRequest | Handoff


def describe_llm_rows(
    subject: Subject, rows: Sequence[LlmRow], secrets: Secrets | None
) -> list[TimelineEntry]:
    """Their entries, in the given order, numbered by the caller, who looked up the holders, and the
    secrets if there are any rows."""
    if secrets is None:
        return []
    return [
        _of_request(row, subject.held.get((row.step.number, row.fence_token)), secrets)
        if isinstance(row, LlmRequest)
        else _of_handoff(row, secrets)
        for row in rows
    ]


def secrets_of(subject: Subject, rows: Sequence[LlmRow]) -> Secrets | None:
    """What is hidden in what these say; None where there are none."""
    steps = {row.step.number for row in rows if isinstance(row, LlmRequest)}
    return subject.look_up_secrets(steps=steps) if rows else None


def _of_request(row: LlmRequest, attempt: StepAttempt | None, secrets: Secrets) -> TimelineEntry:
    facts = facts_of_request(row, secrets)
    purpose = LlmRequest.Purpose(row.purpose).label
    said = f"{purpose}, from {row.llm}. {say_outcome(row)}; {say_figures(row)}"
    return TimelineEntry(
        at=row.at,
        seq=0,
        kind=f"llm.{row.outcome}",
        actor=attempt.worker if attempt else row.llm,
        run_id=row.run_id,
        step_number=row.step.number,
        attempt=attempt.number if attempt else None,
        operation_id=None,
        fence_token=row.fence_token,
        from_state=None,
        to_state=None,
        reason=bound_text(f"{said}: {facts['detail']}" if facts["detail"] else said, TEXT_LIMIT),
        prompt_version=row.prompt_version or None,
        llm_version=row.llm_version or None,
        tool_version=None,
        policy_version=None,
        approval_id=None,
        external_ref=None,
        timeout_stage=None,
        reconciliation_result=None,
        evidence=facts,
    )


def _of_handoff(row: Handoff, secrets: Secrets) -> TimelineEntry:
    return TimelineEntry(
        at=row.created_at,
        seq=0,
        kind="handoff.written",
        actor="kernel" if row.written_by == BY_ROWS else row.written_by,
        run_id=row.run_id,
        # 0: it speaks about the run up to a step, and is no part of one.
        step_number=0,
        attempt=None,
        operation_id=None,
        fence_token=row.fence_token,
        from_state=None,
        to_state=None,
        reason=say_handoff(row),
        prompt_version=None,
        llm_version=None,
        tool_version=None,
        policy_version=None,
        approval_id=None,
        external_ref=None,
        timeout_stage=None,
        reconciliation_result=None,
        evidence=facts_of_handoff(row, secrets),
    )

"""What the timeline says of llms: each request that was made of one, and each handoff.

Guarantees: what the rows of a page refer to is read at once, and nothing is read for a page
that has none of them; what an llm wrote is shown without the values of sensitive arguments.

Does not order them; `timeline.py` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from runs.handoffs import BY_ROWS
from runs.models import TEXT_LIMIT, AgentRun, Handoff, LlmRequest, StepAttempt
from runs.presenting_llm import (
    facts_of_handoff,
    facts_of_request,
    say_figures,
    say_handoff,
    say_outcome,
)
from runs.sensitive import Secrets, load_secrets
from runs.shapes import TimelineEntry
from tools.redaction import bound_text

LlmRow: TypeAlias = LlmRequest | Handoff


@dataclass(frozen=True)
class _Around:
    """What the rows refer to: the attempts that asked, by step and token, and what is hidden."""

    attempts: Mapping[tuple[int, int], StepAttempt]
    secrets: Secrets


def describe_llm_rows(run_id: UUID, rows: Sequence[LlmRow]) -> list[TimelineEntry]:
    """Their entries, in the given order, numbered by the caller."""
    if not rows:
        return []
    run = AgentRun.objects.only("agent", "input").get(id=run_id)
    asked = [row for row in rows if isinstance(row, LlmRequest)]
    attempts = StepAttempt.objects.filter(
        step__in={row.step_id for row in asked}, fence_token__in={row.fence_token for row in asked}
    )
    around = _Around(
        attempts={(one.step_id, one.fence_token): one for one in attempts},
        secrets=load_secrets(run, steps={row.step.number for row in asked}),
    )
    return [
        _of_request(row, around) if isinstance(row, LlmRequest) else _of_handoff(row, around)
        for row in rows
    ]


def _of_request(row: LlmRequest, around: _Around) -> TimelineEntry:
    attempt = around.attempts.get((row.step_id, row.fence_token))
    facts = facts_of_request(row, around.secrets)
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


def _of_handoff(row: Handoff, around: _Around) -> TimelineEntry:
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
        evidence=facts_of_handoff(row, around.secrets),
    )

"""What the database and the provider know at one moment, as plain values.

Guarantees: no row, no clock and no connection behind it, so a checker over pictures can be
proven with pictures that show a fault.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.utils import timezone

from runs.budgets import granted
from runs.built_in import COMPENSATE_RUN, DELEGATE
from runs.models import (
    AgentRun,
    Approval,
    Handoff,
    Incident,
    LlmRequest,
    ModelDecision,
    Question,
    Signal,
    ToolObservation,
    ToolOperation,
    Transition,
    Wait,
)
from tools.errors import UnknownTool
from tools.registry import get_tool


@dataclass(frozen=True)
class Run:
    id: str
    state: str
    version: int
    fence_token: int
    held: bool
    dated: bool
    due: bool = False
    paused: str = ""
    cancelled: bool = False
    compensating: bool = False
    parent: str = ""
    parent_operation: str = ""
    told: bool = False
    forked_from: str = ""
    lineage: str = ""
    steps: int = 0
    spent: int = 0
    granted: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class Operation:
    id: str
    run: str
    step: int
    ordinal: int
    effect_type: str
    status: str
    attempts: int
    intent: str
    repeats: str
    policy: str
    tool: str = ""
    compensates: str = ""
    child: str = ""
    needs_person: bool = False
    repeatable: bool = False


@dataclass(frozen=True)
class Edge:
    id: int
    run: str
    version: int
    operation: str
    event: str
    before: str
    after: str
    token: int
    reason: str = ""


@dataclass(frozen=True)
class Seen:
    id: int
    operation: str
    source: str
    verdict: str
    attempt: int


@dataclass(frozen=True)
class Decision:
    run: str
    step: int
    kind: str
    taken_back: bool = field(default=False, compare=False)
    by_llm: bool = False


@dataclass(frozen=True)
class Waits:
    """What an open step waits for."""

    run: str
    step: int
    kind: str
    name: str
    outcome: str


@dataclass(frozen=True)
class Told:
    """A signal; `step` is the one that it was delivered to."""

    run: str
    name: str
    event: str
    step: int | None


@dataclass(frozen=True)
class Asked:
    """A question to people."""

    run: str
    step: int
    status: str


@dataclass(frozen=True)
class Signature:
    """A request for one, and whether it was spent."""

    id: str
    operation: str
    status: str
    spent: bool


@dataclass(frozen=True)
class LlmAsked:
    """One request of an llm; `response` names its answer, which not all have."""

    id: int
    run: str
    step: int
    purpose: str
    outcome: str
    response: str
    tokens: int


@dataclass(frozen=True)
class HandedOff:
    run: str
    number: int
    through: int


@dataclass(frozen=True)
class Effect:
    """One effect at the provider."""

    operation: str
    reference: str


@dataclass(frozen=True)
class Picture:
    runs: tuple[Run, ...] = ()
    operations: tuple[Operation, ...] = ()
    journal: tuple[Edge, ...] = ()
    evidence: tuple[Seen, ...] = ()
    decisions: tuple[Decision, ...] = ()
    effects: tuple[Effect, ...] = ()
    incidents: frozenset[tuple[str, str]] = frozenset()
    waits: tuple[Waits, ...] = ()
    signals: tuple[Told, ...] = ()
    questions: tuple[Asked, ...] = ()
    signatures: tuple[Signature, ...] = ()
    llm_requests: tuple[LlmAsked, ...] = ()
    handoffs: tuple[HandedOff, ...] = ()
    # What llms answered, by the ids of their responses.
    said: frozenset[str] = frozenset()


def take(run_ids: Collection[UUID], effects: Sequence[Effect]) -> Picture:
    """The picture of some runs, and of what the provider did for them."""
    runs = AgentRun.objects.filter(id__in=run_ids)
    operations = ToolOperation.objects.filter(run__in=run_ids)
    journal = Transition.objects.filter(run__in=run_ids).order_by("id")
    evidence = ToolObservation.objects.filter(run__in=run_ids).order_by("id")
    decisions = ModelDecision.objects.filter(run__in=run_ids).select_related("step")
    incidents = Incident.objects.filter(run__in=run_ids)
    now = timezone.now()
    return Picture(
        runs=tuple(
            Run(
                id=str(run.id),
                state=run.state,
                version=run.version,
                fence_token=run.fence_token,
                held=run.lease_expires_at is not None,
                dated=run.wake_at is not None,
                due=run.wake_at is not None and run.wake_at <= now,
                paused=run.pause_reason if run.paused_at is not None else "",
                cancelled=run.cancel_requested_at is not None,
                compensating=run.compensating_since is not None,
                parent=str(run.parent_id or ""),
                parent_operation=run.parent_operation or "",
                told=run.parent_told_at is not None,
                forked_from=str(run.forked_from_id or ""),
                lineage=str(run.lineage or ""),
                steps=run.step_number,
                spent=run.spent_steps,
                tokens=run.spent_tokens,
                granted=granted(run.budget).steps,
            )
            for run in runs
        ),
        operations=tuple(
            Operation(
                id=one.id,
                run=str(one.run_id),
                step=one.step_number,
                ordinal=one.ordinal,
                effect_type=one.effect_type,
                status=one.status,
                attempts=one.attempts,
                intent=one.intent,
                repeats=one.repeats_id or "",
                policy=one.policy_outcome,
                tool=one.tool,
                compensates=one.compensates_id or "",
                child=one.external_ref if one.tool in (DELEGATE, COMPENSATE_RUN) else "",
                needs_person=one.needs_person_since is not None,
                repeatable=_is_repeatable(one.tool),
            )
            for one in operations
        ),
        journal=tuple(
            Edge(
                id=edge.pk,
                run=str(edge.run_id),
                version=edge.version,
                operation=edge.operation_id or "",
                event=edge.event,
                before=edge.from_state,
                after=edge.to_state,
                token=edge.fence_token,
                reason=edge.reason,
            )
            for edge in journal
        ),
        evidence=tuple(
            Seen(
                id=seen.pk,
                operation=seen.operation_id,
                source=seen.source,
                verdict=seen.verdict,
                attempt=seen.attempt,
            )
            for seen in evidence
        ),
        decisions=tuple(
            Decision(
                run=str(one.run_id),
                step=one.step.number,
                kind=one.kind,
                taken_back=one.step.voided_at is not None,
                by_llm=one.decider.startswith("llm "),
            )
            for one in decisions
        ),
        effects=tuple(effects),
        incidents=frozenset(incidents.values_list("operation_id", "kind")),
        waits=tuple(
            Waits(
                run=str(one.run_id),
                step=one.step_number,
                kind=one.kind,
                name=one.name,
                outcome=one.outcome,
            )
            for one in Wait.objects.filter(run__in=run_ids)
        ),
        signals=tuple(
            Told(run=str(one.run_id), name=one.name, event=one.event_id, step=one.delivered_step)
            for one in Signal.objects.filter(run__in=run_ids).order_by("id")
        ),
        questions=tuple(
            Asked(run=str(one.run_id), step=one.step_number, status=one.status)
            for one in Question.objects.filter(run__in=run_ids)
        ),
        signatures=tuple(
            Signature(
                id=str(one.id),
                operation=one.operation_id,
                status=one.status,
                spent=one.spent_at is not None,
            )
            for one in Approval.objects.filter(run__in=run_ids)
        ),
        llm_requests=tuple(
            LlmAsked(
                id=one.pk,
                run=str(one.run_id),
                step=one.step.number,
                purpose=one.purpose,
                outcome=one.outcome,
                response=one.response_id,
                tokens=(one.input_tokens or 0) + (one.output_tokens or 0),
            )
            for one in LlmRequest.objects.filter(run__in=run_ids)
            .select_related("step")
            .order_by("id")
        ),
        handoffs=tuple(
            HandedOff(run=str(one.run_id), number=one.number, through=one.through_step)
            for one in Handoff.objects.filter(run__in=run_ids).order_by("id")
        ),
    )


def _is_repeatable(tool: str) -> bool:
    try:
        return get_tool(tool).repeatable
    except UnknownTool:
        return False

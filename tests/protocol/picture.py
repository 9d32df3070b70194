"""What the database and the provider know at one moment, as plain values.

Guarantees: no row, no clock and no connection behind it, so a checker over pictures can be
proven with pictures that show a fault.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from runs.models import (
    AgentRun,
    Incident,
    ModelDecision,
    ToolObservation,
    ToolOperation,
    Transition,
)


@dataclass(frozen=True)
class Run:
    id: str
    state: str
    version: int
    fence_token: int
    held: bool
    dated: bool


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


def take(run_ids: Collection[UUID], effects: Sequence[Effect]) -> Picture:
    """The picture of some runs, and of what the provider did for them."""
    runs = AgentRun.objects.filter(id__in=run_ids)
    operations = ToolOperation.objects.filter(run__in=run_ids)
    journal = Transition.objects.filter(run__in=run_ids).order_by("id")
    evidence = ToolObservation.objects.filter(run__in=run_ids).order_by("id")
    decisions = ModelDecision.objects.filter(run__in=run_ids).select_related("step")
    incidents = Incident.objects.filter(run__in=run_ids)
    return Picture(
        runs=tuple(
            Run(
                id=str(run.id),
                state=run.state,
                version=run.version,
                fence_token=run.fence_token,
                held=run.lease_expires_at is not None,
                dated=run.wake_at is not None,
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
            Decision(run=str(one.run_id), step=one.step.number, kind=one.kind) for one in decisions
        ),
        effects=tuple(effects),
        incidents=frozenset(incidents.values_list("operation_id", "kind")),
    )

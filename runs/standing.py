"""How things stand in a run, read from its rows: what is not settled, and what proves what is.

Guarantees: a fixed number of queries of bounded size, at any time and in any state, also while
operations are unknown (a fork costs one more for each run that it comes from). An effect that was
taken back proves nothing any more, and neither does what belongs to another run.

Does not read the history: that is in the window of events, and in handoffs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from django.db.models import Q

from runs.artifact import NOTHING_HANDED_OVER, HandedOver
from runs.built_in import is_delegation
from runs.history import Origin, find_corrected, find_lineage
from runs.models import (
    AgentRun,
    Approval,
    Incident,
    Question,
    ToolObservation,
    ToolOperation,
    Wait,
)
from runs.state import UNCERTAIN_STATES, OperationStatus

# Of each kind: an operator sees all of them, an llm the newest.
MOST_ITEMS: Final = 50
_LONGEST_TEXT: Final = 200


@dataclass(frozen=True)
class Item:
    """Something that is not settled: what whoever goes on must know of."""

    id: str
    status: str
    what: str
    due: str

    def to_json(self) -> dict[str, str]:
        return {"id": self.id, "status": self.status, "what": self.what, "due": self.due}


@dataclass(frozen=True)
class Standing:
    """`items` are not settled. `proofs` are the committed operations among those that were asked
    about, each with the observation that proves it (None: another run's end does). `told_steps`
    are those in which a signal or an answer came. `constraints` include what was `handed_over`."""

    objective: str
    constraints: tuple[str, ...]
    items: tuple[Item, ...] = ()
    proofs: Mapping[str, int | None] = field(default_factory=dict)
    told_steps: frozenset[int] = frozenset()
    handed_over: HandedOver = NOTHING_HANDED_OVER


def load_standing(
    run: AgentRun,
    *,
    constraints: Sequence[str],
    operations: Collection[str] = (),
    steps: Collection[int] = (),
    handed_over: HandedOver = NOTHING_HANDED_OVER,
    begun: Mapping[ToolOperation, AgentRun] | None = None,
) -> Standing:
    """How the run stands, with the proofs of these operations and of what came in these steps.

    `begun` are the open step's delegations and their runs where they are not rows yet.
    """
    origin = Origin.of(run)
    return Standing(
        objective=run.objective,
        constraints=tuple(dict.fromkeys((*constraints, *handed_over.constraints))),
        items=tuple(find_items(run.id, step_number=run.step_number, begun=begun)),
        proofs=find_proofs(
            run.id, origin=origin, operations=operations, handed_over=handed_over.operations
        ),
        told_steps=_find_told(run.id, origin=origin, steps=steps),
        handed_over=handed_over,
    )


def find_items(
    run_id: UUID, *, step_number: int, begun: Mapping[ToolOperation, AgentRun] | None = None
) -> list[Item]:
    """What is not settled. Only the open step has open operations, so only it is looked at."""
    if begun is not None:
        opened = list(begun)
        children = {operation.id: child for operation, child in begun.items()}
    else:
        operations = ToolOperation.objects.filter(
            run_id=run_id, step_number=step_number, settled_at__isnull=True
        )
        opened = list(operations.order_by("ordinal", "revision"))
        children = _find_children(opened)
    questions = Question.objects.filter(
        run_id=run_id, step_number=step_number, status=Question.Status.OPEN
    )
    return [
        *(_of_open(operation, children.get(operation.id)) for operation in opened),
        *_find_unknown_below(children.values()),
        *_find_approvals(opened),
        *(
            Item(str(one.pk), one.status, one.text[:_LONGEST_TEXT], "an answer")
            for one in questions
        ),
        *find_afterwards(run_id),
    ]


def find_afterwards(run_id: UUID) -> list[Item]:
    """What is not settled of closed steps: all that there can be when a step is to be decided."""
    watched = ToolOperation.objects.filter(
        run_id=run_id, next_watch_at__isnull=False, settled_at__isnull=False
    ).order_by("-settled_at", "id")
    incidents = Incident.objects.filter(run_id=run_id).select_related("operation").order_by("-id")
    return [
        *(
            Item(one.id, one.status, one.tool, "watched for an effect that comes late")
            for one in watched[:MOST_ITEMS]
        ),
        *(
            Item(
                f"incident {one.pk}", one.kind, f"{one.operation.tool} {one.operation_id}", "people"
            )
            for one in incidents[:MOST_ITEMS]
        ),
    ]


def find_proofs(
    run_id: UUID,
    *,
    origin: Origin | None,
    operations: Collection[str],
    handed_over: Collection[str] = (),
) -> dict[str, int | None]:
    """By operation, of those that committed in this run, in what it inherits or in what was handed
    over to it, and were not taken back: the first observation that says so. What another run's end
    proves has none."""
    if not operations:
        return {}
    lineage = ToolOperation.objects.filter(
        find_lineage(run_id, origin) | Q(id__in=tuple(handed_over))
    )
    rows = list(lineage.filter(id__in=operations, status=OperationStatus.COMMITTED))
    # A repeat was answered with what another operation had come to.
    sources = {row.id: row.repeats_id or row.id for row in rows}
    seen = ToolObservation.objects.filter(
        operation__in=sources.values(), verdict=ToolObservation.Verdict.COMMITTED
    ).order_by("-id")
    first = dict(seen.values_list("operation_id", "id"))
    corrected = find_corrected(rows) if rows else set()
    return {
        row.id: first.get(sources[row.id])
        for row in rows
        if row.id not in corrected and (sources[row.id] in first or is_delegation(row))
    }


def _find_told(run_id: UUID, *, origin: Origin | None, steps: Collection[int]) -> frozenset[int]:
    if not steps:
        return frozenset()
    waits = Wait.objects.filter(
        find_lineage(run_id, origin),
        step_number__in=steps,
        outcome=Wait.Outcome.CAME,
        kind__in=(Wait.Kind.SIGNAL, Wait.Kind.QUESTION),
    )
    return frozenset(waits.values_list("step_number", flat=True))


def _of_open(operation: ToolOperation, child: AgentRun | None) -> Item:
    what = f"{operation.tool} of step {operation.step_number}"
    match OperationStatus(operation.status):
        case OperationStatus.AWAITING_APPROVAL:
            due = "a signature"
        case OperationStatus.UNKNOWN if operation.needs_person_since is not None:
            due = "a person must settle it"
        case OperationStatus.UNKNOWN:
            due = "the provider is asked"
        case OperationStatus.RUNNING if child is not None:
            what = f"run {child.pk} of {child.agent}"
            due = f"its end; it is {child.state}"
        case OperationStatus.RUNNING:
            due = "its outcome"
        case _:
            due = "to be sent"
    return Item(operation.id, operation.status, what, due)


def _find_children(opened: Iterable[ToolOperation]) -> dict[str, AgentRun]:
    """By the operation that started it: the run that is to answer it."""
    begun = [one.id for one in opened if is_delegation(one)]
    if not begun:
        return {}
    children = AgentRun.objects.filter(parent_operation__in=begun)
    return {child.parent_operation or "": child for child in children}


def _find_unknown_below(children: Iterable[AgentRun]) -> list[Item]:
    """Effects of the runs that are waited for of which nobody knows whether they happened."""
    uncertain = [child.pk for child in children if child.state in UNCERTAIN_STATES]
    if not uncertain:
        return []
    unknown = ToolOperation.objects.filter(
        run_id__in=uncertain, status=OperationStatus.UNKNOWN
    ).order_by("created_at", "id")
    return [
        Item(one.id, one.status, f"{one.tool} in run {one.run_id}", "that run settles it")
        for one in unknown[:MOST_ITEMS]
    ]


def _find_approvals(opened: Iterable[ToolOperation]) -> list[Item]:
    held = {one.id: one for one in opened if one.status == OperationStatus.AWAITING_APPROVAL}
    if not held:
        return []
    asked = Approval.objects.filter(operation__in=held, status=Approval.Status.PENDING)
    return [
        Item(
            str(one.pk),
            one.status,
            f"{held[one.operation_id].tool} {one.operation_id}",
            f"a verdict by {one.approve_by:%Y-%m-%d %H:%M} UTC",
        )
        for one in asked.order_by("requested_at", "id")
    ]

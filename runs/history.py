"""What a decider is shown of a run's past: the newest of what it learned.

Guarantees: three indexed queries of bounded size, however long the run is; oldest first, in the
order of steps and of the calls within them, whatever order they ended in; steps that a retry
took back are left out, and those that a fork inherits are read where they happened. What a
handoff covers is not read again.

Does not show timers: that time went by is no news.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from runs.built_in import is_delegation
from runs.context import TIMED_OUT, WINDOW, Kind, Observed, Received
from runs.models import AgentRun, ToolObservation, ToolOperation, Wait
from runs.state import OperationStatus
from tools import EffectType

# So many origins of origins are followed.
DEEPEST_LINEAGE = 20


@dataclass(frozen=True)
class Origin:
    """What a fork inherits: the steps of `run_id` up to `step`, as they stood then."""

    run_id: UUID
    step: int
    forked_at: datetime

    @classmethod
    def of(cls, run: AgentRun) -> "Origin | None":
        """What a run inherits; None for one that is no fork."""
        above, step = run.forked_from_id, run.forked_at_step
        return None if above is None or step is None else cls(above, step, run.created_at)


@dataclass(frozen=True)
class Covered:
    """What a handoff replaces: everything up to this step of this run."""

    run_id: UUID
    step: int


def load_window(
    *,
    run_id: UUID,
    before_step: int,
    origin: Origin | None = None,
    covered: Covered | None = None,
    most: int = WINDOW,
) -> list[Observed]:
    """The newest settled calls, signals and answers of a run, oldest first."""
    found: list[Observed] = []
    for of_run, before, forked_at in _follow_parts(run_id, before_step, origin):
        after = covered.step if covered is not None and covered.run_id == of_run else None
        found = _read(of_run, before, after or 0, most, forked_at) + found
        if after is not None or len(found) >= most:
            break
    return found[-most:]


def find_lineage(run_id: UUID, origin: Origin | None) -> Q:
    """Which operations and waits count as a run's own: of steps that stand in it, or did where
    it was forked."""
    found = Q(run_id=run_id, step__voided_at__isnull=True)
    for above in follow_origins(origin):
        stood = Q(step__voided_at__isnull=True) | Q(step__voided_at__gt=above.forked_at)
        found |= stood & Q(run_id=above.run_id, step_number__lte=above.step)
    return found


def follow_origins(origin: Origin | None) -> Iterator[Origin]:
    """What a fork inherits, and what that inherits, from the nearest on."""
    for _ in range(DEEPEST_LINEAGE):
        if origin is None:
            return
        yield origin
        row = AgentRun.objects.values_list("forked_from_id", "forked_at_step", "created_at")
        above, step, forked_at = row.get(id=origin.run_id)
        is_fork = above is not None and step is not None
        origin = Origin(above, step or 0, forked_at) if is_fork else None


def _follow_parts(
    run_id: UUID, before_step: int, origin: Origin | None
) -> Iterator[tuple[UUID, int, datetime | None]]:
    """By run, from the newest on: before which step it counts, as it stood at which moment."""
    yield run_id, before_step, None
    for above in follow_origins(origin):
        yield above.run_id, above.step + 1, above.forked_at


def to_received(seen: Iterable[Observed]) -> tuple[Received, ...]:
    """The signals among what was observed."""
    return tuple(
        Received(name=one.tool, payload=one.result, sent_by=one.author, step_number=one.step_number)
        for one in seen
        if one.kind == "signal" and not one.timed_out
    )


def to_observed(operation: ToolOperation, *, is_corrected: bool = False) -> Observed:
    """The decider's view of a settled operation."""
    is_child = is_delegation(operation)
    return Observed(
        operation_id=operation.id,
        step_number=operation.step_number,
        tool=operation.arguments.get("agent", "") if is_child else operation.tool,
        arguments=operation.arguments,
        status=OperationStatus(operation.status),
        result=operation.result,
        error=operation.error,
        external_ref=operation.external_ref,
        is_write=bool(operation.effect_type) and EffectType(operation.effect_type).is_write,
        repeats=operation.repeats_id or "",
        never_sent=operation.never_sent,
        kind="child" if is_child else "call",
        corrected=is_corrected,
        sensitive=frozenset(operation.sensitive),
    )


def wait_to_observed(wait: Wait) -> Observed:
    """The decider's view of a wait that has ended, other than a timer."""
    came = wait.outcome == Wait.Outcome.CAME
    kind: Kind = "signal" if wait.kind == Wait.Kind.SIGNAL else "answer"
    return Observed(
        operation_id="",
        step_number=wait.step_number,
        tool=wait.name,
        arguments={},
        status=OperationStatus.COMMITTED if came else OperationStatus.CANCELLED,
        result=wait.result,
        error="" if came else f"no {kind} came in time",
        never_sent="" if came else TIMED_OUT,
        kind=kind,
        author=wait.author,
    )


def find_corrected(rows: Sequence[ToolOperation]) -> set[str]:
    """Which of these had their effect taken back: by a compensation, a person, or in the run
    that they had started. A repeat stands and falls with what it was answered with."""
    answers = {row.id: row.repeats_id or row.id for row in rows}
    effects = list(answers.values())
    compensations = ToolOperation.objects.filter(
        compensates__in=effects, status=OperationStatus.COMMITTED
    )
    words = ToolObservation.objects.filter(
        operation__in=effects,
        verdict=ToolObservation.Verdict.CORRECTED,
        source=ToolObservation.Source.PERSON,
    )
    runs = AgentRun.objects.filter(parent_operation__in=effects, compensating_since__isnull=False)
    found = compensations.values_list("compensates_id").union(
        words.values_list("operation_id"), runs.values_list("parent_operation")
    )
    corrected = {effect for (effect,) in found}
    return {name for name, effect in answers.items() if effect in corrected}


def _read(
    run_id: UUID, before_step: int, after_step: int, most: int, forked_at: datetime | None
) -> list[Observed]:
    """The newest of one run. Nearly every step made a call, so nearly always the newest `most`
    calls are in the last `most` steps. Said in the query, because a planner whose statistics are
    behind would otherwise sort the whole run."""
    stands = Q(step__voided_at__isnull=True)
    if forked_at is not None:
        stands |= Q(step__voided_at__gt=forked_at)
    operations = ToolOperation.objects.filter(
        stands, run_id=run_id, settled_at__isnull=False
    ).order_by("-step_number", "-ordinal", "-revision")
    oldest = max(before_step - most, after_step + 1)
    rows = list(operations.filter(step_number__gte=oldest, step_number__lt=before_step)[:most])
    if len(rows) < most and oldest > after_step + 1:
        older = operations.filter(step_number__gt=after_step, step_number__lt=oldest)
        rows += older[: most - len(rows)]
    waits = Wait.objects.filter(
        stands,
        run_id=run_id,
        step_number__gt=after_step,
        step_number__lt=before_step,
        ended_at__isnull=False,
    ).order_by("-step_number")
    corrected = find_corrected(rows) if rows else set()
    seen = [to_observed(row, is_corrected=row.id in corrected) for row in reversed(rows)]
    seen += [
        wait_to_observed(wait)
        for wait in waits[:most]
        if wait.kind in (Wait.Kind.SIGNAL, Wait.Kind.QUESTION)
    ]
    # Of one step are calls or one wait, so its calls keep their order.
    return sorted(seen, key=lambda one: one.step_number)[-most:]

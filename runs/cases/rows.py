"""What the rows of a run say about its decisions and what they were made of.

Guarantees: a fixed number of queries, each bounded; everything is oldest first.

Does not hide anything: `exporting.py` does.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from runs.context import BadAnswer, Observed
from runs.deciding import SAGA
from runs.handoff_rows import Handed, decode_handoff, find_newest
from runs.history import Origin, load_window
from runs.models import (
    AgentRun,
    Handoff,
    LlmRequest,
    ModelDecision,
    Step,
    ToolObservation,
    ToolOperation,
)
from runs.state import OperationStatus

MOST_BAD_ANSWERS: Final = 200
MOST_HANDOFFS: Final = 20


def find_steps(run: AgentRun, *, through: int | None, most: int) -> list[Step]:
    """The newest steps that its agent decided, or was to decide; `most` of them."""
    standing = run.steps.filter(voided_at__isnull=True).select_related("decision")
    if through is not None:
        standing = standing.filter(number__lte=through)
    return list(standing.exclude(decision__decider=SAGA).order_by("-number")[:most])[::-1]


def find_voided(run: AgentRun) -> list[Step]:
    """The steps that a retry took back."""
    return list(run.steps.filter(voided_at__isnull=False).order_by("number"))


def decision_of(step: Step) -> ModelDecision | None:
    """None for a step that ended, or waits, without one."""
    return step.decision if hasattr(step, "decision") else None


def load_seen(run: AgentRun, *, before_step: int, most: int) -> list[Observed]:
    """The newest of what the run learned before a step."""
    return load_window(run_id=run.id, before_step=before_step, most=most)


def load_inherited(run: AgentRun, handoff: Handed | None, *, most: int) -> list[Observed]:
    """The newest of what a fork was shown of the run it comes from, and of those above that;
    `handoff` is the artifact that it was shown in place of the rest."""
    covered = handoff.covered if handoff is not None else None
    origin = Origin.of(run)
    return load_window(run_id=run.id, before_step=1, origin=origin, covered=covered, most=most)


def load_operations(seen: Sequence[Observed]) -> Mapping[str, ToolOperation]:
    """The operations that were observed, by id."""
    return ToolOperation.objects.in_bulk([one.operation_id for one in seen if one.operation_id])


def find_corrections(seen: Sequence[Observed]) -> dict[str, datetime]:
    """By operation: when its effect was taken back, if it was, by a compensation, a person, or in
    the run that it had started. A repeat stands and falls with what it was answered with."""
    answers = {one.operation_id: one.repeats or one.operation_id for one in seen if one.committed}
    effects = set(answers.values()) - {""}
    compensations = ToolOperation.objects.filter(
        compensates__in=effects, status=OperationStatus.COMMITTED
    )
    words = ToolObservation.objects.filter(
        operation__in=effects,
        verdict=ToolObservation.Verdict.CORRECTED,
        source=ToolObservation.Source.PERSON,
    )
    children = AgentRun.objects.filter(parent_operation__in=effects)
    found = [
        *compensations.values_list("compensates_id", "settled_at"),
        *words.values_list("operation_id", "observed_at"),
        *children.filter(compensating_since__isnull=False).values_list(
            "parent_operation", "compensating_since"
        ),
    ]
    first: dict[str, datetime] = {}
    for effect, at in found:
        assert effect is not None, "they were looked for by it"
        assert at is not None, "what is settled is dated"
        first[effect] = min(at, first.get(effect, at))
    return {name: first[effect] for name, effect in answers.items() if effect in first}


def find_bad_answers(steps: Sequence[Step]) -> dict[int, list[BadAnswer]]:
    """By step id: what its llm answered that could not be used."""
    bad = LlmRequest.objects.filter(
        step__in=steps, purpose=LlmRequest.Purpose.DECIDE, outcome=LlmRequest.Outcome.UNUSABLE
    )
    found: dict[int, list[BadAnswer]] = {}
    for request in bad.order_by("id")[:MOST_BAD_ANSWERS]:
        found.setdefault(request.step_id, []).append(BadAnswer(request.problem, request.detail))
    return found


def find_handoffs(run: AgentRun, *, before_step: int, voided: Sequence[Step]) -> list[Handed]:
    """The newest artifacts that stood in place of what the run had done before."""
    own = Handoff.objects.filter(run=run, through_step__lt=before_step).order_by("-number")
    return [
        decode_handoff(row)
        for row in reversed(own[:MOST_HANDOFFS])
        if not any(_speaks_of(row, step) for step in voided)
    ]


def find_inherited_handoff(run: AgentRun) -> Handed | None:
    """The newest artifact of the runs that it comes from."""
    if run.forked_from_id is None:
        return None
    # No run has this id: what this one wrote itself is not inherited.
    return find_newest(run_id=UUID(int=0), origin=Origin.of(run))


def _speaks_of(handoff: Handoff, step: Step) -> bool:
    """Whether it was written before a retry took the step back, about it too."""
    assert step.voided_at is not None, "it was taken back"
    return step.number <= handoff.through_step and step.voided_at > handoff.created_at

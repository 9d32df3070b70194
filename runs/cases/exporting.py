"""From the rows of a run to a case.

Guarantees: the file holds what the run's decider was shown before each step, and what it decided
there; what is sensitive is not in it; it is bounded, and says what did not fit. Nothing is
written to the database.

Leaves out steps that a retry took back, because nobody was shown them afterwards, and those that
correct what the run did, because no agent decides them.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.utils import timezone

from runs.artifact import NOTHING_HANDED_OVER
from runs.cases import rows
from runs.cases.hiding import Keeper
from runs.cases.shapes import (
    About,
    Case,
    Expected,
    Found,
    HandoffSeen,
    Happened,
    Inputs,
    LeftOut,
    Recorded,
    Seen,
    StepSeen,
)
from runs.context import WINDOW, BadAnswer, Observed
from runs.errors import InvalidInput, UnknownRun
from runs.handoff_rows import Handed
from runs.hiding import Hider
from runs.llm.rendering import is_part
from runs.models import AgentRun, Step
from runs.presenting import present_incident
from runs.queries import find_incidents
from runs.sensitive import names_of_operation, names_of_run
from runs.state import RunState
from runs.timeline import read_newest

MOST_STEPS: Final = 200
MOST_SEEN: Final = 400
MOST_ENTRIES: Final = 300
MOST_INCIDENTS: Final = 50


def export_case(*, run_id: UUID, through: int | None = None) -> Case:
    """The newest `MOST_STEPS` steps of a run, up to `through`, as a case.

    Raises UnknownRun, or InvalidInput where no step is there to be decided again.
    """
    run = AgentRun.objects.filter(id=run_id).first()
    if run is None:
        raise UnknownRun(run_id=str(run_id))
    steps = rows.find_steps(run, through=through, most=MOST_STEPS)
    if not steps:
        raise InvalidInput(
            field="run" if through is None else "--through",
            value=str(run_id if through is None else through),
            fix="Its agent was not asked for a decision by then: there is nothing to decide again.",
        )
    seen = rows.load_seen(run, before_step=steps[-1].number, most=MOST_SEEN)
    if len(seen) == MOST_SEEN:
        # Those before have a past that is not all here.
        steps = [step for step in steps if step.number > seen[WINDOW].step_number]
    voided = rows.find_voided(run)
    handoffs = rows.find_handoffs(run, before_step=steps[-1].number, voided=voided)
    inherited_handoff = rows.find_inherited_handoff(run)
    inherited = rows.load_inherited(run, inherited_handoff, most=MOST_SEEN)
    keeper = Keeper(_make_hider(run, steps, [*inherited, *seen]))
    # Decisions before what was observed: they are what is compared.
    expected = _expect(steps, keeper)
    observations = _observe(steps, inherited, seen, keeper)
    first = steps[0].number
    return Case(
        name=f"{run.agent} {run.id}",
        inputs=Inputs(
            run=str(run.id),
            agent=run.agent,
            objective=keeper.hide(run.objective),
            input=keeper.hide(run.input),
            labels=keeper.hide(run.labels),
            steps=[_place(run, step, voided) for step in steps],
            observations=observations,
            handoffs=[
                *([_hand_off(inherited_handoff, keeper, of=run)] if inherited_handoff else []),
                *(_hand_off(one, keeper, of=run) for one in handoffs),
            ],
        ),
        expected_output=expected,
        metadata=_tell(
            run,
            steps,
            keeper,
            steps_left_out=first - 1 - sum(step.number < first for step in voided),
        ),
    )


def _make_hider(run: AgentRun, steps: Sequence[Step], seen: Sequence[Observed]) -> Hider:
    names = names_of_run(run_id=run.id, agent=run.agent)
    for operation in rows.load_operations(seen).values():
        names |= names_of_operation(operation)
    values: list[Any] = [run.input, run.result]
    values += [value for one in seen if not is_part(one) for value in (one.arguments, one.result)]
    values += [found.body for step in steps if (found := rows.decision_of(step))]
    return Hider(names, values)


def _place(run: AgentRun, step: Step, voided: Sequence[Step]) -> StepSeen:
    taken_back = sum(one.number < step.number for one in voided)
    return StepSeen(step=step.number, position=step.number - taken_back + run.inherited_steps)


def _hand_off(handoff: Handed, keeper: Keeper, *, of: AgentRun) -> HandoffSeen:
    is_own = handoff.run_id == of.id
    return HandoffSeen(
        through_step=handoff.through_step if is_own else 0,
        covers_step=handoff.covered.step if is_own else 0,
        inherited=not is_own,
        constraints=list((handoff.artifact.handed_over or NOTHING_HANDED_OVER).constraints),
        # Written by the runtime, of what had been hidden.
        body=keeper.scrub_own(handoff.to_context()),
    )


def _expect(steps: Sequence[Step], keeper: Keeper) -> list[Expected]:
    """What was decided. The newest are kept first, here and below."""
    expected = []
    for step in reversed(steps):
        found = rows.decision_of(step)
        decision = keeper.keep_decision(found.body) if found is not None else None
        expected.append(Expected(step=step.number, decision=decision))
    return expected[::-1]


def _observe(
    steps: Sequence[Step],
    inherited: Sequence[Observed],
    seen: Sequence[Observed],
    keeper: Keeper,
) -> list[Seen]:
    both = [*((one, True) for one in inherited), *((one, False) for one in seen)]
    corrected = rows.find_corrections([one for one, _ in both])
    observations = []
    for one, is_inherited in reversed(both):
        is_own = is_part(one)
        observations.append(
            Seen(
                step=one.step_number,
                inherited=is_inherited,
                kind=one.kind,
                tool=keeper.hide(one.tool),
                arguments=keeper.keep_arguments(one.arguments, is_own=is_own),
                status=one.status,
                result=keeper.keep(one.result, is_own=is_own),
                error=keeper.hide(one.error),
                external_ref=keeper.hide(one.external_ref),
                operation_id=one.operation_id,
                is_write=one.is_write,
                repeats=one.repeats,
                never_sent=one.never_sent,
                author=one.author,
                corrected_before_step=_find_first_after(steps, corrected.get(one.operation_id)),
            )
        )
    return observations[::-1]


def _find_first_after(steps: Sequence[Step], at: datetime | None) -> int | None:
    """The first of these steps that was not decided by then."""
    if at is None:
        return None
    decided = ((step.number, rows.decision_of(step)) for step in steps)
    later = (number for number, found in decided if found is None or found.recorded_at > at)
    return next(later, None)


def _tell(run: AgentRun, steps: Sequence[Step], keeper: Keeper, *, steps_left_out: int) -> About:
    """What is known beside what is compared."""
    bad = rows.find_bad_answers(steps)
    incidents = find_incidents(run=str(run.id)).select_related("operation")
    page = read_newest(run_id=run.id, size=MOST_ENTRIES)
    return About(
        state=RunState(run.state),
        error=keeper.hide(run.error),
        agent_version=run.agent_version,
        created_at=run.created_at,
        finished_at=run.finished_at,
        exported_at=timezone.now(),
        left_out=LeftOut(
            steps=steps_left_out,
            timeline=page.items[0].seq - 1 if page.items else 0,
            values=keeper.cuts,
        ),
        steps=[_record(step, bad.get(step.pk, []), keeper) for step in steps],
        incidents=[
            Found(
                at=one.at,
                kind=one.kind,
                operation_id=one.operation_id,
                tool=one.tool,
                external_ref=keeper.hide(one.external_ref),
                detail=keeper.hide(one.detail),
            )
            for one in map(present_incident, incidents[:MOST_INCIDENTS])
        ],
        timeline=[
            Happened(
                at=entry.at,
                kind=entry.kind,
                step=entry.step_number,
                operation_id=entry.operation_id,
                from_state=entry.from_state,
                to_state=entry.to_state,
                reason=keeper.hide(entry.reason),
            )
            for entry in page.items
        ],
    )


def _record(step: Step, bad_answers: Sequence[BadAnswer], keeper: Keeper) -> Recorded:
    found = rows.decision_of(step)
    said = [BadAnswer(one.kind, keeper.hide(one.detail)) for one in bad_answers]
    if found is None:
        return Recorded(step=step.number, bad_answers=said)
    return Recorded(
        step=step.number,
        decided_at=found.recorded_at,
        decider=found.decider,
        agent_version=found.agent_version,
        prompt_version=found.prompt_version,
        llm_version=found.llm_version,
        policy_version=found.policy_version,
        tool_versions=found.tool_versions,
        bad_answers=said,
    )

"""Sagas: which effect of a run is corrected next, and how.

Guarantees: only effects that are known are corrected, newest first, each at most once; one
that was corrected, by a compensation or by a person, is never named again. An operation that
was closed without an effect, and whose effect turned up later, is corrected like the others.
What it costs to find the next one does not grow with what was corrected before.

Does not plan a compensation (`compensation.py`) and does not settle what is unknown: a run
that compensates has nothing unknown. A failed compensation is not tried again before a person
has let the run go on.
"""

import inspect
from asyncio import run as run_coroutine
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Any, Final

from django.db.models import Exists, OuterRef, Q, QuerySet

from runs import decisions
from runs.argument_versions import read_arguments
from runs.built_in import COMPENSATE_RUN, IS_DELEGATION, is_delegation
from runs.calls import build_correction_call
from runs.decisions import CallTools, ToolCall
from runs.descent import has_effects
from runs.intents import REPLAY
from runs.lease import margin_seconds
from runs.models import TEXT_LIMIT, Incident, ToolObservation, ToolOperation, Transition
from runs.state import OperationStatus, RunEvent, RunState
from runs.work import Work
from tools import EffectType
from tools.canonical import check_json
from tools.compensation import compensating_function, compensating_tool, pick_arguments
from tools.errors import OutdatedArguments, UnknownTool
from tools.execution import run_within
from tools.outcome import describe
from tools.redaction import bound_text, scrub
from tools.registry import get_tool
from tools.spec import ToolSpec

# Pages of effects that need no correction grow up to this.
LARGEST_PAGE: Final = 64


@dataclass(frozen=True)
class Correct:
    """The effect of `target` is corrected next, by `call`."""

    target: ToolOperation
    call: ToolCall


@dataclass(frozen=True)
class Stuck:
    """Nothing goes on before a person has looked at `target`."""

    target: ToolOperation
    why: str


def find_next(work: Work) -> Correct | Stuck | None:
    """What is corrected next; None when every known effect of the run is.

    Writes what is pending first, for it reads rows.
    """
    assert all(one.settled_at is not None for one in work.operations), "unknown ones come first"
    work.commit()
    for target in _find_targets(work):
        if failed := _find_failed(target):
            return Stuck(target, say_failed(failed))
        match _choose_call(work, target):
            case ToolCall() as call:
                return Correct(target, call)
            case str(why):
                told = {"arguments": target.arguments, "result": target.result}
                said = scrub(f"operation {target.id}: {why}", told, target.sensitive)
                return Stuck(target, bound_text(said, TEXT_LIMIT))
            case None:
                _note_nothing(work, target)
    return None


def known_effects() -> QuerySet[ToolOperation]:
    """Operations whose effect is recorded: no reads, no repeats that were only answered, and no
    compensations."""
    return ToolOperation.objects.filter(compensates__isnull=True).filter(
        Q(status=OperationStatus.COMMITTED)
        & ~Q(effect_type=EffectType.READ)
        & ~Q(policy_outcome=REPLAY)
        # A child run that failed may have left effects; whether it did is asked of its rows.
        | Q(IS_DELEGATION, status=OperationStatus.REJECTED)
    )


def late_effects() -> QuerySet[ToolOperation]:
    """Operations that were closed without an effect, and whose effect turned up later."""
    closed = (OperationStatus.REJECTED, OperationStatus.CANCELLED)
    return ToolOperation.objects.filter(compensates__isnull=True, status__in=closed).filter(
        Exists(_late_commits())
    )


def uncorrected(operations: QuerySet[ToolOperation]) -> QuerySet[ToolOperation]:
    """Those that no compensation and no person has corrected."""
    corrections = ToolOperation.objects.filter(compensates=OuterRef("pk")).filter(
        Q(status=OperationStatus.COMMITTED) | Exists(_late_commits())
    )
    words = ToolObservation.objects.filter(
        operation=OuterRef("pk"), verdict=ToolObservation.Verdict.CORRECTED
    )
    return operations.exclude(Exists(corrections)).exclude(Exists(words))


def find_target(operation: ToolOperation) -> ToolOperation:
    """What a compensation corrects; any other operation itself."""
    return operation.compensates or operation


def has_effect(operation: ToolOperation) -> bool:
    """Whether the operation has an effect that is known, corrected or not."""
    return any(
        effects.filter(pk=operation.pk).exists() for effects in (known_effects(), late_effects())
    )


def is_uncorrected(target: ToolOperation) -> bool:
    """Whether the operation has an effect that is known and not corrected."""
    return any(
        uncorrected(effects).filter(pk=target.pk).exists()
        for effects in (known_effects(), late_effects())
    )


def _late_commits() -> QuerySet[Incident]:
    return Incident.objects.filter(operation=OuterRef("pk"), kind=Incident.Kind.LATE_COMMIT)


def _find_targets(work: Work) -> Iterator[ToolOperation]:
    """What is left to correct, newest first."""
    late = uncorrected(late_effects().filter(run_id=work.run_id)).order_by(*_NEWEST_FIRST)
    return merge(_recorded(work), late, key=_place, reverse=True)


_NEWEST_FIRST: Final = ("-step_number", "-ordinal", "-revision")


def _place(operation: ToolOperation) -> tuple[int, int, int]:
    return operation.step_number, operation.ordinal, operation.revision


def _recorded(work: Work) -> Iterator[ToolOperation]:
    """Recorded effects that are not corrected, from where the saga stands."""
    effects = uncorrected(known_effects().filter(run_id=work.run_id)).order_by(*_NEWEST_FIRST)
    newest = ToolOperation.objects.filter(
        run_id=work.run_id, step_number=work.step_number, compensates__isnull=False
    ).select_related("compensates")
    # All that is newer than what the newest compensation was about had its turn before it.
    stands_at = next((one.compensates for one in newest), None)
    page = effects if stands_at is None else effects.filter(_up_to(_place(stands_at)))
    size = 1
    while found := list(page[:size]):
        yield from found
        page = effects.filter(_up_to(_place(found[-1]))).exclude(pk=found[-1].pk)
        size = min(2 * size, LARGEST_PAGE)


def _up_to(place: tuple[int, int, int]) -> Q:
    step, ordinal, revision = place
    # The first condition is implied by the others: it is what an index can use.
    return Q(step_number__lte=step) & (
        Q(step_number__lt=step)
        | Q(step_number=step, ordinal__lt=ordinal)
        | Q(step_number=step, ordinal=ordinal, revision__lte=revision)
    )


def _find_failed(target: ToolOperation) -> ToolOperation | None:
    """The newest compensation, if it came to nothing and nobody let the run go on since."""
    newest = (
        ToolOperation.objects.filter(compensates=target.pk)
        .order_by("-step_number", "-ordinal", "-revision")
        .first()
    )
    if newest is None:
        return None
    since = Transition.objects.filter(
        run_id=target.run_id,
        version__gte=newest.run_version,
        operation=None,
        event=RunEvent.RESUME,
        from_state=RunState.COMPENSATING,
    )
    return None if since.exists() else newest


def say_failed(failed: ToolOperation) -> str:
    """Why a compensation that came to nothing holds its run up."""
    said = f"operation {failed.compensates_id} waits for a person: its compensation {failed.id} "
    said += f"is {failed.status}: {failed.error}"
    return bound_text(said, TEXT_LIMIT)


def _note_nothing(work: Work, target: ToolOperation) -> None:
    """Plan that it is kept: the handler is not asked again, by this run or its parent."""
    if is_delegation(target):
        # Of a child run its own rows tell.
        return
    work.observe(
        ToolObservation(
            operation_id=target.id,
            run_id=target.run_id,
            source=ToolObservation.Source.HANDLER,
            verdict=ToolObservation.Verdict.CORRECTED,
            detail="the compensation_handler says that nothing is to be corrected",
            attempt=target.attempts,
            fence_token=work.lease.fence_token,
        )
    )
    if len(work.change.observations) >= LARGEST_PAGE:
        work.commit()


def _choose_call(work: Work, target: ToolOperation) -> ToolCall | str | None:
    """The call that corrects the effect, or why there is none; None if nothing is to be done."""
    if is_delegation(target):
        child = target.external_ref
        return ToolCall(COMPENSATE_RUN, run=child) if child and has_effects(child) else None
    try:
        spec = get_tool(target.tool)
        if corrector := compensating_tool(spec):
            given = pick_arguments(get_tool(corrector), read_arguments(target))
            return ToolCall(corrector, **given)
    except (UnknownTool, OutdatedArguments) as error:
        return f"it cannot be corrected here: {error}"
    function = compensating_function(spec)
    if function is None:
        return f"{spec.name} has no compensation_handler: only a person can correct it"
    return _ask_handler(work, target, spec, function)


def _ask_handler(
    work: Work, target: ToolOperation, spec: ToolSpec, function: Callable[..., Any]
) -> ToolCall | str | None:
    seconds = spec.timeout_policy.seconds
    work.lease.expect(seconds + margin_seconds())
    call = build_correction_call(work, target, seconds=seconds)

    def ask() -> Any:
        answer = function(call)
        return run_coroutine(_await(answer)) if inspect.isawaitable(answer) else answer

    try:
        match run_within(ask, seconds=seconds):
            case ToolCall() as said:
                return _as_stored(said)
            case None:
                return None
            case other:
                raise TypeError(f"it returned {type(other).__name__}, not ToolCall or None")
    except Exception as error:  # noqa: BLE001  a handler is somebody else's code
        return f"the compensation_handler of {spec.name} failed: {describe(error)}"


def _as_stored(call: ToolCall) -> ToolCall:
    """The call as it will be recorded; raises what makes it unusable."""
    body = decisions.encode(CallTools(call))
    check_json(body, field="compensation")
    stored = decisions.decode(body, where="a compensation_handler")
    assert isinstance(stored, CallTools), "a decision decodes as what it was"
    return stored.calls[0]


async def _await(answer: Any) -> Any:
    return await answer

"""Which operations of the open step may be taken next, and when its run is due again.

Terms. *Reach*: the open operations that may be settled now, in any order: the first open one
and, if its tool is a READ or declares `parallel`, those behind it up to the first that is not.
*Parked*: left alone until a date of its own, or until somebody makes the run due.

Guarantees: any other call is made alone, after everything before it and before everything
behind it; an operation that waits for a date, a signature or a person holds up nobody else
within reach; each is looked at once per claim, those whose date has come first.

Does not take an operation: `engine.py` does.
"""

from datetime import UTC, datetime
from itertools import takewhile
from typing import Final

from runs.intents import is_replay
from runs.judging import NEEDED
from runs.models import ToolOperation
from runs.outcomes import move_run
from runs.state import OperationStatus, RunEvent, RunState
from runs.work import Work
from tools import EffectType
from tools.errors import UnknownTool
from tools.registry import get_tool

_NEVER_ASKED: Final = datetime.min.replace(tzinfo=UTC)


def next_operation(work: Work) -> ToolOperation | None:
    """The open operation that is taken next; None when each within reach waits for something."""
    free = _find_free(work)
    return min(free, key=_rank, default=None)


def find_batch(work: Work) -> list[ToolOperation]:
    """The operations that may leave together now, as far as their rows tell."""
    return [operation for operation in _find_free(work) if _leaves_plainly(work, operation)]


def give_back(work: Work) -> None:
    """Release the run until the first of its operations is due."""
    parked = work.parked or {}
    reach = find_reach(work)
    if work.is_paused:
        # What would be sent has no date: whoever resumes the run gives it one.
        reach = [one for one in reach if not _is_to_be_sent(one)]
    dates = [seconds for one in reach if (seconds := parked.get(one.id)) is not None]
    is_held = any(one.status == OperationStatus.AWAITING_APPROVAL for one in reach)
    if is_held and not dates and work.state is not RunState.WAITING_FOR_APPROVAL:
        move_run(work, RunEvent.HOLD)
    work.release(wake_in=min(dates, default=None))


def find_reach(work: Work) -> list[ToolOperation]:
    """The open operations that may be settled now, in the order of the decision."""
    still_open = [operation for operation in work.operations if operation.settled_at is None]
    return list(takewhile(_is_parallel, still_open)) or still_open[:1]


def _is_parallel(operation: ToolOperation) -> bool:
    """By the row and by the tool as it is now: neither may forbid it."""
    try:
        spec = get_tool(operation.tool)
    except UnknownTool:
        return operation.effect_type == EffectType.READ
    effects = {operation.effect_type, spec.effect_type}
    if EffectType.TRANSACTIONAL in effects:
        return False
    return spec.parallel or effects == {EffectType.READ}


def _find_free(work: Work) -> list[ToolOperation]:
    """Those within reach that are not parked, and may be taken."""
    reach = find_reach(work)
    if work.settles_only:
        reach = [one for one in reach if one.status == OperationStatus.UNKNOWN]
    if work.parked is None:
        work.parked = _park_not_due(work, reach)
    may_send = work.cancel_requested_by is None and not work.is_paused
    return [
        one for one in reach if one.id not in work.parked and (may_send or not _is_to_be_sent(one))
    ]


def _park_not_due(work: Work, reach: list[ToolOperation]) -> dict[str, float | None]:
    """Those whose date has not come; nobody where none is due, for then somebody woke the run."""
    left = {one.id: seconds for one in reach if (seconds := _seconds_left(work, one)) > 0}
    is_any_due = any(one.id not in left and not _is_settled_by_people(one) for one in reach)
    return {**left} if is_any_due else {}


def _seconds_left(work: Work, operation: ToolOperation) -> float:
    date = None
    match operation.status:
        case OperationStatus.PREPARED:
            date = operation.next_try_at
        case OperationStatus.UNKNOWN:
            date = operation.next_reconcile_at
    return (date - work.now).total_seconds() if date is not None else 0.0


def _is_settled_by_people(operation: ToolOperation) -> bool:
    return operation.needs_person_since is not None and operation.next_reconcile_at is None


def _is_to_be_sent(operation: ToolOperation) -> bool:
    return operation.status == OperationStatus.PREPARED and not is_replay(operation)


def _leaves_plainly(work: Work, operation: ToolOperation) -> bool:
    """Whether nothing about its send concerns it alone: no signature to spend, no count."""
    judged = work.judged.get(operation.id)
    is_counted = judged is not None and judged.counts
    return (
        _is_to_be_sent(operation)
        and _is_known(operation.tool)
        and operation.policy_outcome != NEEDED
        and not is_counted
    )


def _is_known(tool: str) -> bool:
    try:
        get_tool(tool)
    except UnknownTool:
        return False
    return True


def _rank(operation: ToolOperation) -> tuple[int, datetime]:
    """What can be sent comes before what is asked about, and that before what people do."""
    date = _NEVER_ASKED
    match operation.status:
        case OperationStatus.PREPARED:
            place = 2 if operation.policy_outcome == NEEDED else 0
        case OperationStatus.UNKNOWN:
            place, date = 1, operation.next_reconcile_at or _NEVER_ASKED
        case _:
            place = 3
    return place, date

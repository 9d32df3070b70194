"""What every command on runs is made of: checks, the row lock, and the two kinds of record.

Guarantees: a request that changes something has a `ControlRequest` row in the same
transaction; a final run is reopened by an edge of the table, under its row lock, with the
journal row that explains it.

Does not decide whether a request is possible; the commands do.
"""

from typing import Any, Final
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models.functions import Now

from runs.access import Actor
from runs.called import drop_called
from runs.errors import InvalidInput, UnknownRun
from runs.models import TEXT_LIMIT, AgentRun, ControlRequest, Transition
from runs.state import RunEvent, RunState, next_run_state
from runs.wake import hint_after_commit
from tools.canonical import check_json
from tools.errors import InvalidPayload


def lock_run(run_id: UUID) -> AgentRun:
    """The run, which nobody else changes until this transaction ends. Raises UnknownRun."""
    run = AgentRun.objects.select_for_update(no_key=True).filter(id=run_id).first()
    if run is None:
        raise UnknownRun(run_id=str(run_id))
    return run


def lock_parent(run_id: UUID) -> AgentRun | None:
    """The run that started this one, locked before it, as everybody locks the two."""
    parents = AgentRun.objects.filter(children__id=run_id)
    return parents.select_for_update(no_key=True, of=("self",)).first()


def read_again(run: AgentRun) -> AgentRun:
    """The run as it stands after what was just written."""
    run.refresh_from_db()
    return run


def note_request(
    run: AgentRun, kind: ControlRequest.Kind, *, actor: Actor, reason: str = "", **details: Any
) -> None:
    """Keep who asked, before what it led to."""
    ControlRequest.objects.create(
        run=run,
        kind=kind,
        by=actor.name,
        by_user_id=actor.user_id,
        reason=reason,
        details=details,
    )


def find_corrector(run_id: UUID) -> tuple[str, int | None] | None:
    """Who had the run corrected last: the name, and the person if there is one who is known."""
    asked = ControlRequest.objects.filter(run_id=run_id, kind__in=_CORRECTING)
    newest = asked.order_by("-at", "-id").first()
    if newest is None:
        return None
    user = newest.by_user_id
    is_known = user is not None and get_user_model().objects.filter(pk=user).exists()
    return newest.by, user if is_known else None


_CORRECTING: Final = (ControlRequest.Kind.COMPENSATE, ControlRequest.Kind.CANCEL)


def reopen(
    run: AgentRun, event: RunEvent, *, actor: Actor, reason: str = "", **columns: Any
) -> None:
    """Move a locked, final run by `event`, so that a worker is due for it now.

    Requests of its former life are over: it neither is paused nor will be cancelled, and what it
    was called for and had not taken up is not done.
    """
    target = next_run_state(state=RunState(run.state), event=event)
    drop_called(run.pk)
    AgentRun.objects.filter(id=run.pk).update(
        state=target,
        version=run.version + 1,
        finished_at=None,
        wake_at=Now(),
        sweep_at=Now(),
        updated_at=Now(),
        paused_at=None,
        pause_reason="",
        cancel_requested_at=None,
        cancel_requested_by="",
        cancel_compensates=False,
        # Its next end is another one, of which its parent is told anew.
        parent_told_at=None,
        **columns,
    )
    add_edge(run, event, target, actor=actor, reason=reason, version=run.version + 1)
    hint_after_commit(run.pk)


def add_edge(
    run: AgentRun,
    event: RunEvent,
    target: RunState,
    *,
    actor: Actor,
    reason: str = "",
    version: int | None = None,
) -> None:
    """The journal row of an edge that a command takes, and not a lease holder."""
    Transition.objects.create(
        run=run,
        version=run.version if version is None else version,
        event=event,
        from_state="" if event is RunEvent.CREATE else run.state,
        to_state=target,
        reason=reason,
        actor=actor.name,
        fence_token=run.fence_token,
        step_number=run.step_number,
        attempt=0,
    )


def check_storable(value: Any, *, field: str) -> None:
    """Refuse what cannot be stored, naming the place inside `field`. Raises InvalidInput."""
    try:
        check_json(value, field=field)
    except InvalidPayload as error:
        raise InvalidInput(field=error.field, value=error.value, fix=error.fix) from error


def check_text(text: Any, *, field: str, shortest: int = 0, longest: int = TEXT_LIMIT) -> None:
    """Refuse a text that cannot be stored or has no fitting length. Raises InvalidInput."""
    check_storable(text, field=field)
    if not isinstance(text, str):
        raise InvalidInput(field=field, value=type(text).__name__, fix="Give a text.")
    if not shortest <= len(text) <= longest:
        raise InvalidInput(
            field=field,
            value=f"{len(text)} characters",
            fix=f"Use {shortest} to {longest}.",
        )


def check_number(number: Any, *, field: str, lowest: int, highest: int) -> None:
    """Refuse what is no whole number in these bounds. Raises InvalidInput."""
    if isinstance(number, bool) or not isinstance(number, int) or not lowest <= number <= highest:
        raise InvalidInput(
            field=field,
            value=ascii(number)[:80],
            fix=f"Give a whole number from {lowest} to {highest}.",
        )

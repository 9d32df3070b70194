"""The inbox: what waits for a signature, and what became of what did.

Guarantees: pending approvals come first, the one nearest to its end on top, then all others,
newest first; reading on from a cursor costs the same however far one has come. A page costs
the same few queries however many rows it has. A filter that cannot match by mistake is refused
by name.

Does not decide anything, and does not check scopes; front doors do.
"""

from uuid import UUID

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Prefetch, Q, QuerySet
from pydantic import AwareDatetime

from approvals.eligibility import may_be_signed_by
from approvals.errors import UnknownApproval
from approvals.models import Verdict
from runs.errors import InvalidInput
from runs.models import Approval, ToolOperation
from runs.paging import Cursor, Page
from runs.queries import parse_run_id
from runs.state import OperationStatus
from tools.canonical import check_json
from tools.errors import InvalidPayload
from tools.redaction import bound_text

PENDING = Q(status=Approval.Status.PENDING)


def find_approvals(
    *,
    status: str | None = None,
    run: str | None = None,
    tool: str | None = None,
    mine: User | AnonymousUser | None = None,
) -> QuerySet[Approval]:
    """Approvals that match every filter; `mine`: those that this user may sign now.

    With all that is shown of them. Raises InvalidInput.
    """
    found = Approval.objects.select_related("operation", "run").prefetch_related(
        Prefetch("verdicts", Verdict.objects.order_by("id")),
        Prefetch("superseded_by", Approval.objects.only("id", "requested_at", "supersedes")),
    )
    if status is not None:
        found = found.filter(status=_status(status))
    if run is not None:
        found = found.filter(run_id=parse_run_id(run))
    if tool is not None:
        try:
            check_json(tool, field="tool")
        except InvalidPayload as error:
            raise InvalidInput(field=error.field, value=error.value, fix=error.fix) from error
        found = found.filter(operation__tool=tool)
    return found if mine is None else may_be_signed_by(found, user=mine)


def get_approval(approval_id: str | UUID) -> Approval:
    """One approval with all that is shown of it. Raises UnknownApproval."""
    try:
        return find_approvals().get(id=UUID(str(approval_id)))
    except (ValueError, Approval.DoesNotExist) as error:
        raise UnknownApproval(approval_id=bound_text(str(approval_id), 80)) from error


def held_operations() -> QuerySet[ToolOperation]:
    """Operations awaiting approval, with their runs, oldest first."""
    return (
        ToolOperation.objects.filter(status=OperationStatus.AWAITING_APPROVAL)
        .select_related("run")
        .order_by("created_at")
    )


class _Place(Cursor):
    pending: bool
    at: AwareDatetime
    id: UUID


def read_page(found: QuerySet[Approval], *, cursor: str | None, size: int) -> Page[Approval]:
    """One page in the order of the inbox. Raises InvalidInput."""
    place = _Place.decode(cursor) if cursor is not None else None
    back = place is not None and place.back
    items: list[Approval] = []
    for pending in (False, True) if back else (True, False):
        if place is not None and place.pending is not pending and pending is not back:
            # This part lies wholly on the other side of the place.
            continue
        beyond = place if place is not None and place.pending is pending else None
        rows = _ordered(found, pending=pending, beyond=beyond, back=back)
        items += rows[: size + 1 - len(items)]
        if len(items) > size:
            break
    more = len(items) > size
    items = items[:size]
    if back:
        items.reverse()
    before = more if back else place is not None
    after = bool(items) if back else more
    return Page(
        items=items,
        next=_place_of(items[-1], back=False) if after else None,
        previous=_place_of(items[0], back=True) if before and items else None,
    )


def _ordered(
    found: QuerySet[Approval], *, pending: bool, beyond: _Place | None, back: bool
) -> QuerySet[Approval]:
    """The pending part goes up by `approve_by`, the other down by `requested_at`."""
    date = "approve_by" if pending else "requested_at"
    rises = pending is not back
    rows = found.filter(PENDING) if pending else found.exclude(PENDING)
    if beyond is not None:
        way = "gt" if rises else "lt"
        tie = Q(**{date: beyond.at, f"id__{way}": beyond.id})
        # The first condition says nothing new; it lets the index find the place.
        rows = rows.filter(
            Q(**{f"{date}__{way}e": beyond.at}) & (Q(**{f"{date}__{way}": beyond.at}) | tie)
        )
    sign = "" if rises else "-"
    return rows.order_by(f"{sign}{date}", f"{sign}id")


def _place_of(approval: Approval, *, back: bool) -> str:
    pending = approval.status == Approval.Status.PENDING
    at = approval.approve_by if pending else approval.requested_at
    return _Place(back=back, pending=pending, at=at, id=approval.id).encode()


def _status(given: str) -> str:
    known = [str(one) for one in Approval.Status]
    if given.lower() in known:
        return given.lower()
    raise InvalidInput(
        field="status", value=ascii(given[:80]), fix=f"Possible are: {', '.join(known)}."
    )

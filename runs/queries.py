"""Finding runs, operations and incidents, for whoever shows them.

Guarantees: a filter that cannot match by mistake (a state that does not exist, an id
that is none) is refused by name instead of answered with an empty list.

Does not check scopes; front doors do, for reading changes nothing.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from uuid import UUID

from django.db.models import Count, Prefetch, Q, QuerySet

from runs.errors import InvalidInput, UnknownOperation, UnknownRun
from runs.models import AgentRun, Incident, ToolObservation, ToolOperation
from runs.shapes import DuplicateCounts
from runs.state import UNCERTAIN_STATES, OperationStatus, RunState
from tools.canonical import check_json
from tools.errors import InvalidPayload
from tools.redaction import bound_text


def find_runs(
    *,
    state: str | None = None,
    agent: str | None = None,
    labels: Mapping[str, str] | None = None,
    uncertain: bool | None = None,
    parent: str | None = None,
) -> QuerySet[AgentRun]:
    """Runs that match every given filter. Raises InvalidInput."""
    runs = AgentRun.objects.all()
    if state is not None:
        runs = runs.filter(state=_one_of(RunState, state, field="state"))
    if agent is not None:
        runs = runs.filter(agent=_storable(agent, field="agent"))
    if parent is not None:
        runs = runs.filter(parent_id=parse_run_id(parent))
    if labels:
        for name, value in labels.items():
            _storable(name, field="label")
            _storable(value, field="label")
        runs = runs.filter(labels__contains=dict(labels))
    if uncertain is not None:
        if uncertain:
            # Each has an unknown operation, of which there is a small index.
            unknown = ToolOperation.objects.filter(status=OperationStatus.UNKNOWN)
            runs = runs.filter(id__in=unknown.values("run_id"))
        matching = runs.filter if uncertain else runs.exclude
        runs = matching(state__in=sorted(UNCERTAIN_STATES))
    return runs


def find_operations(
    *, status: str | None = None, run: str | None = None, tool: str | None = None
) -> QuerySet[ToolOperation]:
    """Operations that match every filter, with all that is known of them. Raises InvalidInput."""
    operations = ToolOperation.objects.prefetch_related(
        Prefetch("observations", ToolObservation.objects.order_by("id")),
        Prefetch("incidents", Incident.objects.order_by("id")),
        Prefetch(
            "compensated_by",
            ToolOperation.objects.only("id", "compensates_id").order_by("created_at", "id"),
        ),
    )
    if status is not None:
        operations = operations.filter(status=_one_of(OperationStatus, status, field="status"))
    if run is not None:
        operations = operations.filter(run_id=parse_run_id(run))
    if tool is not None:
        operations = operations.filter(tool=_storable(tool, field="tool"))
    return operations


def find_incidents(*, kind: str | None = None, run: str | None = None) -> QuerySet[Incident]:
    """Incidents that match every given filter, newest first. Raises InvalidInput."""
    incidents = Incident.objects.select_related("operation").order_by("-at", "-id")
    if kind is not None:
        incidents = incidents.filter(kind=_one_of(Incident.Kind, kind, field="kind"))
    if run is not None:
        incidents = incidents.filter(run_id=parse_run_id(run))
    return incidents


def duplicate_counts() -> DuplicateCounts:
    """How often an effect was asked for again, or came twice or late. Two indexed queries."""
    repeats = ToolOperation.objects.filter(repeats__isnull=False).aggregate(
        replays=Count("pk", filter=Q(status=OperationStatus.COMMITTED)),
        refused_repeats=Count("pk", filter=Q(status=OperationStatus.CANCELLED)),
    )
    found = dict(Incident.objects.order_by().values_list("kind").annotate(Count("pk")))
    return DuplicateCounts(
        **repeats,
        late_commits=found.get(Incident.Kind.LATE_COMMIT, 0),
        duplicates=found.get(Incident.Kind.DUPLICATE, 0),
        overdue=found.get(Incident.Kind.OVERDUE, 0),
        unapproved=found.get(Incident.Kind.UNAPPROVED, 0),
    )


def get_run(run_id: str) -> AgentRun:
    """The run of this id. Raises UnknownRun, also for what is no id."""
    try:
        return AgentRun.objects.get(id=parse_run_id(run_id))
    except (AgentRun.DoesNotExist, InvalidInput) as error:
        raise UnknownRun(run_id=bound_text(run_id, 80)) from error


def get_operation(operation_id: str) -> ToolOperation:
    """The operation of this id, with all that is known of it. Raises UnknownOperation."""
    try:
        return find_operations().get(id=_storable(operation_id, field="operation"))
    except (ToolOperation.DoesNotExist, InvalidInput) as error:
        raise UnknownOperation(operation_id=bound_text(operation_id, 80)) from error


def parse_run_id(text: str) -> UUID:
    """A run's id from its text. Raises InvalidInput."""
    try:
        return UUID(text)
    except ValueError as error:
        raise InvalidInput(
            field="run", value=ascii(text[:80]), fix="Give a run's id, as list_runs shows it."
        ) from error


def parse_label(text: str, *, separator: str) -> tuple[str, str]:
    """Name and value of one label as people type it. Raises InvalidInput."""
    name, found, value = text.partition(separator)
    if not found or not name:
        raise InvalidInput(
            field="label", value=ascii(text[:80]), fix=f"Write it as name{separator}value."
        )
    return name, value


def _one_of(known: Iterable[str], given: str, *, field: str) -> str:
    names = [str(one) for one in known]
    if (wanted := given.upper()) in names:
        return wanted
    near = get_close_matches(wanted, names, n=1)
    fix = f"Did you mean {near[0]}? " if near else ""
    raise InvalidInput(
        field=field, value=ascii(given[:80]), fix=f"{fix}Possible are: {', '.join(names)}."
    )


def _storable(text: str, *, field: str) -> str:
    try:
        check_json(text, field=field)
    except InvalidPayload as error:
        raise InvalidInput(field=error.field, value=error.value, fix=error.fix) from error
    return text

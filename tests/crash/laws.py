"""What must hold after any crash, read from the rows and from the provider's own books."""

from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from examples.shop.provider.ledger import Effect, SeenRequest
from examples.shop.provider_process import ProviderProcess
from runs.models import AgentRun, StepAttempt, ToolObservation, ToolOperation, Transition
from runs.queries import find_runs
from runs.state import OperationStatus, RunEvent, RunState
from tests.processes import DidNotHappen, wait_until

PERSON_EVENTS = (RunEvent.NEED_PERSON, RunEvent.HOLD, RunEvent.APPROVE, RunEvent.DENY)


def assert_recovered(run_id: UUID, provider: ProviderProcess, *, claims_at_least: int) -> None:
    """The run completed by itself, with one effect per write, under growing tokens."""
    run = AgentRun.objects.get(id=run_id)
    assert run.state == RunState.COMPLETED, f"{run.state}: {run.error}"
    assert run.fence_token >= claims_at_least
    assert not Transition.objects.filter(run=run, event__in=PERSON_EVENTS).exists()
    assert not ToolObservation.objects.filter(run=run, source="person").exists()
    operations = list(ToolOperation.objects.filter(run=run))
    assert operations
    for operation in operations:
        assert operation.status == OperationStatus.COMMITTED, operation.error
        is_write = operation.effect_type != "READ"
        assert len(provider.effects(operation.id)) == int(is_write), operation.tool
    assert_tokens_only_grew(run_id, provider)


def wait_until_finished(*run_ids: UUID, seconds: float = 40.0) -> None:
    """Raises `DidNotHappen` with where the runs stand instead."""
    runs = AgentRun.objects.filter(id__in=run_ids)
    try:
        wait_until(
            lambda: not runs.filter(finished_at__isnull=True).exists(),
            what=f"{len(run_ids)} runs have ended",
            seconds=seconds,
        )
    except DidNotHappen as error:
        error.add_note(str(list(runs.values("id", "state", "error", "fence_token", "wake_at"))))
        raise


def wait_until_at_rest(*run_ids: UUID, seconds: float = 40.0) -> None:
    """Each run has ended or waits for a person, and nobody holds it."""
    rest = AgentRun.objects.filter(id__in=run_ids, lease_owner="").filter(
        Q(finished_at__isnull=False) | Q(state=RunState.WAITING_FOR_RESOLUTION)
    )
    try:
        wait_until(
            lambda: rest.count() == len(run_ids),
            what=f"{len(run_ids)} runs have come to rest",
            seconds=seconds,
        )
    except DidNotHappen as error:
        runs = AgentRun.objects.filter(id__in=run_ids)
        error.add_note(str(list(runs.values("id", "agent", "state", "error", "wake_at"))))
        raise


def wait_until_not_found(
    operation: ToolOperation, *, times: int = 3, after: timedelta = timedelta(0)
) -> None:
    """So many look-ups, at least `after` the last send, found no effect of the operation."""
    operation.refresh_from_db()
    assert operation.last_sent_at is not None
    negatives = operation.observations.filter(
        verdict="not_found", observed_at__gt=operation.last_sent_at + after
    )
    wait_until(
        lambda: negatives.count() >= times, what=f"{times} look-ups find nothing", seconds=40.0
    )


class Books:
    """What a provider did, and what it was asked to do, since this was opened."""

    def __init__(self, provider: ProviderProcess) -> None:
        self.provider = provider
        self._effects_before = len(provider.effects())
        self._sent_before = len(provider.requests(method="POST"))

    @property
    def effects(self) -> list[Effect]:
        return self.provider.effects()[self._effects_before :]

    @property
    def sent(self) -> list[SeenRequest]:
        """The refunds that were asked for, in the order of arrival."""
        return self.provider.requests(method="POST")[self._sent_before :]


def assert_settled(run_id: UUID, books: Books) -> ToolOperation:
    """The run completed by itself, and its one refund is recorded as the provider has it."""
    run = AgentRun.objects.get(id=run_id)
    assert run.state == RunState.COMPLETED, f"{run.state}: {run.error}"
    assert not Transition.objects.filter(run=run, event__in=PERSON_EVENTS).exists()
    operation = ToolOperation.objects.get(run=run)
    assert operation.status == OperationStatus.COMMITTED, operation.error
    assert_honest(run_id, books)
    return operation


def assert_left_to_a_person(run_id: UUID, books: Books, *, why: str) -> ToolOperation:
    """The run waits, says why, and counts as uncertain."""
    run = AgentRun.objects.get(id=run_id)
    assert run.state == RunState.WAITING_FOR_RESOLUTION, f"{run.state}: {run.error}"
    assert find_runs(uncertain=True).filter(id=run_id).exists()
    operation = ToolOperation.objects.get(run=run)
    assert operation.status == OperationStatus.UNKNOWN
    assert operation.unknown_since is not None
    assert why in operation.error
    asked = Transition.objects.filter(run=run, event=RunEvent.NEED_PERSON)
    assert [edge.reason for edge in asked] == [operation.error]
    assert_honest(run_id, books)
    return operation


def assert_honest(run_id: UUID, books: Books) -> None:
    """Never two effects, no end that denies one, one id for life, every edge in the journal."""
    run = AgentRun.objects.get(id=run_id)
    for operation in ToolOperation.objects.filter(run=run):
        made = [one for one in books.effects if one.operation_id == operation.id]
        match operation.status:
            case OperationStatus.COMMITTED if operation.repeats is not None:
                assert not made
                assert operation.external_ref == operation.repeats.external_ref
            case OperationStatus.COMMITTED:
                assert [one.refund_id for one in made] == [operation.external_ref]
            case OperationStatus.UNKNOWN:
                assert len(made) <= 1
            case _:
                assert not made, f"{operation.status} with an effect"
    known = set(ToolOperation.objects.values_list("id", flat=True))
    assert {one.operation_id for one in books.effects} <= known
    assert {one.key for one in books.sent} <= known
    assert_journaled(run)


def assert_journaled(run: AgentRun) -> None:
    """The edges lead from nothing to where the run, and each operation, stands."""
    edges = list(Transition.objects.filter(run=run).order_by("id"))
    paths = {operation.id: operation.status for operation in run.operations.all()}
    for name, end in [(None, run.state), *paths.items()]:
        path = [edge for edge in edges if edge.operation_id == name]
        states = ["", *(edge.to_state for edge in path)]
        assert [edge.from_state for edge in path] == states[:-1]
        assert states[-1] == end


def assert_tokens_only_grew(run_id: UUID, provider: ProviderProcess) -> None:
    """In the journal, over the attempts, and in the order in which the provider was asked."""
    journal = Transition.objects.filter(run=run_id).order_by("id")
    attempts = StepAttempt.objects.filter(step__run=run_id).order_by("step__number", "number")
    told = [list(rows.values_list("fence_token", flat=True)) for rows in (journal, attempts)]
    for operation_id in ToolOperation.objects.filter(run=run_id).values_list("id", flat=True):
        sent = [seen for seen in provider.requests(method="POST") if seen.key == operation_id]
        told.append([int(seen.fence_token or 0) for seen in sent])
    for tokens in told:
        assert all(one <= other for one, other in pairwise(tokens)), tokens


@dataclass(frozen=True)
class Snapshot:
    """Everything that a stale worker must leave as it is, flat: (table, id, column) to value."""

    cells: dict[tuple[str, Any, str], Any]

    def changed(self, later: "Snapshot") -> dict[tuple[str, Any, str], tuple[Any, Any]]:
        """What differs later: before and after, by table, id and column."""
        return {
            place: (self.cells.get(place), later.cells.get(place))
            for place in self.cells.keys() | later.cells.keys()
            if self.cells.get(place) != later.cells.get(place)
        }


def snapshot(run_id: UUID, provider: ProviderProcess) -> Snapshot:
    """The run's rows without its observations, and how often the provider was asked."""
    tables: dict[str, QuerySet[Any]] = {
        "run": AgentRun.objects.filter(id=run_id),
        "attempt": StepAttempt.objects.filter(step__run=run_id),
        "operation": ToolOperation.objects.filter(run=run_id),
        "journal": Transition.objects.filter(run=run_id),
    }
    cells = {
        (table, row["id"], column): value
        for table, rows in tables.items()
        for row in rows.values()
        for column, value in row.items()
    }
    cells["provider", "", "requests"] = len(provider.requests())
    cells["provider", "", "effects"] = len(provider.effects())
    return Snapshot(cells)

"""What must hold after any crash, read from the rows and from the provider's own books."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from examples.shop.provider_process import ProviderProcess
from runs.models import AgentRun, StepAttempt, ToolObservation, ToolOperation, Transition
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
        assert operation.status == OperationStatus.COMMITTED
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

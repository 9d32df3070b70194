"""What a timeline is of: a whole run, or one of its operations.

An operation's timeline has what is told of it, and what its step did as a whole: the decision that
led to it, who took the step up again, and what was asked of an llm meanwhile.

Guarantees: every kind of row is found through an index of its run; what several kinds of entries
need of the run itself is read once, and only when it is needed.
"""

from collections.abc import Collection
from functools import cached_property
from typing import Any
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Q, QuerySet

from runs.models import (
    AgentRun,
    Handoff,
    Incident,
    LlmRequest,
    StepAttempt,
    ToolObservation,
    ToolOperation,
    Transition,
)
from runs.sensitive import Secrets, load_secrets, names_of_run


class Subject:
    """A run, or one of its operations; `run` may be given where it was read already."""

    def __init__(
        self, run_id: UUID, *, operation: ToolOperation | None = None, run: AgentRun | None = None
    ) -> None:
        self.run_id = run_id
        self.operation_id = None if operation is None else operation.pk
        self._step = None if operation is None else operation.step_number
        if run is not None:
            self.run = run
        # By step and token: who held the run at what the entries that were described tell.
        self.held: dict[tuple[int, int], StepAttempt] = {}
        # Kinds of rows that are known to be absent; every other may be there.
        self.absent: frozenset[str] = frozenset()

    @cached_property
    def run(self) -> AgentRun:
        return AgentRun.objects.defer("result", "objective").get(id=self.run_id)

    @cached_property
    def hidden(self) -> frozenset[str]:
        """The names that hold secrets anywhere in the run."""
        return names_of_run(run_id=self.run_id, agent=self.run.agent)

    def look_up_secrets(self, *, steps: Collection[int]) -> Secrets:
        """What is hidden in texts about these steps; their names are the run's `hidden`."""
        secrets = load_secrets(self.run, steps=steps, names=self.__dict__.get("hidden"))
        self.hidden = secrets.names
        return secrets

    def edges(self) -> QuerySet[Transition]:
        edges = Transition.objects.filter(run_id=self.run_id)
        if self.operation_id is None:
            return edges
        of_step = Q(operation__isnull=True, step_number=self._step)
        return edges.filter(Q(operation_id=self.operation_id) | of_step)

    def observations(self) -> QuerySet[ToolObservation]:
        if self.operation_id is None:
            return ToolObservation.objects.filter(operation__run_id=self.run_id)
        return ToolObservation.objects.filter(operation_id=self.operation_id)

    def incidents(self) -> QuerySet[Incident]:
        incidents = Incident.objects.filter(run_id=self.run_id)
        if self.operation_id is None:
            return incidents
        return incidents.filter(operation_id=self.operation_id)

    def llm_requests(self) -> QuerySet[LlmRequest]:
        asked = LlmRequest.objects.filter(run_id=self.run_id).select_related("step")
        return asked if self._step is None else asked.filter(step__number=self._step)

    def handoffs(self) -> QuerySet[Handoff]:
        """They speak about the run up to a step, and about no operation."""
        handoffs = Handoff.objects.filter(run_id=self.run_id)
        return handoffs if self.operation_id is None else handoffs.none()

    def look_up_holders(self, places: Collection[tuple[int, int]]) -> None:
        """Read who held the run at these steps under these tokens, into `held`; with each step its
        decision, whose body stays where it is, and its wait."""
        found = StepAttempt.objects.filter(
            step__run_id=self.run_id,
            step__number__in={step for step, _ in places},
            fence_token__in={token for _, token in places},
        ).select_related("step__decision", "step__wait")
        found = found.defer("step__decision__body")
        self.held = {(one.step.number, one.fence_token): one for one in found}


def count_rows(*kinds: QuerySet[Any]) -> list[int]:
    """How many rows each kind has, in one query."""
    counts: list[str] = []
    values: list[Any] = []
    for rows in kinds:
        try:
            sql, given = rows.query.sql_with_params()
        except EmptyResultSet:
            counts.append("0")
            continue
        counts.append(f"(SELECT count(*) FROM ({sql}) AS counted)")  # noqa: S608  # Django wrote it
        values += given
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(counts)}", values)
        return list(cursor.fetchone())

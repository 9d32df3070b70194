"""What a list can be narrowed by.

Guarantees: choices come from code (states, registered agents and tools, periods) or
from the address itself, never from the table; a value that cannot be one of ours
finds nothing, instead of being ignored.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Final
from uuid import UUID

from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from runs.admin.lists import NARROWING, among_newest
from runs.agents import all_agents
from runs.models import Incident, Step, ToolObservation, ToolOperation
from runs.state import UNCERTAIN_STATES, UNDATED_STATES, OperationStatus, RunState
from tools.registry import all_tools

Choices = Iterable[tuple[str, str]]
_OPERATION_ID: Final = re.compile(r"[!-~]{1,64}")


class Choice(SimpleListFilter):
    """One of a few values of `field`, looked for among the newest rows.

    `indexed` holds, for the values that an index finds however old they are, how.
    """

    field: ClassVar[str]
    by: ClassVar[str] = "id"
    indexed: ClassVar[Mapping[str, Q]] = {}

    def lookups(self, request: HttpRequest, model_admin: "ModelAdmin[Any]") -> Choices:
        return self.options()

    def options(self) -> Choices:
        raise NotImplementedError

    @property
    def scans(self) -> bool:
        """Whether the chosen value is looked for without an index."""
        value = self.value()
        return value is not None and value not in self.indexed

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        if value not in dict(self.options()):
            return queryset.none()
        if value in self.indexed:
            return queryset.filter(self.indexed[value])
        if not NARROWING & set(request.GET):
            queryset = among_newest(queryset, by=self.by)
        return queryset.filter(**{self.field: value})


def _unknown_runs() -> QuerySet[ToolOperation, Any]:
    return ToolOperation.objects.filter(status=OperationStatus.UNKNOWN).values("run_id")


class State(Choice):
    title = "state"
    parameter_name = field = "state"
    by = "created_at"
    # A run that must have a date is in the small index of dates; an uncertain one has an
    # unknown operation, and those have an index of their own.
    indexed = {
        **{
            str(state): Q(state=state, sweep_at__isnull=False)
            for state in set(RunState) - UNDATED_STATES
        },
        **{str(state): Q(state=state, id__in=_unknown_runs()) for state in UNCERTAIN_STATES},
    }

    def options(self) -> Choices:
        return [(str(state), _words(state)) for state in RunState]


class Agent(Choice):
    title = "agent"
    parameter_name = field = "agent"
    by = "created_at"

    def options(self) -> Choices:
        return [(agent.name, agent.name) for agent in all_agents()]


class Status(Choice):
    title = "status"
    parameter_name = field = "status"
    by = "created_at"
    indexed = {str(OperationStatus.UNKNOWN): Q(status=OperationStatus.UNKNOWN)}

    def options(self) -> Choices:
        return [(str(status), _words(status)) for status in OperationStatus]


class Tool(Choice):
    title = "tool"
    parameter_name = field = "tool"
    by = "created_at"

    def options(self) -> Choices:
        return [(tool.name, tool.name) for tool in all_tools()]


class Source(Choice):
    title = "source"
    parameter_name = field = "source"

    def options(self) -> Choices:
        return [(value, str(label)) for value, label in ToolObservation.Source.choices]


class Verdict(Choice):
    title = "verdict"
    parameter_name = field = "verdict"

    def options(self) -> Choices:
        return [(value, str(label)) for value, label in ToolObservation.Verdict.choices]


class Kind(Choice):
    title = "kind"
    parameter_name = field = "kind"
    by = "at"
    indexed = {str(kind): Q(kind=kind) for kind in Incident.Kind}

    def options(self) -> Choices:
        return [(kind.value, kind.value.replace("_", " ").capitalize()) for kind in Incident.Kind]


class Flag(SimpleListFilter):
    """The rows of which one thing is true: `flag` in the address, `label` to people."""

    flag: ClassVar[str]
    label: ClassVar[str]

    def lookups(self, request: HttpRequest, model_admin: "ModelAdmin[Any]") -> Choices:
        return [(self.flag, self.label)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        return queryset.filter(self.is_true()) if value == self.flag else queryset.none()

    def is_true(self) -> Q:
        raise NotImplementedError


class Intent(Flag):
    """Operations that repeat an earlier one: answered with its result, or refused."""

    title = parameter_name = "intent"
    flag, label = "repeated", "repeats an earlier one"

    def is_true(self) -> Q:
        return Q(repeats__isnull=False)


class Effect(Flag):
    """Runs whose external effect is uncertain: found through their unknown operations."""

    title = parameter_name = "effect"
    flag = label = "uncertain"

    def is_true(self) -> Q:
        return Q(state__in=UNCERTAIN_STATES, id__in=_unknown_runs())


class Pause(Flag):
    """Runs that a person may let go on: found by their index, however old they are."""

    title = parameter_name = "pause"
    flag = label = "paused"

    def is_true(self) -> Q:
        return Q(paused_at__isnull=False, finished_at__isnull=True)


class Created(SimpleListFilter):
    """How new a row is. Lists are ordered by this very index."""

    title = "created"
    parameter_name = "created"
    periods: Final = {
        "1h": ("in the last hour", timedelta(hours=1)),
        "24h": ("in the last 24 hours", timedelta(hours=24)),
        "7d": ("in the last 7 days", timedelta(days=7)),
    }

    def lookups(self, request: HttpRequest, model_admin: "ModelAdmin[Any]") -> Choices:
        return [(value, label) for value, (label, _) in self.periods.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value is None:
            return queryset
        if value not in self.periods:
            return queryset.none()
        return queryset.filter(created_at__gt=Now() - self.periods[value][1])


class Of(SimpleListFilter):
    """Rows that belong to one other row, named in the address by a link from its page."""

    def lookups(self, request: HttpRequest, model_admin: "ModelAdmin[Any]") -> Choices:
        value = self.value()
        return [(value, f"only {value[:40]}")] if value else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset if value is None else self.of(queryset, value)

    def of(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        raise NotImplementedError


class OfRun(Of):
    title = parameter_name = "run"
    path: ClassVar[str] = "run_id"

    def of(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        run_id = as_uuid(value)
        return queryset.none() if run_id is None else queryset.filter(**{self.path: run_id})


class OfParent(OfRun):
    """Runs that one run started."""

    title = parameter_name = "parent"
    path = "parent_id"


class OfRunByStep(OfRun):
    """For tables that reach their run by an index through their step."""

    path = "step__run_id"


class OfRunByOperation(OfRun):
    path = "operation__run_id"


class OfStep(Of):
    title = parameter_name = "step"

    def of(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        step_id = as_number(value)
        return queryset.none() if step_id is None else queryset.filter(step_id=step_id)


class OfStepOfRun(OfStep):
    """For tables whose index begins with the run: the step is named by its place there."""

    def of(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        step_id = as_number(value)
        step = None if step_id is None else Step.objects.filter(id=step_id).first()
        if step is None:
            return queryset.none()
        return queryset.filter(run_id=step.run_id, step_number=step.number)


class OfOperation(Of):
    title = parameter_name = "operation"

    def of(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if not is_operation_id(value):
            return queryset.none()
        return queryset.filter(operation_id=value)


class OfOperationOfRun(OfOperation):
    """For the journal, whose index begins with the run."""

    def of(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if not is_operation_id(value):
            return queryset.none()
        run_id = ToolOperation.objects.filter(id=value).values_list("run_id", flat=True).first()
        return queryset.filter(run_id=run_id, operation_id=value)


def as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text.strip())
    except ValueError:
        return None


def as_number(text: str) -> int | None:
    """A row's number; None for anything that a bigint cannot hold."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def is_operation_id(text: str) -> bool:
    """Whether the text could be one; a NUL, which PostgreSQL refuses, could not."""
    return _OPERATION_ID.fullmatch(text) is not None


def _words(state: str) -> str:
    return state.replace("_", " ").capitalize()

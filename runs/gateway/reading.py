"""An operation with what was learned of it, for whoever waits for it: two prepared statements.

Guarantees: the rows as Django would read them; what most operations do not have is asked for only
where it is.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import JSONField, Model, QuerySet

from runs.models import Incident, ToolObservation, ToolOperation
from runs.prepared import fetch_all, fetch_one

M = TypeVar("M", bound=Model)


def read_operation(operation_id: str) -> ToolOperation | None:
    """The operation of this id, with its observations."""
    values = {"operation": operation_id}
    with connection.wrap_database_errors:
        found = fetch_one(_OPERATION, values)
        if found is None:
            return None
        seen = fetch_all(_OBSERVATIONS, values)
    *columns, has_incidents, is_corrected = found
    operation = _make(ToolOperation, columns)
    # What Django keeps of rows that were fetched ahead.
    observations = ToolObservation.objects.none()
    observations._result_cache = [_make(ToolObservation, one) for one in seen]
    fetched: dict[str, QuerySet[Any]] = {"observations": observations}
    if not has_incidents:
        fetched["incidents"] = Incident.objects.none()
    if not is_corrected:
        fetched["compensated_by"] = ToolOperation.objects.none()
    operation._prefetched_objects_cache = fetched  # type: ignore[attr-defined]
    return operation


def _make(kind: type[M], columns: Sequence[Any]) -> M:
    """The row as a model. JSON arrives as text, as Django has it arrive."""
    fields = kind._meta.concrete_fields
    values = [
        json.loads(value) if value is not None and isinstance(field, JSONField) else value
        for field, value in zip(fields, columns, strict=True)
    ]
    return kind.from_db(DEFAULT_DB_ALIAS, [field.attname for field in fields], values)


def _columns(kind: type[Model]) -> str:
    return ", ".join(f'it."{field.column}"' for field in kind._meta.concrete_fields)


_OPERATION: Final = f"""
    SELECT {_columns(ToolOperation)},
        EXISTS (SELECT FROM runs_incident WHERE operation_id = it.id),
        EXISTS (SELECT FROM runs_tooloperation WHERE compensates_id = it.id)
    FROM runs_tooloperation it WHERE it.id = %(operation)s::text
"""  # noqa: S608  names of columns
_OBSERVATIONS: Final = f"""
    SELECT {_columns(ToolObservation)} FROM runs_toolobservation it
    WHERE it.operation_id = %(operation)s::text ORDER BY it.id
"""  # noqa: S608

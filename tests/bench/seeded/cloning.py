"""How a row of a story becomes a row of its n-th copy, as SQL over Django's own models.

Guarantees: every table that belongs to a run is copied, found by introspection; whatever names a
row (keys, references, names that must be unique) is renamed the same way everywhere, and every
date moves by the same span, so a copy is as consistent as the run that it is made from.

Ids of runs grow with time, as those of version 7 do; the other random ones are digests.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from django.apps import apps
from django.db.models import DateTimeField, Field, Model

from runs.models import AgentRun, GatewayCall, Notice, Signal, ToolOperation

# What must be unique beside keys and references: the copy's number is put in front.
_NAMES: Final[dict[type[Model], tuple[str, ...]]] = {
    AgentRun: ("idempotency_key",),
    GatewayCall: ("key",),
    Notice: ("event_id",),
    Signal: ("event_id",),
    ToolOperation: ("holds_intent", "idempotency_key"),
}
# References that are kept as plain columns.
_PLAIN: Final[dict[type[Model], dict[str, type[Model]]]] = {
    AgentRun: {"parent_operation": ToolOperation, "root": AgentRun, "lineage": AgentRun},
    GatewayCall: {"operation_id": ToolOperation},
    Notice: {"operation_id": ToolOperation},
}
_APPS: Final = ("runs", "approvals")


@dataclass(frozen=True)
class Table:
    """One table that is copied: the columns, how each is made, and how its rows hang on a run."""

    name: str
    columns: tuple[str, ...]
    select: str
    source: str
    # The column with numbers of its own, if it has one, and how far they lie apart in a copy.
    counted: str | None


def find_tables(*, apart: dict[str, int]) -> list[Table]:
    """Everything that belongs to a run, read from the schema `seed` where the stories are alone.

    `apart`: by table, how far the numbers of one copy's rows lie from those of the next.
    """
    return [_table(model, path, apart) for model, path in _models()]


def counted_tables() -> list[tuple[str, str]]:
    """Table and column of those whose rows are numbered."""
    return [
        (model._meta.db_table, model._meta.pk.column)
        for model, _ in _models()
        if _is_counted(model._meta.pk)
    ]


def _models() -> Iterator[tuple[type[Model], str]]:
    """Every copied model, and the join that leads from its row `one` to its run."""
    yield AgentRun, "one.id"
    for app in _APPS:
        for model in apps.get_app_config(app).get_models():
            fields = {field.name: field for field in model._meta.concrete_fields}
            if model is AgentRun or model._meta.model_name == "schedule":
                continue
            if _target(fields.get("run")) is AgentRun:
                yield model, "one.run_id"
            elif "step" in fields:
                yield model, "(SELECT run_id FROM seed.runs_step WHERE id = one.step_id)"


def _table(model: type[Model], run: str, apart: dict[str, int]) -> Table:
    meta = model._meta
    fields = meta.concrete_fields
    made = ", ".join(f"{_made(model, field, apart)} AS {field.column}" for field in fields)
    order = (
        "copy.n, one.version, one.id"
        if "version" in _names(model)
        else f"copy.n, one.{meta.pk.column}"
    )
    return Table(
        name=meta.db_table,
        columns=tuple(field.column for field in fields),
        select=made,
        source=f"seed.{meta.db_table} one ON {run} = copy.run_id ORDER BY {order}",
        counted=meta.pk.column if _is_counted(meta.pk) else None,
    )


def _names(model: type[Model]) -> set[str]:
    return {field.name for field in model._meta.concrete_fields}


def _made(model: type[Model], field: "Field[Any, Any]", apart: dict[str, int]) -> str:
    """The expression for a column of the copy `copy.n`, which is `copy.later` than its story."""
    column = f"one.{field.column}"
    plain = _PLAIN.get(model, {}).get(field.attname)
    target = model if field.primary_key and not field.remote_field else _target(field) or plain
    if target is not None:
        return _renamed(target, column, apart)
    if field.name in _NAMES.get(model, ()):
        # The number in front of what is as long as the column allows would not fit.
        return f"CASE WHEN {column} IS NOT NULL THEN left(copy.n || '.' || {column}, 64) END"
    if isinstance(field, DateTimeField):
        return f"{column} + copy.later"
    return column


def _renamed(target: type[Model], column: str, apart: dict[str, int]) -> str:
    """The name that a row of `target` has in the copy."""
    key = target._meta.pk
    while key.remote_field:
        target = key.remote_field.model
        key = target._meta.pk
    table = target._meta.db_table
    if target is AgentRun:
        return f"seed_run(copy.n, {column}, copy.at)"
    if target is ToolOperation:
        made = f"encode(sha256((copy.n || {column})::bytea), 'hex')"
        return f"CASE WHEN {column} <> '' THEN {made} ELSE {column} END"
    if _is_counted(key) and table in apart:
        return f"copy.n * {apart[table]}::bigint + {column}"
    if key.get_internal_type() == "UUIDField":
        return f"md5(copy.n || {column}::text)::uuid"
    # Users, releases and their like are not copied.
    return column


def _target(field: "Field[Any, Any] | None") -> type[Model] | None:
    remote = field.remote_field if field is not None else None
    return remote.model if remote is not None else None


def _is_counted(key: "Field[Any, Any]") -> bool:
    return key.get_internal_type() == "BigAutoField"


# A copy's run: the milliseconds of its start, then a digest of which copy of which run it is.
SEED_RUN: Final = """
    CREATE OR REPLACE FUNCTION seed_run(n bigint, run uuid, at timestamptz) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7'
                || substr(digest, 1, 3) || '8' || substr(digest, 4, 15))::uuid
        FROM md5(n || run::text) AS digest
    $$
"""

"""What the models share: sizes, choices from the pure table, and CHECKs by function."""

from django.db import models

from runs.state import OperationStatus, RunState

NAME = 100
TEXT_LIMIT = 2_000


def choices(values: type[RunState | OperationStatus]) -> list[tuple[str, str]]:
    return [(str(value), value.replace("_", " ").capitalize()) for value in values]


def sql_check(function: str, *columns: str) -> models.Func:
    """A CHECK by one of the functions of the first migration.

    Not spelled out in the constraint, because the server parses a constraint's text anew
    for every statement: the list of legal edges alone cost 0.2 ms that way.
    """
    return models.Func(*columns, function=function, output_field=models.BooleanField())

"""Stored arguments whose tool takes others by now: what may be read of them, and as what.

Guarantees: arguments that were stored under one schema are never read under another. Whoever
wants them gets what the tool's own `migrate_arguments` makes of them, checked against today's
schema, or an error; handlers get a mapping that raises it at the first look, so that one which
goes by the operation's id alone still answers. An operation that recorded no version is read as
it stands.

Does not see a changed meaning behind an unchanged schema, and does not move anything:
`renewal.py` does.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from runs.models import ToolOperation
from runs.sensitive import names_of_operation, without_secrets
from runs.state import SETTLED_STATUSES, OperationStatus
from tools.canonical import canonical_copy, canonical_json
from tools.describing import describe_call
from tools.errors import InvalidArguments, OutdatedArguments, UnknownTool
from tools.outcome import describe
from tools.registry import get_tool
from tools.spec import ToolSpec

UNDECLARED: Final = "it declares no migrate_arguments"


class Outlook(StrEnum):
    """What becomes of an open operation under the tools of this process."""

    UNCHANGED = "unchanged"  # its arguments are read as they were stored
    MIGRATED = "migrated"  # not sent: a new revision with migrated arguments takes its place
    PERSON = "person"  # not sent: held until a person says what is to be sent
    LOOKED_UP = "looked_up"  # may have been sent: never again as it is, but asked about


@dataclass(frozen=True)
class Judged:
    """The outlook of one operation; `why` it is a person's, empty otherwise."""

    outlook: Outlook
    why: str = ""


def is_outdated(operation: ToolOperation, spec: ToolSpec) -> bool:
    """Whether the arguments were stored under another schema than the tool has today."""
    stored = operation.arguments_version
    return stored not in ("", spec.arguments_version)


def migrate(operation: ToolOperation, spec: ToolSpec) -> dict[str, Any]:
    """Outdated arguments in today's form, validated. Raises OutdatedArguments."""
    if spec.migrate_arguments is None:
        raise _outdated(operation, spec, UNDECLARED)
    try:
        return spec.validate(
            spec.migrate_arguments(canonical_copy(operation.arguments), operation.arguments_version)
        )
    except Exception as error:  # noqa: BLE001  it is the tool author's code
        why = f"its migrate_arguments failed: {without_secrets(describe(error), operation)}"
        # The cause would show the values that are hidden.
        is_secret = bool(names_of_operation(operation))
        raise _outdated(operation, spec, why) from (None if is_secret else error)


def find_misfit(operation: ToolOperation, spec: ToolSpec) -> str:
    """Why the arguments, as they stand, are not exactly what the tool would store today; empty
    if they are."""
    try:
        today = spec.validate(operation.arguments)
    except InvalidArguments as error:
        return without_secrets(str(error), operation)
    if canonical_json(today) == canonical_json(operation.arguments):
        return ""
    return f"arguments of {spec.name}: today's form of them is another one"


def read_arguments(operation: ToolOperation) -> Mapping[str, Any]:
    """The arguments as a handler of today's tool may read them; reading those that nobody can
    migrate raises OutdatedArguments."""
    arguments = operation.arguments
    try:
        spec = get_tool(operation.tool)
        if is_outdated(operation, spec):
            arguments = migrate(operation, spec)
    except UnknownTool:
        pass  # nobody here reads them
    except OutdatedArguments as error:
        return _Unreadable(error)
    copied: dict[str, Any] = canonical_copy(arguments)
    return copied


def describe_stored(operation: ToolOperation) -> str:
    """The action in the words of its tool; empty where the tool has none, is not known here, or
    takes other arguments by now."""
    try:
        spec = get_tool(operation.tool)
    except UnknownTool:
        return ""
    return "" if is_outdated(operation, spec) else describe_call(spec, operation.arguments)


def judge_stored(operations: Iterable[ToolOperation]) -> dict[str, Judged]:
    """By id: what becomes of open operations under the tools of this process.

    Settled ones, and those whose tool is not known here, are left out. Asks no row, and calls
    the tools' `migrate_arguments`.
    """
    judged = {}
    for operation in operations:
        try:
            spec = get_tool(operation.tool)
        except UnknownTool:
            continue
        if operation.status not in SETTLED_STATUSES:
            judged[operation.id] = _judge(operation, spec)
    return judged


def _judge(operation: ToolOperation, spec: ToolSpec) -> Judged:
    if not is_outdated(operation, spec):
        return Judged(Outlook.UNCHANGED)
    if operation.status in (OperationStatus.RUNNING, OperationStatus.UNKNOWN):
        return Judged(Outlook.LOOKED_UP)
    try:
        migrate(operation, spec)
    except OutdatedArguments as error:
        return Judged(Outlook.PERSON, str(error))
    return Judged(Outlook.MIGRATED)


def _outdated(operation: ToolOperation, spec: ToolSpec, why: str) -> OutdatedArguments:
    return OutdatedArguments(
        spec.name,
        stored=operation.arguments_version,
        today=spec.arguments_version,
        why=why,
    )


class _Unreadable(Mapping[str, Any]):
    """Arguments that say why they cannot be read to whoever tries."""

    def __init__(self, error: OutdatedArguments) -> None:
        self._error = error

    def __getitem__(self, name: str) -> Any:
        raise self._error

    def __iter__(self) -> Iterator[str]:
        raise self._error

    def __len__(self) -> int:
        raise self._error

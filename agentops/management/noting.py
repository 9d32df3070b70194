"""A command with its entry in the audit.

Guarantees: a command that changes something has its entry before it begins, with who is logged
in on the server, what it is asked of and how it ended; options, which may hold anything, are not
kept. A database that cannot take the entry cannot take the write either; the command says so.

Does not know who sits at the keyboard, and sees no command that a program calls directly.
"""

import getpass
from collections.abc import Sequence
from typing import Final

from django.core.management.base import BaseCommand
from django.db import DatabaseError

from agentops import audit
from runs.access import operator
from runs.management.base import KernelCommand

# Commands of the kernel that change nothing; and one whose every call is a row with its entry.
UNNOTED: Final = frozenset(
    {
        *("list_agents", "list_approvals", "list_incidents", "list_operations", "list_policies"),
        *("list_questions", "list_runs", "list_schedules", "list_tokens", "list_tools"),
        *("list_workers", "inspect_run", "export_case", "replay_case"),
        "call_operation",
    }
)
HELP: Final = frozenset({"-h", "--help"})


def noted(name: str, command: BaseCommand, arguments: Sequence[str]) -> BaseCommand:
    """The command itself, or one that notes it where it changes something."""
    if not is_noted(name, command) or HELP & set(arguments):
        return command
    return _Noted(name, command)


def is_noted(name: str, command: BaseCommand) -> bool:
    """Whether the command changes something of the kernel's."""
    return isinstance(command, KernelCommand) and name not in UNNOTED


class _Noted(BaseCommand):
    """A command with its entry around it."""

    def __init__(self, name: str, command: BaseCommand) -> None:
        super().__init__()
        self._name, self._command = name, command

    def run_from_argv(self, argv: list[str]) -> None:
        entry = _begin(self._name, argv[2:])
        status = 1
        try:
            self._command.run_from_argv(argv)
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            raise
        finally:
            if entry is not None:
                audit.answer(entry, status=status)


def _begin(name: str, arguments: Sequence[str]) -> int | None:
    about = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    try:
        return audit.note(operator(_who()), action=name, about=about)
    except DatabaseError:
        return None


def _who() -> str:
    try:
        return f"command line ({getpass.getuser()})"
    except (KeyError, OSError):
        # A container's user need not have a name.
        return "command line"

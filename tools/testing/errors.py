"""What keeps the kit from checking a tool, one class per condition.

KitError
├── UnknownFault      no fault has this name
├── CannotFork        this system cannot copy a process
├── OpenTransaction   rows written here would be seen by no worker
└── EffectsBefore     effects were counted before the tool had been called

Unsound               a report that does not hold, as `assert_sound` raises it
"""

import difflib
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.testing.report import Report


class KitError(Exception):
    """Base of what makes a check impossible; a tool that fails its check is no such thing."""


class UnknownFault(KitError):
    """A fault was asked for that the kit does not have."""

    def __init__(self, name: str, *, known: Collection[str]) -> None:
        self.name = name
        near = difflib.get_close_matches(name, known, n=3) or sorted(known)
        super().__init__(f"no fault is named {name[:80]!r}; there are: {', '.join(near)}")


class CannotFork(KitError):
    """Workers are copies of this process, so that a tool may be a closure of a test."""

    def __init__(self) -> None:
        super().__init__("this system has no os.fork; run the kit on Linux or macOS")


class OpenTransaction(KitError):
    """The caller's connection is inside a transaction."""

    def __init__(self) -> None:
        super().__init__(
            "the workers would not see what is written inside this transaction; "
            "mark the test with @pytest.mark.django_db(transaction=True)"
        )


class EffectsBefore(KitError):
    """The counter cannot tell one operation's effects from another's."""

    def __init__(self, *, operation_id: str, counted: int) -> None:
        self.operation_id, self.counted = operation_id, counted
        super().__init__(
            f"count_effects says {counted} for operation {operation_id}, which was not called yet; "
            "count by its operation id or key, or give every call its own business object: "
            "arguments=lambda n: {...}"
        )


class Unsound(AssertionError):
    """The report of a tool that does not keep its promise, or declares what is not so."""

    def __init__(self, report: "Report") -> None:
        self.report = report
        super().__init__(f"the check of {report.tool} does not hold\n\n{report}")

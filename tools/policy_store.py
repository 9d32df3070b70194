"""The policies that this process knows: one small set, loaded whole.

Guarantees: nothing is queried but by the first use and by `refresh`, which loads anew only
where somebody saw another generation; a set is a value, and a reader has the old or the new
one, never half of each. The generation is the largest id of the table, and writers take
turns (see the triggers of `ToolPolicy`), so a smaller id never appears after a larger one.

Does not notice a new policy by itself: the caller tells it the generation.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from tools.declarations import Approve
from tools.policy_rules import Judge, PolicyOutcome, PolicyRule, Stop

if TYPE_CHECKING:
    # Tools are declared, and their rules judged, before Django is ready.
    from tools.models import ToolPolicy

NOT_LOADED: Final = -1
STOP: Final = "stop"


@dataclass(frozen=True)
class PolicySet:
    """The active policies of one generation."""

    generation: int
    rules: tuple[PolicyRule, ...] = ()
    stops: tuple[Stop, ...] = ()


_current: PolicySet | None = None
_loading = threading.Lock()


def current() -> PolicySet:
    """What this process knows; loaded by one query where nothing was."""
    known = _current
    if known is not None:
        return known
    refresh(None)
    return current()


def known_generation() -> int:
    """The generation that was loaded; -1 where none was. No query."""
    known = _current
    return NOT_LOADED if known is None else known.generation


def refresh(generation: int | None) -> bool:
    """Load anew unless `generation` is the one that is known; whether it did. One query.

    A smaller one counts too: it is seen after a database was restored.
    """
    global _current
    if _current is not None and _current.generation == generation:
        return False
    with _loading:
        # Whoever waited here may find that the thread before it did the work.
        if _current is not None and _current.generation == generation:
            return True
        _current = _load()
    return True


def forget() -> None:
    """Know nothing, as at the start of the process; for tests."""
    global _current
    _current = None


@contextmanager
def only(*rules: PolicyRule, stops: Sequence[Stop] = ()) -> Iterator[None]:
    """Exactly these policies for the time of a `with` block; for tests, not for threads."""
    global _current
    outside, _current = _current, PolicySet(0, rules, tuple(stops))
    try:
        yield
    finally:
        _current = outside


def newest_rows() -> "list[ToolPolicy]":
    """The newest version of every policy and stop, retired ones included, by name."""
    from tools.models import ToolPolicy

    newest = ToolPolicy.objects.order_by("-name", "-version").distinct("name")
    return sorted(newest, key=lambda row: row.name)


def _load() -> PolicySet:
    # The row with the largest id is the newest of its name, so one query gives both.
    rows = newest_rows()
    active = [row for row in rows if row.active]
    return PolicySet(
        generation=max((row.pk for row in rows), default=0),
        rules=tuple(rule_of(row) for row in active if row.outcome != STOP),
        stops=tuple(_stop_of(row) for row in active if row.outcome == STOP),
    )


def rule_of(row: "ToolPolicy") -> PolicyRule:
    """What a row that is no stop says."""
    return PolicyRule(
        name=row.name,
        version=row.version,
        tool=row.tool,
        provider=row.provider,
        agent=row.agent,
        when=row.when,
        outcome=cast(PolicyOutcome, row.outcome),
        approve=Approve(
            groups=tuple(row.groups),
            quorum=row.quorum,
            approve_by=row.approve_by,
            execute_by=row.execute_by,
            escalate_to=tuple(row.escalate_to),
            escalate_after=row.escalate_after,
            remind_after=row.remind_after,
        ),
        window_seconds=row.window_seconds,
        window_by=cast(Judge, row.window_by),
        window_money=row.window_money,
    )


def _stop_of(row: "ToolPolicy") -> Stop:
    return Stop(
        tool=row.tool,
        provider=row.provider,
        author=row.author,
        reason=row.reason,
        since=row.created_at,
    )


def _after_fork() -> None:
    # Another thread of the parent may have held it.
    global _loading
    _loading = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)

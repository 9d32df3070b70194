"""What a look-up at the provider found out about one operation.

Guarantees: three verdicts and no fourth; `failed` marks a look-up that did not happen,
which is no evidence of anything.
Does not turn "not found" into "not executed": that takes time and repetition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from tools.errors import readable

T = TypeVar("T")
Verdict = Literal["committed", "not_found", "indeterminate"]


@dataclass(frozen=True)
class Reconciled(Generic[T]):
    """Answer of a `reconcile_handler`; build it with one of the three class methods."""

    verdict: Verdict
    result: T | None = None
    external_ref: str | None = None
    why: str = ""
    failed: bool = False
    also: tuple[str, ...] = ()

    @classmethod
    def committed(
        cls, result: T, external_ref: str | None = None, *, also: Sequence[str] = ()
    ) -> "Reconciled[T]":
        """The provider has the effect; `result` as the tool itself would have returned it.

        `also` are the references of further effects of the same operation: each is a
        duplicate, and is counted.
        """
        return cls(verdict="committed", result=result, external_ref=external_ref, also=tuple(also))

    @classmethod
    def not_found(cls) -> "Reconciled[Any]":
        """The provider answered, completely, and does not know the operation (yet)."""
        return Reconciled(verdict="not_found")

    @classmethod
    def indeterminate(cls, why: str, *, failed: bool = False) -> "Reconciled[Any]":
        """The provider cannot say; `failed` if it was not even reached."""
        return Reconciled(verdict="indeterminate", why=readable(why), failed=failed)

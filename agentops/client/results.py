"""What became of a call, as far as the gateway knows.

Guarantees: every operation is exactly one of `Committed`, `Pending`, `Uncertain` and `Denied`;
only a committed one has a result.

Does not hold what a tool declared sensitive: the gateway hides it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from agentops.client.errors import CallDenied, NotAGateway, OutcomeUncertain, StillPending


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One intended effect. `status` is the gateway's own word for where it stands.

    `replayed` says that the call had been made before, under the same key. `everything` is the
    gateway's whole answer.
    """

    operation_id: str
    run: str
    tool: str
    status: str
    arguments: Mapping[str, Any]
    replayed: bool
    everything: Mapping[str, Any]

    is_settled: ClassVar[bool] = True

    @property
    def explanation(self) -> str:
        """In a sentence, what the status means for whoever called."""
        raise NotImplementedError

    def value(self) -> Any:
        """The result. Raises StillPending, OutcomeUncertain or CallDenied where there is none."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Committed(Operation):
    """It was done. `external_ref` is the provider's own name for it."""

    result: Any
    external_ref: str | None

    @property
    def explanation(self) -> str:
        return "It was done."

    def value(self) -> Any:
        return self.result


@dataclass(frozen=True, kw_only=True)
class Pending(Operation):
    """It is under way, or waits for a person's signature (`approval` is then the request)."""

    approval: str | None

    is_settled: ClassVar[bool] = False

    @property
    def explanation(self) -> str:
        if self.status == "AWAITING_APPROVAL":
            return "It was accepted and waits for a person's signature; nothing was done yet."
        return "It was accepted and is not finished yet."

    def value(self) -> Any:
        raise StillPending(self)


@dataclass(frozen=True, kw_only=True)
class Uncertain(Operation):
    """It was sent, and whether it happened is being found out."""

    is_settled: ClassVar[bool] = False

    @property
    def explanation(self) -> str:
        return (
            "It may or may not have happened; the gateway, or a person, is finding out. "
            "Doing it by another way may do it twice."
        )

    def value(self) -> Any:
        raise OutcomeUncertain(self)


@dataclass(frozen=True, kw_only=True)
class Denied(Operation):
    """It was not done, and will not be: the provider, a policy or a person said no, or it was
    called off. `reason` says which."""

    reason: str

    @property
    def explanation(self) -> str:
        return f"It was not done: {self.reason or self.status}."

    def value(self) -> Any:
        raise CallDenied(self)


_PENDING: Final = frozenset({"PREPARED", "RUNNING", "AWAITING_APPROVAL"})
_DENIED: Final = frozenset({"REJECTED", "CANCELLED"})


def read_operation(said: Any, *, status: int, replayed: bool = False) -> Operation:
    """The operation that an answer with this HTTP status describes. Raises NotAGateway."""
    try:
        shared: dict[str, Any] = {
            "operation_id": str(said["operation_id"]),
            "run": str(said["run"]),
            "tool": str(said["tool"]),
            "status": str(said["status"]),
            "arguments": dict(said["arguments"]),
            "replayed": replayed,
            "everything": said,
        }
        if shared["status"] == "COMMITTED":
            return Committed(result=said["result"], external_ref=said["external_ref"], **shared)
        if shared["status"] in _PENDING:
            return Pending(approval=said["approval"], **shared)
        if shared["status"] in _DENIED:
            reason = said["error"] or said["never_sent"] or ""
            return Denied(reason=str(reason).rstrip("."), **shared)
    except (KeyError, TypeError, ValueError) as error:
        raise NotAGateway(status=status, why=f"no operation in it ({error!r:.80})") from error
    if shared["status"] != "UNKNOWN":
        # A gateway that is newer than this client: what it means is not known here.
        raise NotAGateway(status=status, why=f"a status {shared['status']!r:.40}")
    return Uncertain(**shared)

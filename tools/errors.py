"""What can go wrong with a tool, one class per condition.

    ToolError
    ├── Rejected            raised by a tool: the provider refused, for good
    │   └── RejectedBefore  an earlier call under the same key was refused
    ├── NotSent             raised by a tool: nothing left, try again
    │   └── DeadlinePassed  raised by `Call.remaining`: too late to send
    ├── UnknownTool         no tool has this name
    ├── DuplicateTool       two tools claim one name
    ├── InvalidTool         a function that cannot be a tool
    ├── InvalidArguments    arguments that do not fit the tool's annotations
    ├── OutdatedArguments   arguments that were stored for another schema of the tool's
    ├── InvalidPayload      a value that PostgreSQL or canonical JSON cannot hold
    ├── UnreadableResult    a tool returned what cannot be stored
    ├── NoAnswer            a function gave none in its time, or ended its thread
    ├── NotListed           the effects that a provider has could not be listed
    │   └── TooManyEffects  they are more than one audit compares
    ├── RuleFailed          a policy's rule could not be evaluated
    ├── ResourceUnreadable  the version of what a call acts on could not be read
    ├── NoThread            this process has no thread left for a call
    ├── KeyRefused          a call under an idempotency key was not carried out
    │   ├── KeyInFlight     an earlier call under it is being carried out
    │   ├── KeyMismatch     it was used with other arguments
    │   ├── KeyExpired      it is too old for its result to be known
    │   └── OutcomeUnknown  nobody knows what became of an earlier call under it
    ├── StaleToken          a larger fencing token has been seen
    ├── TransactionNeeded   a function was called outside of a transaction
    └── TransactionOpen     a function was called inside of one

Guarantees: every sentence names the field, the value (bounded) and the fix.
Does not decide what a condition means for an operation: see `outcome.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from tools.redaction import RAW_TEXT, bound_text


def readable(words: object) -> str:
    """Text of whatever a tool gives as a reason: a provider's null or object is one too."""
    try:
        return bound_text(str(words), RAW_TEXT)
    except BaseException:  # noqa: BLE001  somebody else's __str__
        return "(its message could not be read)"


class ToolError(Exception):
    """Base of every error that this app raises."""


class Rejected(ToolError):
    """The provider refused the action and will not carry it out: final."""

    def __init__(self, reason: object) -> None:
        self.reason = readable(reason)
        super().__init__(self.reason)


class NotSent(ToolError):
    """Nothing left this machine, so the action may be tried again as if for the first time."""

    def __init__(self, reason: object) -> None:
        self.reason = readable(reason)
        super().__init__(self.reason)


class DeadlinePassed(NotSent):
    """A time-out was asked for after the call's deadline."""

    def __init__(self, *, operation_id: str, deadline: datetime) -> None:
        self.operation_id = operation_id
        self.deadline = deadline
        super().__init__(
            f"the deadline {deadline.isoformat()} of operation {operation_id} has passed"
        )


class UnknownTool(ToolError):
    """No tool of this name is registered."""

    def __init__(self, name: str, *, near: Sequence[str]) -> None:
        self.name = name
        self.near = tuple(near)
        hint = f"did you mean {' or '.join(self.near)}?" if near else "list_tools shows them all"
        super().__init__(f"no tool is named {_shown(name)}; {hint}")


class DuplicateTool(ToolError):
    """A second function was registered under a taken name."""

    def __init__(self, name: str, *, first: str, second: str) -> None:
        self.name = name
        super().__init__(
            f"{second} and {first} are both a tool named {name!r}; give one of them another `name`"
        )


class InvalidTool(ToolError):
    """A function whose signature cannot be turned into a tool."""

    def __init__(self, function: str, *, problem: str, fix: str) -> None:
        self.function = function
        super().__init__(f"{function} cannot be a tool: {problem}; {fix}")


@dataclass(frozen=True)
class Problem:
    """One argument that does not fit: where, what was given (bounded), how to mend it."""

    field: str
    value: str
    fix: str

    def __str__(self) -> str:
        given = f" (given: {self.value})" if self.value else ""
        return f"{self.field}{given}: {self.fix}"


class InvalidArguments(ToolError):
    """Arguments that the tool's annotations refuse."""

    def __init__(self, tool: str, problems: Sequence[Problem]) -> None:
        self.tool = tool
        self.problems = tuple(problems)
        told = "; ".join(str(problem) for problem in self.problems)
        super().__init__(f"arguments of {tool}: {told}")


class OutdatedArguments(ToolError):
    """Arguments were stored for another schema than the tool has today: nobody reads them."""

    def __init__(self, tool: str, *, stored: str, today: str, why: str) -> None:
        self.tool, self.stored, self.today = tool, stored, today
        super().__init__(
            f"the arguments of {tool} were stored for version {stored} of them, and it takes "
            f"version {today}: {why}"
        )


class InvalidPayload(ToolError):
    """A value that cannot be stored or put into canonical form."""

    def __init__(self, *, field: str, value: object, fix: str) -> None:
        self.field = bound_text(field, limit=200)
        self.value = _shown(value)
        self.fix = fix
        super().__init__(f"{self.field} (given: {self.value}): {fix}")


class UnreadableResult(ToolError):
    """A tool answered with something that is no storable JSON."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the result cannot be stored: {problem}")


class NotListed(ToolError):
    """A tool's `audit_handler` did not list the effects, so nothing is known of them."""

    def __init__(self, *, tool: str, why: str) -> None:
        self.tool = tool
        super().__init__(f"the effects of {tool} could not be listed: {readable(why)}")


class TooManyEffects(NotListed):
    """The span holds more effects than are compared at once."""

    def __init__(self, *, tool: str, most: int) -> None:
        super().__init__(tool=tool, why=f"there are more than {most}; ask for a shorter span")


class RuleFailed(ToolError):
    """A policy's rule gave no answer for these arguments."""

    def __init__(self, rule: str, *, problem: str) -> None:
        self.rule = rule
        self.problem = problem
        super().__init__(bound_text(f"{rule} (could not be evaluated: {problem})"))


class ResourceUnreadable(ToolError):
    """`resource_version` gave no version."""

    def __init__(self, *, tool: str, why: str) -> None:
        self.tool, self.why = tool, why
        super().__init__(f"the resource_version of {tool} could not be read: {why}")


class NoThread(ToolError):
    """The call was not started: the system gives this process no further thread."""

    def __init__(self) -> None:
        super().__init__("no thread could be started for the call")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (somebody else's __repr__)
        text = f"<{type(value).__qualname__}>"
    return bound_text(text, limit=80)


class NoAnswer(ToolError):
    """A function of somebody else's neither returned nor raised an ordinary exception."""


class RejectedBefore(Rejected):
    """An earlier call under the same idempotency key was refused, with this reason."""


class KeyRefused(ToolError):
    """A call under an idempotency key was not carried out. `status` is the HTTP status for it.

    The key itself is in no sentence: it may be a secret of its caller.
    """

    status: ClassVar[int] = 409

    def __init__(self, sentence: str, *, scope: str) -> None:
        self.scope = scope
        super().__init__(sentence)


class KeyInFlight(KeyRefused):
    """An earlier call under the key is being carried out at this moment."""

    def __init__(self, *, scope: str) -> None:
        super().__init__(
            "idempotency key: an earlier call under it is still being carried out; "
            "send the same call again in a moment",
            scope=scope,
        )


class KeyMismatch(KeyRefused):
    """The key was used before, with other arguments."""

    status = 422

    def __init__(self, *, scope: str) -> None:
        super().__init__(
            "idempotency key: it was used before, with other arguments; "
            "use a new key for a new call",
            scope=scope,
        )


class KeyExpired(KeyRefused):
    """The key was used before, and its result is no longer kept."""

    status = 410

    def __init__(self, *, scope: str) -> None:
        super().__init__(
            "idempotency key: a call under it was settled too long ago for its result to be kept; "
            "look at what it did before using a new key",
            scope=scope,
        )


class OutcomeUnknown(KeyRefused):
    """An earlier call under the key may or may not have taken effect; this one was not executed.

    `key_id` is the number of its row, for `tools.idempotency.settle_unknown`.
    """

    def __init__(self, *, scope: str, key_id: int, why: str) -> None:
        self.key_id = key_id
        self.why = bound_text(why)
        super().__init__(
            "idempotency key: whether an earlier call under it took effect is unknown "
            f"({self.why}); do not repeat it under another key; its number is {key_id}",
            scope=scope,
        )


class StaleToken(ToolError):
    """A larger fencing token has been seen for the resource: another worker has taken over."""

    def __init__(self, *, resource: str, token: int, newest: int) -> None:
        self.resource, self.token, self.newest = resource, token, newest
        super().__init__(
            f"fencing token {token} of {_shown(resource)} is stale: {newest} has been seen; stop"
        )


class TransactionNeeded(ToolError):
    """The function's promise holds only together with the caller's writes."""

    def __init__(self, function: str) -> None:
        super().__init__(f"{function} was called outside of transaction.atomic(); put it inside")


class TransactionOpen(ToolError):
    """The function must not be called while a transaction is open."""

    def __init__(self, function: str) -> None:
        super().__init__(
            f"{function} was called inside a transaction, which would be open across a call to "
            "the outside and could undo what is recorded of it; call it outside of atomic()"
        )

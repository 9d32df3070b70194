"""What can go wrong with a tool, one class per condition.

    ToolError
    ├── Rejected            raised by a tool: the provider refused, for good
    ├── NotSent             raised by a tool: nothing left, try again
    │   └── DeadlinePassed  raised by `Call.remaining`: too late to send
    ├── UnknownTool         no tool has this name
    ├── DuplicateTool       two tools claim one name
    ├── InvalidTool         a function that cannot be a tool
    ├── InvalidArguments    arguments that do not fit the tool's annotations
    ├── InvalidPayload      a value that PostgreSQL or canonical JSON cannot hold
    ├── UnreadableResult    a tool returned what cannot be stored
    ├── NoAnswer            a function gave none in its time, or ended its thread
    ├── RuleFailed          a policy's rule could not be evaluated
    └── NoThread            this process has no thread left for a call

Guarantees: every sentence names the field, the value (bounded) and the fix.
Does not decide what a condition means for an operation: see `outcome.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

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


class RuleFailed(ToolError):
    """A policy's rule gave no answer for these arguments."""

    def __init__(self, rule: str, *, problem: str) -> None:
        self.rule = rule
        super().__init__(bound_text(f"{rule} (could not be evaluated: {problem})"))


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

"""What became of one call: four outcomes, and how an exception is read as one of them.

    Committed   the tool returned a value
    Refused     the tool said that the provider refuses, for good
    Unsent      no request left this machine: it may be tried again
    Unknown     anything else: the effect may or may not exist

Guarantees: `Unsent` is only ever claimed for an error that cannot occur after a request
left (no connection, no TLS, no free slot in the pool), or on the tool's own word; every
other error, also every HTTP status error, is `Unknown`.
Does not see requests that a tool made earlier in the same call, in a loop of its own or
to another host: such a tool takes each time-out from `call.remaining` (see `execution`)
or says what happened itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tools.canonical import JsonValue
from tools.errors import DeadlinePassed, NotSent, Rejected, readable
from tools.http_errors import Sent, read_error
from tools.results import encode_result, external_ref

__all__ = [
    "Committed",
    "Outcome",
    "Refused",
    "Stage",
    "Unknown",
    "Unsent",
    "classify",
    "encode_result",
    "external_ref",
    "name_of",
]

Stage = Literal["connect", "write", "read", "body", "deadline", "status", "crash", ""]

# Longer chains than this are loops or noise; the cause of a network error is near the top.
DEEPEST_CAUSE = 8


@dataclass(frozen=True)
class Committed:
    """The effect exists; `result` is storable JSON."""

    result: JsonValue
    external_ref: str | None = None


@dataclass(frozen=True)
class Refused:
    """The provider refused and there is no effect: final."""

    reason: str


@dataclass(frozen=True)
class Unsent:
    """No request left this machine."""

    reason: str


@dataclass(frozen=True)
class Unknown:
    """There may be an effect; `stage` says how far the request is known to have come."""

    reason: str
    stage: Stage = ""


Outcome: TypeAlias = Committed | Refused | Unsent | Unknown


def name_of(outcome: Outcome) -> str:
    """Its word in the journal: committed, rejected, not_sent or unknown."""
    return _NAMES[type(outcome)]


def classify(error: BaseException) -> Refused | Unsent | Unknown:
    """Read what a tool raised. An error wrapped with `raise … from` counts as its cause."""
    reason = describe(error)
    match error:
        case DeadlinePassed():
            # The refusal itself sent nothing, but what used up the time may have been a request.
            return Unknown(reason, "deadline")
        case Rejected():
            return Refused(error.reason)
        case NotSent():
            return Unsent(error.reason)
    for cause, wrapped_on_purpose in _causes(error):
        match read_error(cause):
            case None:
                continue
            case Sent.NOTHING if wrapped_on_purpose:
                return Unsent(reason)
            case Sent.NOTHING:
                # Raised while another error was being handled, perhaps by a second request.
                return Unknown(reason, "connect")
            case Sent() as sent:
                return Unknown(reason, _STAGE[sent])
    return Unknown(reason, "" if isinstance(error, Exception) else "crash")


def describe(error: BaseException) -> str:
    """The error's class and its own words. Scrub before it is stored, then bound it."""
    words = readable(error)
    name = type(error).__qualname__
    return f"{name}: {words}" if words else name


_NAMES: dict[type[Outcome], str] = {
    Committed: "committed",
    Refused: "rejected",
    Unsent: "not_sent",
    Unknown: "unknown",
}
_STAGE: dict[Sent, Stage] = {
    Sent.NOTHING: "connect",
    Sent.EARLIER: "connect",
    Sent.WRITING: "write",
    Sent.AWAITING: "read",
    Sent.ANSWERED: "status",
    Sent.ANSWERED_UNREADABLY: "body",
    Sent.PERHAPS: "",
}


def _causes(error: BaseException) -> Iterator[tuple[BaseException, bool]]:
    """The error and what it was raised from; False once a link was only implied."""
    link: BaseException | None = error
    explicit = True
    for _ in range(DEEPEST_CAUSE):
        if link is None:
            return
        yield link, explicit
        if link.__cause__ is None and not link.__suppress_context__:
            explicit = False
            link = link.__context__
        else:
            link = link.__cause__

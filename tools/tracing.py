"""The W3C trace context: what says of which trace a request is a part.

Guarantees: what is passed on is a well-formed `traceparent` of the first version, 55 characters, or
nothing: of a later version what the first one knows of it, and of the flags only whether the trace
is sampled. Each thread, and each call that it begins, has its own.

Does not record spans: whoever does (`agentops/telemetry`) says here which one is open.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

# Of the first version, or of a later one that begins like it.
_TRACEPARENT: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?P<ids>(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)
_SAMPLED: Final = 1
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_open: Final[ContextVar[str]] = ContextVar("traceparent", default="")


def read_traceparent(given: str) -> str:
    """The header as it is passed on, "" for one that is malformed: a caller's typo starts a trace
    of its own and breaks nothing."""
    found = _TRACEPARENT.fullmatch(given.strip())
    if found is None or (found["version"] == "00" and found["more"]):
        return ""
    return f"00-{found['ids']}-{int(found['flags'], 16) & _SAMPLED:02x}"


def current_traceparent() -> str:
    """Of the span that is open here, "" where none is recorded."""
    return _open.get()


def trace_headers() -> Mapping[str, str]:
    """The headers that let whoever is asked go on with the trace; empty where none is recorded."""
    traceparent = _open.get()
    return MappingProxyType({"traceparent": traceparent}) if traceparent else _NO_HEADERS


def open_span(traceparent: str) -> None:
    """Say which span is open in this thread from now on; "" for none."""
    _open.set(traceparent)


@contextmanager
def within_span(traceparent: str) -> Iterator[None]:
    """The same for the block."""
    token = _open.set(traceparent)
    try:
        yield
    finally:
        _open.reset(token)

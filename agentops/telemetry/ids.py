"""How spans are named, so that everybody who knows the rows knows the ids.

A span's id is made of what the journal calls the same thing: the send of an operation by its
number, a worker's time with a run by its fencing token. So a link leads to a span without anybody
having stored its id, and what happened once has one id, whoever speaks of it.

Guarantees: a run without a trace context of its caller has its own id as the trace's, so whoever
knows the run finds the trace.
"""

from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    set_span_in_context,
)


def of_slice(run_id: UUID, fence_token: int) -> int:
    """Of one worker's time with a run, from claim to release."""
    return _name("slice", run_id, fence_token)


def of_decision(run_id: UUID, step_number: int, fence_token: int, ordinal: int) -> int:
    """Of one asking of the decider."""
    return _name("decision", run_id, step_number, fence_token, ordinal)


def of_request(run_id: UUID, fence_token: int, ordinal: int) -> int:
    """Of one request of an llm, counted within the slice."""
    return _name("request", run_id, fence_token, ordinal)


def of_send(operation_id: str, attempt: int) -> int:
    return _name("send", operation_id, attempt)


def of_look_up(operation_id: str, number: int, fence_token: int) -> int:
    """Of one look-up. Its number is the next one's too where the lease was lost meanwhile."""
    return _name("look-up", operation_id, number, fence_token)


def _name(*parts: object) -> int:
    digest = sha256("\0".join(map(str, parts)).encode()).digest()
    # Zero is no id.
    return int.from_bytes(digest[:8]) or 1


@dataclass(frozen=True)
class Trace:
    """The trace of a run: its caller's, or its own."""

    trace_id: int
    caller: SpanContext | None

    @classmethod
    def of_run(cls, run_id: UUID, traceparent: str) -> "Trace":
        if not traceparent:
            return cls(run_id.int, None)
        caller = read_context(traceparent)
        return cls(caller.trace_id, caller)

    @property
    def context(self) -> Context:
        """What the run's spans stand below: nothing else that is open in this thread."""
        return Context() if self.caller is None else below(self.caller)

    def link(self, span_id: int) -> Link:
        """To another span of the trace, recorded by whichever process."""
        flags = TraceFlags(TraceFlags.SAMPLED)
        return Link(SpanContext(self.trace_id, span_id, is_remote=True, trace_flags=flags))


def read_context(traceparent: str) -> SpanContext:
    """The span that a well-formed `traceparent` names."""
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )


def write_context(span: SpanContext) -> str:
    """The `traceparent` that names the span; "" for none."""
    if not span.is_valid:
        return ""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def below(span: SpanContext) -> Context:
    return set_span_in_context(NonRecordingSpan(span), Context())

"""What the tests of telemetry share: a recorder of this process, whose spans are kept in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from agentops.telemetry.generating import NamedIds
from agentops.telemetry.recording import Recorder
from runs import events


@dataclass
class Recorded:
    exporter: InMemorySpanExporter

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """In the order in which they began."""
        found = [span for span in self.spans if span.name == name]
        return sorted(found, key=lambda span: span.start_time or 0)

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]


@contextmanager
def recording() -> Iterator[Recorded]:
    """Record what this process does inside the block."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(id_generator=NamedIds(), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    unsubscribe = events.subscribe(Recorder(provider.get_tracer("agentops")))
    try:
        yield Recorded(exporter)
    finally:
        unsubscribe()


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def parent_of(span: ReadableSpan) -> int | None:
    return int(span.parent.span_id) if span.parent is not None else None


def links_of(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def error_of(span: ReadableSpan) -> Any:
    """Its class, None for a span without; it never has words."""
    assert span.status.description is None
    is_error = span.status.status_code is StatusCode.ERROR
    assert is_error == ("error.type" in said(span))
    return said(span).get("error.type")


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})

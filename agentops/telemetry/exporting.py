"""The process's recorder of spans: begun once per process, flushed at its end.

Guarantees: a collector that is slow, broken or gone costs spans and never a step: they wait in a
bounded queue and leave in a thread of their own, and the end of the process waits for them no
longer than a moment. The standard OTEL_… variables are the SDK's to read, and mean what they mean
everywhere.

Does not belong before a fork: a child has no threads of its parent.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.conf import settings

from runs import events

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.trace import Tracer

SERVICE: Final = "agentops"
# Less than every process's grace, whatever else it does with it.
LAST_FLUSH_SECONDS: Final = 3.0
LONGEST: Final = 200
# Comes with a library, for everybody who records anything, and repeats what others said.
TALKATIVE: Final = "mcp-python-sdk"


@dataclass(frozen=True)
class _Running:
    provider: "TracerProvider"
    tracer: "Tracer"
    unsubscribe: Callable[[], None]


_running: Final[list[_Running]] = []


def start() -> None:
    """Record spans from now on, if a collector is named; once, however often it is called."""
    if _running or not settings.OTEL_IS_ON:
        return
    # Takes a moment that only those should spend who record.
    from opentelemetry import trace

    from agentops.telemetry.recording import Recorder

    provider = _build()
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        # Whoever instruments a library of theirs finds ours, unless they brought their own.
        trace.set_tracer_provider(provider)
    tracer = provider.get_tracer(SERVICE)
    _running.append(_Running(provider, tracer, events.subscribe(Recorder(tracer))))


def get_tracer() -> "Tracer | None":
    """What records spans in this process; None where nothing does."""
    return _running[0].tracer if _running else None


def stop() -> None:
    """Send what is left. For a process that is about to end."""
    while _running:
        ending = _running.pop()
        ending.unsubscribe()
        # It may be in the middle of a question to a collector that does not answer.
        last = threading.Thread(target=ending.provider.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(LAST_FLUSH_SECONDS)


def _build() -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from agentops.telemetry.generating import EvenSampler, NamedIds

    class Processor(BatchSpanProcessor):
        def on_end(self, span: "ReadableSpan") -> None:
            super().on_end(_without_texts(span) if _is_talkative(span) else span)

    # The environment's names come over ours.
    named = Resource({SERVICE_NAME: SERVICE}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(
        resource=Resource.create(dict(named.attributes)),
        id_generator=NamedIds(),
        # `stop` does it, and waits no longer than is good.
        shutdown_on_exit=False,
    )
    provider.sampler = EvenSampler(provider.sampler)
    provider.add_span_processor(Processor(OTLPSpanExporter()))
    return provider


def _is_talkative(span: "ReadableSpan") -> bool:
    scope = span.instrumentation_scope
    return scope is not None and scope.name == TALKATIVE


def _without_texts(span: "ReadableSpan") -> "ReadableSpan":
    """The span without messages of errors, in which arguments and answers may stand."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Status

    said = span.attributes or {}
    return ReadableSpan(
        name=span.name[:LONGEST],
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes={
            name: value[:LONGEST] if isinstance(value, str) else value
            for name, value in said.items()
        },
        links=span.links,
        kind=span.kind,
        instrumentation_scope=span.instrumentation_scope,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
    )

"""Requests of the API as spans, and the trace context that they bring.

Guarantees: what a request starts goes on with the trace of whoever asked, also where this process
records nothing. A span says method, route and status: no address, no query, no body.

Written here because OpenTelemetry's own middleware for Django leaves requests under ASGI alone
without a second package, and would hand each to another thread than the one that answers.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest, HttpResponse
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from agentops.telemetry import ids
from agentops.telemetry.exporting import get_tracer
from tools.tracing import current_traceparent, read_traceparent, within_span

Answer = Callable[[HttpRequest], HttpResponse]

HEADER: Final = "HTTP_TRACEPARENT"
# Pages, probes and files are asked for all the time, and start nothing.
TRACED: Final = "/api/"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class TracingMiddleware:
    """The outermost one, where spans are recorded; elsewhere it costs nothing."""

    def __init__(self, get_response: Answer) -> None:
        if (tracer := get_tracer()) is None:
            raise MiddlewareNotUsed
        self._get_response = get_response
        self._tracer = tracer

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not request.path.startswith(TRACED):
            return self._get_response(request)
        method = request.method if request.method in METHODS else "_OTHER"
        with (
            within_trace(read_traceparent(request.META.get(HEADER, ""))),
            self._tracer.start_as_current_span(
                str(method), kind=SpanKind.SERVER, record_exception=False
            ) as span,
            within_span(ids.write_context(span.get_span_context())),
        ):
            response = self._get_response(request)
            route = request.resolver_match.route if request.resolver_match is not None else ""
            if route:
                span.update_name(f"{method} /{route}")
                span.set_attribute("http.route", f"/{route}")
            span.set_attribute("http.request.method", str(method))
            span.set_attribute("http.response.status_code", response.status_code)
            if response.status_code >= 500:
                span.set_attribute("error.type", str(response.status_code))
                span.set_status(Status(StatusCode.ERROR))
            return response


def traceparent_of(meta: Mapping[str, Any]) -> str:
    """What a request's new run is a part of: the request's own span, or what its caller sent."""
    return current_traceparent() or read_traceparent(meta.get(HEADER, ""))


@contextmanager
def within_trace(traceparent: str) -> Iterator[None]:
    """Let the span that a `traceparent` names be the current one inside the block; "" for none."""
    here = ids.below(ids.read_context(traceparent)) if traceparent else contexts.Context()
    token = contexts.attach(here)
    try:
        yield
    finally:
        contexts.detach(token)


def current_context() -> str:
    """The `traceparent` of the span that a library has made the current one; "" for none."""
    return ids.write_context(trace.get_current_span().get_span_context())

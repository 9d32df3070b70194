"""An OpenTelemetry collector and a shop for tests: real HTTP servers that remember what came.

Guarantees: what was answered is remembered. Decodes OTLP as the protocol says, with its own
library.
"""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Exported:
    """A span as it arrived; ids in hexadecimal, times in nanoseconds since 1970."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    attributes: dict[str, Any]
    links: tuple[str, ...]
    is_error: bool
    message: str
    events: tuple[str, ...]
    service: str
    scope: str


@dataclass
class Collector:
    url: str = ""
    spans: list[Exported] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)

    def of_trace(self, trace_id: str) -> list[Exported]:
        return [span for span in self.spans if span.trace_id == trace_id]

    def take(self, body: bytes) -> None:
        self.raw.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _read(resource.resource.attributes).get("service.name", "")
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        Exported(
                            name=span.name,
                            trace_id=span.trace_id.hex(),
                            span_id=span.span_id.hex(),
                            parent_id=span.parent_span_id.hex(),
                            start=span.start_time_unix_nano,
                            end=span.end_time_unix_nano,
                            attributes=_read(span.attributes),
                            links=tuple(link.span_id.hex() for link in span.links),
                            is_error=span.status.code == 2,
                            message=span.status.message,
                            events=tuple(event.name for event in span.events),
                            service=service,
                            scope=scope.scope.name,
                        )
                    )


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    traceparent: str
    body: bytes


@dataclass
class Shop:
    """Does what it is asked once per operation, and says what it did."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    done: dict[str, bytes] = field(default_factory=dict)


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    def take(handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        if handler.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        collector.take(body)
        return 200, ExportTraceServiceResponse().SerializeToString()

    with _serving(take) as collector.url:
        yield collector


@contextmanager
def shop() -> Iterator[Shop]:
    here = Shop()

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        said = handler.headers.get("traceparent", "")
        here.asked.append(Asked(handler.command, handler.path, said, body))
        if handler.command == "POST":
            here.done.setdefault(handler.path, json.dumps({"done": handler.path}).encode())
        known = here.done.get(handler.path)
        return (200, known) if known is not None else (404, b"{}")

    with _serving(answer) as here.url:
        yield here


@contextmanager
def _serving(
    answer: Callable[[BaseHTTPRequestHandler, bytes], tuple[int, bytes]],
) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            status, said = answer(self, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _read(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None

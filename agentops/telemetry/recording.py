"""From the kernel's events to spans.

    invoke_agent {agent}       one worker's time with a run, from claim to release
      decide {agent}           one asking of the decider
        chat {llm}             one request of an llm
      execute_tool {tool}      one send of an operation
      reconcile {tool}         one look-up of what became of it

Guarantees: a span lies between two events of one thread, so none is open while a run waits: its
next slice links to the one before. Nothing that was recorded is recorded again by whoever takes
the run over; a worker that dies takes its open spans with it. What is open is current in the
thread, and so in the calls that it begins.

Does not let the step that it listens to fail.
"""

import threading
from collections.abc import Sequence
from contextvars import Token
from dataclasses import dataclass, field
from typing import Final

import structlog
from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, Status, StatusCode, Tracer, set_span_in_context

from agentops.telemetry import describing, ids
from agentops.telemetry.describing import About, Attributes, Beginning, Ending
from agentops.telemetry.generating import named
from runs.events import Event, Name
from tools.tracing import open_span

log = structlog.get_logger(__name__)

DECISION: Final = "decision"
REQUEST: Final = "request"
LOOK_UP: Final = "look-up"
# What is said of a run at a moment.
_MOMENTS: Final = frozenset({Name.INCIDENT, Name.LATE_EVIDENCE, Name.LEASE_LOST, Name.REPLAYED})
# What a span is left with that nothing ended: the thread was interrupted in between.
_BROKEN_OFF: Final = Ending(error="interrupted")


@dataclass
class _Slice:
    """What one thread has open of a run that it holds."""

    trace: ids.Trace
    about: About
    common: Attributes
    span: Span
    before: Token[Context]
    open: dict[str, Span] = field(default_factory=dict)
    decisions: int = 0
    requests: int = 0

    @property
    def top(self) -> Span:
        """What the next span stands below. Calls leave side by side, so never another call."""
        return self.open.get(DECISION, self.span)


class Recorder:
    """Subscribes to events, and records spans with `tracer`."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._here = threading.local()

    def __call__(self, event: Event) -> None:
        try:
            self._hear(event.name, event.fields)
        except Exception:
            log.exception("span_not_recorded", heard=event.name.value)

    def _hear(self, name: Name, about: About) -> None:
        held: _Slice | None = getattr(self._here, "held", None)
        if name is Name.SLICE_STARTING:
            self._begin_slice(about)
        elif held is not None:
            # Else it is somebody without a lease: a watch, or a case that is replayed.
            self._go_on(held, name, about)

    def _go_on(self, held: _Slice, name: Name, about: About) -> None:
        match name:
            case Name.DECIDER_STARTING:
                self._begin_decision(held, about)
            case Name.LLM_STARTING:
                self._begin_request(held, about)
            case Name.CALL_STARTING:
                span_id = ids.of_send(about["operation_id"], about["attempt"])
                begun = describing.describe_send(about)
                self._begin(held, about["operation_id"], span_id, begun)
            case Name.LOOK_UP_STARTING:
                self._begin_look_up(held, about)
            case Name.DECIDER_DONE | Name.DECIDER_FAILED:
                self._end(held, DECISION, describing.describe_end(name, about))
            case Name.LLM_DONE:
                self._end(held, REQUEST, describing.describe_end(name, about))
            case Name.CALL_DONE:
                self._end(held, about["operation_id"], describing.describe_end(name, about))
            case Name.LOOK_UP_DONE:
                self._end(held, LOOK_UP, describing.describe_end(name, about))
            case Name.RUN_RELEASED:
                self._end_slice(held, describing.describe_end(name, about))
            case _ if name in _MOMENTS:
                held.span.add_event(f"agentops.{name}", describing.describe_moment(about))

    def _begin_slice(self, about: About) -> None:
        run_id, token = about["run_id"], about["fence_token"]
        trace = ids.Trace.of_run(run_id, about["traceparent"])
        begun = describing.describe_slice(about)
        # Not a parent that stays open meanwhile: a run may wait for weeks.
        earlier = [trace.link(ids.of_slice(run_id, token - 1))] if token > 1 else []
        common = describing.describe_run(about)
        with named(trace_id=trace.trace_id, span_id=ids.of_slice(run_id, token)):
            span = self._tracer.start_span(
                begun.name,
                context=trace.context,
                kind=begun.kind,
                attributes=common | begun.attributes,
                links=earlier,
            )
        before = contexts.attach(set_span_in_context(span, trace.context))
        self._here.held = _Slice(trace, about, common, span, before)
        open_span(ids.write_context(span.get_span_context()))

    def _end_slice(self, held: _Slice, ended: Ending) -> None:
        self._here.held = None
        for span in held.open.values():
            _close(span, _BROKEN_OFF)
        _close(held.span, ended)
        open_span("")
        contexts.detach(held.before)

    def _begin_decision(self, held: _Slice, about: About) -> None:
        held.decisions += 1
        of = about["run_id"], about["step_number"], about["fence_token"]
        span_id = ids.of_decision(*of, held.decisions)
        self._begin(held, DECISION, span_id, describing.describe_decision(about))

    def _begin_request(self, held: _Slice, about: About) -> None:
        held.requests += 1
        of = held.about["run_id"], held.about["fence_token"]
        span_id = ids.of_request(*of, held.requests)
        self._begin(held, REQUEST, span_id, describing.describe_request(about))

    def _begin_look_up(self, held: _Slice, about: About) -> None:
        span_id = ids.of_look_up(about["operation_id"], about["look_up"], held.about["fence_token"])
        sent = held.trace.link(ids.of_send(about["operation_id"], about["attempt"]))
        self._begin(held, LOOK_UP, span_id, describing.describe_look_up(about), links=[sent])

    def _begin(
        self, held: _Slice, key: str, span_id: int, begun: Beginning, links: Sequence[Link] = ()
    ) -> None:
        with named(trace_id=held.trace.trace_id, span_id=span_id):
            span = self._tracer.start_span(
                begun.name,
                context=set_span_in_context(held.top, held.trace.context),
                kind=begun.kind,
                attributes=held.common | begun.attributes,
                links=links,
            )
        held.open[key] = span
        self._make_current(held, span)

    def _end(self, held: _Slice, key: str, ended: Ending) -> None:
        span = held.open.pop(key, None)
        if span is not None:
            _close(span, ended)
        self._make_current(held, held.top)

    def _make_current(self, held: _Slice, span: Span) -> None:
        """Of the thread. What was current before is known, so no token is kept: calls that leave
        together do not come back in their order."""
        contexts.attach(set_span_in_context(span, held.trace.context))
        open_span(ids.write_context(span.get_span_context()))


def _close(span: Span, ended: Ending) -> None:
    span.set_attributes(ended.attributes)
    if ended.error:
        span.set_attribute("error.type", ended.error)
        span.set_status(Status(StatusCode.ERROR))
    span.end()

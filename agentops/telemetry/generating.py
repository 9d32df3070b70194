"""Where the SDK gets ids from, and how it chooses what is recorded.

Guarantees: a span that is begun inside `named` has the ids that were given; what others begin has
random ones. A ratio of traces is that ratio of runs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState, get_current_span
from opentelemetry.util.types import Attributes


@contextmanager
def named(*, trace_id: int, span_id: int) -> Iterator[None]:
    """Give the span that is begun inside the block these ids."""
    token = _next.set((trace_id, span_id))
    try:
        yield
    finally:
        _next.reset(token)


class NamedIds(IdGenerator):
    """The ids of `named`, and random ones for whatever else in the process begins a span."""

    def generate_span_id(self) -> int:
        ids = _next.get()
        return ids[1] if ids is not None else _random.generate_span_id()

    def generate_trace_id(self) -> int:
        ids = _next.get()
        return ids[0] if ids is not None else _random.generate_trace_id()


class EvenSampler(Sampler):
    """Another sampler, which for a new trace is shown a random id in place of the real one.

    By the SDK's own, a ratio is taken of an id's last 64 bits, of which a run's id fixes the
    first two: a tenth would be none, and nine tenths all. The same id is the same choice.
    """

    def __init__(self, chosen: Sampler) -> None:
        self._chosen = chosen

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        if not get_current_span(parent_context).get_span_context().is_valid:
            trace_id = int.from_bytes(sha256(trace_id.to_bytes(16)).digest()[:16])
        return self._chosen.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )

    def get_description(self) -> str:
        return self._chosen.get_description()


_next: Final[ContextVar[tuple[int, int] | None]] = ContextVar("span ids", default=None)
_random: Final = RandomIdGenerator()

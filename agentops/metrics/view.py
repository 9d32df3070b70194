"""The address `/metrics`.

Guarantees: where the database does not answer the scrape fails, and no old figure is shown as a
new one. Who asks for OpenMetrics gets it.
"""

from collections.abc import Callable, Iterator
from typing import Final

from django.db import Error
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client.exposition import (
    CONTENT_TYPE_PLAIN_0_0_4,
    choose_encoder,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agentops.metrics import events, operations, people, rollups, runs, upkeep

_SOURCES: Final = (
    runs.read,
    operations.read,
    people.read,
    upkeep.read,
    rollups.read,
    events.read,
)


class Figures(Collector):
    """Every figure there is, read when it is collected."""

    def collect(self) -> Iterator[Metric]:
        """Read them."""
        for read in _SOURCES:
            yield from read()


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The figures as text; 503 where the database does not answer."""
    encode, content_type = _choose_format(request)
    try:
        text = encode(Figures())
    except Error as error:
        return HttpResponse(
            f"# no answer from the database ({type(error).__name__})\n",
            status=503,
            content_type="text/plain; charset=utf-8",
        )
    return HttpResponse(text, content_type=content_type)


def _choose_format(request: HttpRequest) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(request.headers.get("Accept", ""))
    except (TypeError, ValueError):
        # The version that was asked for is no number.
        return generate_latest, CONTENT_TYPE_PLAIN_0_0_4

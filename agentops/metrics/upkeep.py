"""Gauges of what keeps the stack going: workers and sweeps."""

from collections.abc import Iterator
from datetime import timedelta
from math import inf
from typing import Final

from django.conf import settings
from django.db.models.functions import Now
from prometheus_client.metrics_core import Metric

from agentops.metrics.families import gauge, gauges
from agentops.notifications import handing_on
from agentops.sweeping import SWEEPS
from runs import desk
from runs.models import Worker
from runs.slo import rolling
from runs.versions import ALIVE_LEASES

EXPECTED: Final = (*SWEEPS, handing_on.SWEEP, rolling.SWEEP)


def read() -> Iterator[Metric]:
    """Read them."""
    yield gauge("workers_alive", "Worker processes that were seen lately.", _count_workers())
    yield gauges(
        "sweep_age_seconds",
        "How long ago a sweep ran last, in seconds; infinite if it never did.",
        label="sweep",
        values=_find_ages(),
    )


def _count_workers() -> int:
    lately = timedelta(seconds=ALIVE_LEASES * float(settings.AGENTOPS_LEASE_SECONDS))
    alive = Worker.objects.filter(ended_at__isnull=True, last_seen_at__gt=Now() - lately)
    # A web process that carries calls out has a row as well, and takes nothing else up.
    return alive.filter(release__isnull=False).count()


def _find_ages() -> dict[str, float]:
    return dict.fromkeys(EXPECTED, inf) | {one.name: one.seconds for one in desk.read_sweeps()}

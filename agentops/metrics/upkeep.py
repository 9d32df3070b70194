"""Gauges of what keeps the stack going: workers and sweeps."""

from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings
from django.db.models.functions import Now
from prometheus_client.metrics_core import Metric

from agentops import sweeping
from agentops.metrics.families import gauge, gauges
from runs.models import Worker
from runs.versions import ALIVE_LEASES


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
    """Of every sweep that is asked for here: that of a tool which is gone is nobody's."""
    return {one.name: one.seconds for one in sweeping.read_standings()}

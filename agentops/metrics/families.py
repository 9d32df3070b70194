"""Metric families, as the exposition wants them."""

from collections.abc import Mapping, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

PREFIX = "agentops_"


def gauge(name: str, what: str, value: float) -> Metric:
    """One figure without labels."""
    return GaugeMetricFamily(PREFIX + name, what, value=value)


def gauges(name: str, what: str, *, label: str, values: Mapping[str, float]) -> Metric:
    """One figure for each value of a label."""
    family = GaugeMetricFamily(PREFIX + name, what, labels=[label])
    for value, figure in sorted(values.items()):
        family.add_metric([value], figure)
    return family


def counters(
    name: str, what: str, *, labels: Sequence[str], values: Mapping[tuple[str, ...], float]
) -> Metric:
    """One sum for each combination of label values; `_total` is added to the name."""
    family = CounterMetricFamily(PREFIX + name, what, labels=labels)
    for combination, total in sorted(values.items()):
        family.add_metric(combination, total)
    return family

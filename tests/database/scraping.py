"""What `/metrics` says, as a scraper reads it."""

from collections.abc import Iterator

from django.test import Client
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, frozenset[tuple[str, str]]]


class Scrape:
    """One answer of `/metrics`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families: dict[str, Metric] = {
            family.name: family for family in text_string_to_metric_families(text)
        }
        self.values: dict[Series, float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, /, **labels: str) -> float:
        """The figure of one series, without the prefix that all have."""
        return self.values[f"agentops_{name}", frozenset(labels.items())]

    def labels(self, name: str) -> set[str]:
        """Every value of this label, in any series."""
        return {value for _, given in self.values for label, value in given if label == name}

    def counters(self) -> Iterator[tuple[Series, float]]:
        """What may only grow."""
        for series, value in self.values.items():
            # What was good until something was found is no such thing.
            if series[0].endswith(("_total", "_bucket", "_count")) and "_slo_good" not in series[0]:
                yield series, value


def scrape() -> Scrape:
    answer = Client().get("/metrics")
    assert answer.status_code == 200, answer.content
    return Scrape(answer.content.decode())

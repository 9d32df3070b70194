"""The reference of metrics has every metric that `/metrics` has, and no other."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from runs.models import AgentRun, Rollup
from runs.slo.measures import DISTRIBUTIONS
from tests.database.kit import call_once, scripted_tool
from tests.database.scraping import scrape

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"
ROW = re.compile(r"^\| `(agentops_\w+)` \| (.*?) \| (.*?) \|$", re.MULTILINE)


def _documented() -> dict[str, tuple[set[str], str]]:
    """Labels and meaning by name."""
    rows = ROW.findall(PAGE.read_text())
    return {name: (set(re.findall(r"`(\w+)`", labels)), what) for name, labels, what in rows}


def test_every_metric_is_documented_with_its_labels_and_its_help(
    start: Callable[..., AgentRun],
) -> None:
    scripted_tool()
    run = start(decider=call_once(), tools=("pay",))
    # A histogram has labels once it has values.
    for measure, bounds in DISTRIBUTIONS.items():
        Rollup.objects.create(
            starts_at=run.created_at,
            seconds=300,
            agent=run.agent,
            measure=measure,
            le=bounds[0],
            count=1,
        )
    exported = {}
    for name, family in scrape().families.items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        name = f"{name}_total" if family.type == "counter" else name
        exported[name] = (labels, family.documentation)
    assert _documented() == exported


def test_no_metric_is_documented_twice() -> None:
    names = [name for name, _, _ in ROW.findall(PAGE.read_text())]
    assert len(names) == len(set(names)) > 50

"""Another objective pages nobody, and what breaks it does: scrapes before and after a deployment,
as `/metrics` answers them, go through the rules as Prometheus would have them.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from runs import Agent, Finish, Objectives, Script
from runs.models import Rollup
from runs.slo.measures import Measure
from tests.conformance.test_alerts import PROMETHEUS, run
from tests.conformance.test_alerts import promtool as promtool
from tests.database.scraping import Scrape, scrape

pytestmark = pytest.mark.django_db(transaction=True)

AGENT: Final = "support"
# Minutes for which each scrape is what is seen.
HELD: Final = 65


@pytest.fixture
def scrapes() -> list[Scrape]:
    """Before and after runs of two minutes are no longer good; meanwhile all runs were."""
    agent = Agent(name=AGENT, decider=Script(Finish()))
    _work(seconds=30, runs=9500)
    _work(seconds=300, runs=500)
    before = scrape()
    object.__setattr__(agent, "objectives", Objectives(latency_seconds=60))
    _work(seconds=30, runs=20)
    return [before, scrape()]


def test_a_tighter_objective_pages_nobody(
    promtool: str, tmp_path: Path, scrapes: list[Scrape]
) -> None:
    _check(promtool, tmp_path, scrapes=scrapes, fires={})


def test_what_breaks_the_tighter_objective_from_then_on_does(
    promtool: str, tmp_path: Path, scrapes: list[Scrape]
) -> None:
    _work(seconds=300, runs=20)
    fires = {"severity": "page", "objective": "latency", "agent": AGENT, "bound": "60"}
    _check(promtool, tmp_path, scrapes=[*scrapes, scrape()], fires=fires)


def _work(*, seconds: float, runs: int) -> None:
    """So many runs worked for at most so long."""
    Rollup.objects.create(
        starts_at=datetime(2020, 1, 1, Rollup.objects.count(), tzinfo=UTC),
        seconds=300,
        agent=AGENT,
        measure=Measure.RUN_WORKING_SECONDS,
        le=seconds,
        count=runs,
    )


def _check(
    promtool: str, folder: Path, *, scrapes: Sequence[Scrape], fires: dict[str, str]
) -> None:
    """A minute after the last scrape began to be seen."""
    written = folder / "tests.yml"
    written.write_text(yaml.safe_dump(_as_test(scrapes, fires)))
    run(promtool, "test", "rules", written)


def _as_test(scrapes: Sequence[Scrape], fires: dict[str, str]) -> dict[str, Any]:
    names = {series for one in scrapes for series in one.values if "_slo_" in series[0]}
    seen = [
        {
            "series": _select(name, dict(labels)),
            "values": " ".join(_hold(one.values.get((name, labels))) for one in scrapes),
        }
        for name, labels in names
    ]
    alert = {"alertname": "SloBudgetBurnFast", "alertstate": "firing"} | fires
    asked = {
        "expr": _select("ALERTS", {"alertname": "SloBudgetBurnFast"}),
        "eval_time": f"{HELD * (len(scrapes) - 1) + 1}m",
        "exp_samples": [{"labels": _select("ALERTS", alert), "value": 1}] if fires else [],
    }
    return {
        "rule_files": [str(PROMETHEUS / "rules.yml"), str(PROMETHEUS / "alerts.yml")],
        "evaluation_interval": "1m",
        "group_eval_order": ["agentops.budgets", "agentops.objectives"],
        "tests": [{"interval": "1m", "input_series": seen, "promql_expr_test": [asked]}],
    }


def _hold(value: float | None) -> str:
    """A figure that is seen for so long, or a series that is not there."""
    return f"stale _x{HELD - 1}" if value is None else f"{value:g}x{HELD - 1}"


def _select(name: str, labels: dict[str, str]) -> str:
    return name + "{" + ", ".join(f'{label}="{value}"' for label, value in labels.items()) + "}"

"""The Grafana dashboard shows figures that there are, in expressions that Prometheus takes."""

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import yaml

from tests.conformance.promql import find_selectors
from tests.conformance.test_alerts import Exported, check_reads
from tests.conformance.test_alerts import exported as exported
from tests.conformance.test_alerts import promtool as promtool
from tests.processes import ROOT

BOARD: Final[dict[str, Any]] = json.loads(
    (ROOT / "deploy" / "grafana" / "dashboards" / "agentops.json").read_text()
)
PANELS: Final = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
# What Grafana brings itself.
BUILT_IN: Final = {"stat", "timeseries", "heatmap", "table", "row"}
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
# What an operator looks for, by a figure that must be shown.
SHOWN: Final = (
    *("runs_uncertain", "operations_unknown_oldest_seconds", "waiting_for_person"),
    *("runs_completed_total", "operations_sent_total", "run_working_seconds_bucket"),
    *("llm_cost_usd_total", "workers_alive", "sweep_age_seconds", "slo_good_total"),
)
RECORDED_SHOWN: Final = (
    *("agentops:duplicates:rise1h", "agentops:late_commits:rise1h"),
    *("agentops:unapproved:rise1h", "agentops:slo_burn:1h"),
)


def _expressions() -> list[str]:
    targets = [target["expr"] for panel in PANELS for target in panel["targets"]]
    return targets + [one["expr"] for one in BOARD["annotations"]["list"]]


def test_every_expression_is_one_that_prometheus_takes(promtool: str, tmp_path: Path) -> None:
    rules = [
        # Grafana fills these in.
        {
            "record": f"shown:{number}",
            "expr": expression.replace("$__rate_interval", "5m").replace("$agent", ".*"),
        }
        for number, expression in enumerate(_expressions())
    ]
    assert "$" not in str(rules)
    written = tmp_path / "shown.yml"
    written.write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": rules}]}))
    ran = subprocess.run(
        [promtool, "check", "rules", "--lint=all", written], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_figure_that_is_shown_is_one_that_we_export_or_record(
    exported: Exported,
) -> None:
    for expression in _expressions():
        check_reads(expression, exported)
        # Several web processes say the same, and are shown as one.
        assert all(one.is_recorded or one.once for one in find_selectors(expression)), expression
    for variable in BOARD["templating"]["list"]:
        for name, label in re.findall(r"label_values\((\w+), (\w+)\)", str(variable)):
            assert all(label in labels for labels in exported[name])


def test_what_an_operator_looks_for_is_there() -> None:
    shown = {one.name for each in _expressions() for one in find_selectors(each)}
    assert shown >= {f"agentops_{name}" for name in SHOWN} | set(RECORDED_SHOWN)
    assert PANELS[0]["targets"][0]["expr"] == "max without (instance) (agentops_runs_uncertain)"


def test_it_needs_no_plugin_and_asks_the_data_source_that_is_chosen() -> None:
    assert {panel["type"] for panel in BOARD["panels"]} <= BUILT_IN
    [source] = [one for one in BOARD["templating"]["list"] if one["name"] == "datasource"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    assert all(one == SOURCE for one in _find(BOARD, "datasource"))


def test_panels_are_told_apart_say_what_they_show_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))
    assert all(panel["title"] and panel["description"] for panel in PANELS)
    for one, other in combinations([panel["gridPos"] for panel in BOARD["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in PANELS)


def _find(value: Any, key: str) -> Iterator[Any]:
    """Every value under this key, however deep."""
    if isinstance(value, dict):
        yield from (one for name, one in value.items() if name == key)
        for one in value.values():
            yield from _find(one, key)
    if isinstance(value, list):
        for one in value:
            yield from _find(one, key)

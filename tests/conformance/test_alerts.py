"""The alerts fire when they should and are silent when they should, read figures that `/metrics`
has, and lead to a section of the runbook and to a page.

`promtool`, of Debian's package prometheus, says what Prometheus would. Without it its tests are
skipped, and say so; with CI=true they fail instead, since CI installs it.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from django.contrib.auth.models import User
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from runs import Agent, Finish, Script
from tests.conformance.promql import find_groupings, find_selectors
from tests.processes import ROOT
from tools import Call, EffectType, tool

PROMETHEUS: Final = ROOT / "deploy" / "prometheus"
RUNBOOK: Final = ROOT / "docs" / "how-to" / "woken-at-night.md"
PROMTOOL: Final = shutil.which("promtool")
WHY_SKIPPED: Final = "no promtool: apt-get install --no-install-recommends prometheus"
TESTS: Final = ("alerts_test.yml", "alerts_days_test.yml")


# By name, the labels of each series.
Exported = dict[str, list[dict[str, str]]]


def _read(name: str) -> Any:
    return yaml.safe_load((PROMETHEUS / name).read_text())


RULES: Final[list[dict[str, Any]]] = [
    rule
    for name in ("rules.yml", "alerts.yml")
    for group in _read(name)["groups"]
    for rule in group["rules"]
]
ALERTS: Final = [rule for rule in RULES if "alert" in rule]
RECORDED: Final = {rule["record"] for rule in RULES if "record" in rule}
# Says what the scrape lacks, so it looks at series and not at what they say.
OF_NAMES: Final = "MetricsMissing"


@pytest.fixture
def promtool() -> str:
    if PROMTOOL is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI skips nothing: {WHY_SKIPPED}")
        pytest.skip(WHY_SKIPPED)
    return PROMTOOL


def run(*command: str | Path) -> None:
    # It is written in Go, and would clear up a few megabytes again and again.
    env = {**os.environ, "GOGC": "400"}
    ran = subprocess.run(command, capture_output=True, text=True, cwd=PROMETHEUS, env=env)
    assert ran.returncode == 0, ran.stdout + ran.stderr


# -- What promtool says ----------------------------------------------------------


def test_prometheus_takes_its_configuration_and_every_rule(promtool: str) -> None:
    run(promtool, "check", "config", "prometheus.yml")
    run(promtool, "check", "rules", "rules.yml", "alerts.yml")


@pytest.mark.parametrize("name", TESTS)
def test_alerts_fire_in_their_case_and_are_silent_in_the_next(promtool: str, name: str) -> None:
    run(promtool, "test", "rules", name)


# -- What is tested --------------------------------------------------------------


def test_every_alert_is_seen_to_fire_and_seen_to_be_silent() -> None:
    fires, silent = set(), set()
    for name in TESTS:
        for case in _read(name)["tests"]:
            for tested in case.get("alert_rule_test", []):
                (fires if tested["exp_alerts"] else silent).add(tested["alertname"])
            for tested in case.get("promql_expr_test", []):
                [alert] = re.findall(r'alertname="(\w+)"', tested["expr"])
                (fires if tested.get("exp_samples") else silent).add(alert)
    names = {rule["alert"] for rule in ALERTS}
    assert (names - fires, names - silent) == (set(), set())
    assert fires | silent == names


# -- What an alert says ----------------------------------------------------------


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_what_how_many_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"page", "ticket"}
    said = rule["annotations"]
    assert set(said) == {"summary", "description", "runbook_url", "page"}
    assert "{{ $value" in said["description"] or rule["expr"].startswith("absent(")
    page, _, anchor = said["runbook_url"].removeprefix("{{ $externalLabels.docs }}").partition("#")
    assert ROOT / page == RUNBOOK
    assert anchor == rule["alert"].lower()


def test_the_runbook_has_a_section_of_each_alert_and_of_nothing_else() -> None:
    sections = re.findall(r"^### (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sorted(sections) == sorted({rule["alert"] for rule in ALERTS})


def test_a_section_says_what_it_means_where_to_look_what_to_do_and_when_it_ends() -> None:
    _, *sections = re.split(r"^### ", RUNBOOK.read_text(), flags=re.MULTILINE)
    for section in sections:
        for word in ("**Means.**", "**Look.**", "**Do.**", "**Ends**"):
            found = section.replace("**Do**, in this order:", "**Do.**")
            assert word in found, (section.splitlines()[0], word)


def test_the_table_of_the_runbook_sorts_the_alerts_by_how_bad_they_are() -> None:
    rows = re.findall(r"^\| (\[.*) \| (\[.*) \|$", RUNBOOK.read_text(), re.MULTILINE)
    for column, severity in enumerate(("page", "ticket")):
        listed = {name for row in rows for name in re.findall(r"\[(\w+)\]", row[column])}
        assert listed == {
            rule["alert"] for rule in ALERTS if rule["labels"]["severity"] == severity
        }


@pytest.mark.django_db
def test_the_page_of_an_alert_is_there_and_takes_its_filters(admin_user: User) -> None:
    Agent(name="support", decider=Script(Finish()))
    browser = Client()
    browser.force_login(admin_user)
    for rule in ALERTS:
        address = rule["annotations"]["page"].removeprefix("{{ $externalLabels.agentops }}")
        address = address.replace("{{ $labels.agent | urlquery }}", "support")
        answer = browser.get(address)
        # The list of a model sends a filter that it does not know away, with a redirect.
        assert answer.status_code in {200, 503 if address == "/readyz" else 200}, address
        asked = parse_qs(urlsplit(address).query)
        if address.startswith("/admin/runs/rollup/"):
            # It says what it cannot show, and shows something else.
            assert answer.context["refused"] is None, address
            assert asked == {"window": [answer.context["report"].window], "agent": ["support"]}
            continue
        for name in asked:
            changelist = answer.context["cl"]
            assert name in {one.parameter_name for one in changelist.filter_specs}, address


# -- What the rules read ---------------------------------------------------------


@pytest.fixture
def exported(db: None) -> Exported:
    """What `/metrics` has of an agent with a tool, and of which nothing has run."""

    @tool(
        name="refund",
        effect_type=EffectType.NON_IDEMPOTENT_WRITE,
        audit_handler=lambda audit: [],
    )
    def refund(call: Call) -> None:
        """Pays money back."""

    Agent(name="support", decider=Script(Finish()), tools=("refund",))
    text = Client().get("/metrics").content.decode()
    found: Exported = {}
    for family in text_string_to_metric_families(text):
        total = "_total" if family.type == "counter" else ""
        parts = ("_bucket", "_sum", "_count") if family.type == "histogram" else (total,)
        found |= {family.name + part: [] for part in parts}
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def test_every_figure_that_a_rule_reads_is_one_that_we_export(
    exported: Exported,
) -> None:
    for rule in RULES:
        if rule.get("alert") == OF_NAMES:
            continue
        check_reads(rule["expr"], exported)
        selectors = find_selectors(rule["expr"])
        assert selectors, rule
        # Several web processes say the same, and make one series of it.
        assert all(
            one.is_recorded or one.once or rule["expr"].startswith("absent(") for one in selectors
        ), rule["expr"]


def check_reads(expression: str, exported: Exported) -> None:
    """Names, labels and the values that labels are compared with are those of `/metrics`."""
    for one in find_selectors(expression):
        if one.is_recorded:
            assert one.name in RECORDED, one.name
            continue
        assert one.name in exported, one.name
        series = exported[one.name]
        for label, value in one.labels.items():
            if not series:
                continue
            assert all(label in labels for labels in series), (one.name, label)
            for choice in [] if value.startswith("$") else value.split("|"):
                known = [labels[label] for labels in series]
                assert any(re.fullmatch(choice, each) for each in known), (one.name, choice)


def test_the_labels_that_rules_group_by_are_ours(
    exported: Exported,
) -> None:
    ours = {label for series in exported.values() for labels in series for label in labels}
    for rule in RULES:
        assert find_groupings(rule["expr"]) <= ours | {"instance", "__name__"}, rule["expr"]


def test_a_series_that_an_alert_waits_for_is_there_before_anything_happened(
    exported: Exported,
) -> None:
    for name in _read_by_rules():
        assert exported[name], name


def test_a_figure_that_is_missing_is_an_alert_whichever_it_is() -> None:
    [rule] = [one for one in ALERTS if one["alert"] == OF_NAMES]
    number, listed = re.findall(r"(\d+) - count.*agentops_\((.*)\)'", rule["expr"])[0]
    names = [f"agentops_{name}" for name in listed.split("|")]
    assert names == sorted(_read_by_rules())
    assert int(number) == len(names)


def _read_by_rules() -> set[str]:
    return {
        one.name
        for rule in RULES
        if rule.get("alert") != OF_NAMES
        for one in find_selectors(rule["expr"])
        if not one.is_recorded
    }

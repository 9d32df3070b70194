"""What `deploy/` adds to the stack: Prometheus and Grafana, closed to the outside."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
STACK: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
ADDED: dict[str, Any] = yaml.safe_load((DEPLOY / "docker-compose.monitoring.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = ADDED["services"]
OURS = ("prometheus", "grafana")


def test_it_adds_two_services_and_changes_one_variable_of_the_stack() -> None:
    assert set(SERVICES) == {*OURS, "web"}
    assert set(SERVICES["web"]) == {"environment"}
    [(name, hosts)] = SERVICES["web"]["environment"].items()
    before = STACK["services"]["web"]["environment"][name].split(",")
    assert set(hosts.split(",")) == {*before, "web"}


def test_ports_are_published_on_loopback_alone() -> None:
    ports = {name: SERVICES[name]["ports"] for name in OURS}
    assert ports == {
        "prometheus": ["127.0.0.1:${PROMETHEUS_PORT:-9090}:9090"],
        "grafana": ["127.0.0.1:${GRAFANA_PORT:-3000}:3000"],
    }


def test_it_does_not_start_without_a_password() -> None:
    password = SERVICES["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"]
    assert re.fullmatch(r"\$\{GRAFANA_PASSWORD:\?[^}]+\}", password)


def test_images_are_of_one_version_and_are_watched() -> None:
    for name in OURS:
        assert re.search(r":v?\d+\.\d+\.\d+$", SERVICES[name]["image"])
        assert SERVICES[name]["healthcheck"]["test"]


def test_what_is_mounted_is_there_and_cannot_be_written() -> None:
    for name in OURS:
        for volume in SERVICES[name]["volumes"]:
            source, _, options = volume.partition(":")
            if source.startswith("."):
                assert (ROOT / source).exists(), volume
                assert options.endswith(":ro"), volume
            else:
                assert source in ADDED["volumes"]


def test_prometheus_asks_the_web_process_by_its_name_and_port() -> None:
    [group] = yaml.safe_load((DEPLOY / "prometheus" / "targets-compose.yml").read_text())
    [port] = re.findall(r":(\d+)$", STACK["services"]["web"]["ports"][0])
    assert group["targets"] == [f"web:{port}"]
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    [found] = config["scrape_configs"][0]["file_sd_configs"]
    mounted = [one.split(":")[1] for one in SERVICES["prometheus"]["volumes"]]
    assert f"/etc/prometheus/{found['files'][0]}" in mounted


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    [provider] = yaml.safe_load((provisioning / "dashboards" / "agentops.yml").read_text())[
        "providers"
    ]
    mounts = [volume.split(":") for volume in SERVICES["grafana"]["volumes"]]
    [folder] = [one[0] for one in mounts if one[1] == provider["options"]["path"]]
    assert list((ROOT / folder).glob("*.json"))


def test_whom_the_page_has_alerts_sent_to_can_be_reached() -> None:
    page = (ROOT / "docs" / "how-to" / "be-alerted.md").read_text()
    prometheus, told = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    assert set(prometheus) == {"alerting"}
    route, receivers = told["route"], {one["name"]: set(one) for one in told["receivers"]}
    assert {one["receiver"] for one in (route, *route["routes"])} == set(receivers)
    assert all(any(key.endswith("_configs") for key in keys) for keys in receivers.values())
    assert route["routes"][0]["matchers"] == ['severity="page"']

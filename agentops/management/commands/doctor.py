"""Say what keeps the stack from working, and what would fix it.

Guarantees that every check is made whatever the others find, that each problem comes with
its fix, and exit status 1 when one of them is an error. Changes nothing.
"""

import importlib.util
import json
import shutil
import sys
import urllib.error
import urllib.request
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import psycopg
from celery import current_app
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from agentops.embedded.identity import namespaces_work
from agentops.embedded.urls import broker_url, database_url
from agentops.ports import PortBusy, PortUnusable, require_free_port
from agentops.processes import LOOPBACK
from agentops.sweeping import SweepStanding, read_standings
from runs.stuck import find_stuck
from runs.unserved import find_unserved
from runs.worker_ends import count_by_standing
from tools.mcp_servers.declaring import declared_servers
from tools.mcp_servers.live import ask_all

_START = "Start the stack: python manage.py up"
_OLDEST_POSTGRES = 140_000
_NEEDED_BYTES = 200 * 1024 * 1024
_WISE_BYTES = 1024 * 1024 * 1024
_PATIENCE_SECONDS = 3
_MCP_SECONDS: Final = 20.0
_VERSIONS_NAMED = 5
_RUNS_NAMED = 5


@dataclass(frozen=True)
class Finding:
    """What one check found. `fix` is empty when there is nothing to do."""

    name: str
    level: Literal["ok", "warning", "error"]
    detail: str
    fix: str = ""


class Command(BaseCommand):
    help = "Check Python, database, broker, workers, sweeps, ports, disk and your apps."
    # A failing system check is one of the things that this command is asked about.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        findings = examine()
        healthy = all(finding.level != "error" for finding in findings)
        if options["json"]:
            checks = [asdict(finding) for finding in findings]
            self.stdout.write(json.dumps({"ok": healthy, "checks": checks}, indent=2))
        else:
            for finding in findings:
                self.stdout.write(f"{finding.level:<8} {finding.name:<11} {finding.detail}")
                if finding.fix:
                    self.stdout.write(f"{'':<20} → {finding.fix}")
        if not healthy:
            sys.exit(1)


def examine() -> list[Finding]:
    """All checks in the order of dependence; one that fails unexpectedly is an error too."""
    checks: dict[str, Callable[[], Finding | None]] = {
        "python": _python,
        "disk": _disk,
        "namespaces": _namespaces,
        "apps": _apps,
        "database": _database,
        "migrations": _migrations,
        "broker": _broker,
        "workers": _workers,
        "worker ends": _worker_ends,
        "versions": _versions,
        "stuck runs": _stuck,
        "sweeps": _sweeps,
        "mcp servers": examine_mcp_servers,
        "web port": lambda: _port(settings.PORT, variable="PORT", path="healthz"),
        "flower port": lambda: _port(
            settings.FLOWER_PORT, variable="FLOWER_PORT", path="healthcheck"
        ),
    }
    findings = []
    broken: set[str] = set()
    for name, check in checks.items():
        needed = _NEEDS.get(name)
        if needed in broken:
            broken.add(name)
            findings.append(Finding(name, "warning", f"not looked at, because of {needed}"))
            continue
        finding = _guarded(name, check)
        if finding is not None:
            findings.append(finding)
            if finding.level == "error":
                broken.add(name)
    return findings


_NEEDS = {
    "migrations": "database",
    "sweeps": "migrations",
    "worker ends": "migrations",
    "versions": "migrations",
    "stuck runs": "migrations",
    "workers": "broker",
}


def _guarded(name: str, check: Callable[[], Finding | None]) -> Finding | None:
    try:
        return check()
    except Exception as error:  # noqa: BLE001  the other checks still have to be made
        return Finding(name, "error", f"{type(error).__name__}: {error}", "Read the message.")


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036  pip checks it, a copied directory does not
        return Finding("python", "error", version, "Use Python 3.11 or newer.")
    return Finding("python", "ok", version)


def _disk() -> Finding:
    place = settings.AGENTOPS_DATA_DIR
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    detail = f"{free // (1024 * 1024)} MiB free at {place}"
    fix = "Free some space or set AGENTOPS_DATA_DIR to another disk."
    if free < _NEEDED_BYTES:
        return Finding("disk", "error", detail, fix)
    if free < _WISE_BYTES:
        return Finding("disk", "warning", detail, fix)
    return Finding("disk", "ok", detail)


def _namespaces() -> Finding | None:
    if database_url(settings.AGENTOPS_DATA_DIR) != settings.DATABASE_URL:
        return None
    if namespaces_work():
        return Finding("namespaces", "ok", "user namespaces work here")
    return Finding(
        "namespaces",
        "warning",
        "no user namespaces: as root the embedded PostgreSQL runs as an unused user id",
        "Nothing to do, unless it does not start: then set DATABASE_URL.",
    )


def _apps() -> Finding:
    missing = [name for name in settings.AGENTOPS_APPS if not _is_importable(name)]
    if missing:
        return Finding(
            "apps",
            "error",
            f"cannot be imported: {', '.join(missing)}",
            "Correct AGENTOPS_APPS, or start from their directory or put it on PYTHONPATH.",
        )
    if not settings.AGENTOPS_APPS:
        return Finding("apps", "ok", "AGENTOPS_APPS names none")
    return Finding("apps", "ok", ", ".join(settings.AGENTOPS_APPS))


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _database() -> Finding:
    try:
        with psycopg.connect(settings.DATABASE_URL, connect_timeout=_PATIENCE_SECONDS) as session:
            version = session.info.server_version
    except psycopg.OperationalError as error:
        if database_url(settings.AGENTOPS_DATA_DIR) == settings.DATABASE_URL:
            return Finding("database", "error", "the embedded PostgreSQL does not run", _START)
        reason = " ".join(str(error).split())
        fix = "Start the server, or correct DATABASE_URL."
        return Finding("database", "error", f"no connection: {reason}", fix)
    shown = f"PostgreSQL {version // 10_000}.{version % 10_000}"
    if version < _OLDEST_POSTGRES:
        return Finding("database", "error", shown, "Use PostgreSQL 14 or newer.")
    return Finding("database", "ok", shown)


def _migrations() -> Finding:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if plan:
        missing = ", ".join(str(migration) for migration, _ in plan[:3])
        more = f" and {len(plan) - 3} more" if len(plan) > 3 else ""
        return Finding(
            "migrations", "error", f"not applied: {missing}{more}", "python manage.py migrate"
        )
    return Finding("migrations", "ok", "all applied")


def _broker() -> Finding:
    try:
        with current_app.connection_for_read(connect_timeout=_PATIENCE_SECONDS) as broker:
            broker.ensure_connection(max_retries=1, interval_start=0, timeout=_PATIENCE_SECONDS)
            shown = broker.as_uri()
    except Exception as error:  # noqa: BLE001  every transport has exceptions of its own
        if broker_url(settings.AGENTOPS_DATA_DIR) == settings.CELERY_BROKER_URL:
            return Finding("broker", "error", "the embedded Valkey does not run", _START)
        fix = "Start the server, or correct CELERY_BROKER_URL."
        return Finding("broker", "error", f"no connection: {error}", fix)
    return Finding("broker", "ok", shown)


def _workers() -> Finding:
    answers = current_app.control.inspect(timeout=_PATIENCE_SECONDS).ping() or {}
    if not answers:
        return Finding("workers", "error", "none answers", _START)
    return Finding("workers", "ok", ", ".join(sorted(answers)))


def _worker_ends() -> Finding:
    counted = count_by_standing()
    shown = ", ".join(f"{number} {standing}" for standing, number in counted.items())
    detail = f"of the processes that send calls, web ones too: {shown}"
    if not counted["silent"]:
        return Finding("worker ends", "ok", detail)
    return Finding(
        "worker ends",
        "warning",
        f"{detail} (not seen for a lease, and not known to have ended)",
        "See `manage.py list_workers --alive`; for one that you know to have ended: "
        "`manage.py worker_ended NAME --evidence TEXT`.",
    )


def _versions() -> Finding:
    unserved = find_unserved()
    if not unserved:
        return Finding("versions", "ok", "every active run is served by a worker")
    shown = ", ".join(
        f"{one.runs} of {one.agent} {one.version or 'without a version'}"
        + (f" for a worker with the tool {one.tool}" if one.tool else "")
        for one in unserved[:_VERSIONS_NAMED]
    )
    more = len(unserved) - _VERSIONS_NAMED
    others = f" and {more} more such groups" if more > 0 else ""
    return Finding(
        "versions",
        "warning",
        f"active runs that no living worker goes on with: {shown}{others}",
        "Start a worker with the code that serves them, or with the tool; or deploy their agent "
        "with another on_version_change; `manage.py migrate_runs` shows each run.",
    )


def _stuck() -> Finding:
    stuck = find_stuck(most=_RUNS_NAMED)
    if not stuck:
        return Finding("stuck runs", "ok", "every active run has somebody who is due to move it on")
    shown = "; ".join(f"{one.run_id} ({one.agent}) {one.why}" for one in stuck)
    return Finding(
        "stuck runs",
        "warning",
        f"nothing moves these on: {shown}",
        "`manage.py pause_run RUN` and then `resume_run RUN` have a worker look at it again; "
        "`inspect_run RUN` shows what is there.",
    )


def _sweeps() -> Finding:
    standings = read_standings()
    late = [one for one in standings if one.is_late]
    if not late:
        return Finding("sweeps", "ok", ", ".join(map(_say_sweep, standings)))
    detail = ", ".join(f"{_say_sweep(one)} ({one.allowed:g} s at most)" for one in late)
    if any(one.is_needed for one in late):
        return Finding("sweeps", "error", detail, f"{_START} (beat and a worker have to run)")
    tasks = ", ".join(dict.fromkeys(one.task for one in late))
    fix = f"Other sweeps run: a worker's log has what keeps {tasks} from it."
    return Finding("sweeps", "error", detail, fix)


def _say_sweep(one: SweepStanding) -> str:
    return f"{one.name} {one.seconds:.0f} s ago" if one.has_run else f"{one.name} not yet"


def examine_mcp_servers() -> Finding | None:
    """Whether each server of AGENTOPS_MCP_SERVERS lists what is pinned; None without any."""
    declared = declared_servers()
    if declared.path is None:
        return None
    if declared.problems:
        fix = "Correct the file that AGENTOPS_MCP_SERVERS names; `manage.py check` says all of it."
        return Finding("mcp servers", "error", declared.problems[0], fix)
    silent, differing = ask_all(declared.servers, seconds=_MCP_SECONDS)
    if differing:
        fix = "Read `manage.py describe_mcp SERVER`; --pin TOOL agrees to what it shows."
        return Finding("mcp servers", "error", "; ".join(differing.values()), fix)
    if silent:
        detail = "; ".join(f"{name}: {why}" for name, why in silent.items())
        fix = "Start it, or correct its place and its variables: calls wait for it until then."
        return Finding("mcp servers", "warning", detail, fix)
    return Finding("mcp servers", "ok", f"as pinned: {', '.join(declared.servers) or 'none'}")


def _port(port: int, *, variable: str, path: str) -> Finding:
    name = f"{'web' if variable == 'PORT' else 'flower'} port"
    try:
        require_free_port(port, host=LOOPBACK, variable=variable)
    except PortBusy as error:
        if _answers(f"http://{LOOPBACK}:{port}/{path}"):
            return Finding(name, "ok", f"{port} is served by a running stack")
        return Finding(name, "error", str(error), f"Set {variable} to a free port.")
    except PortUnusable as error:
        return Finding(name, "error", str(error), f"Set {variable} to a free port.")
    return Finding(name, "ok", f"{port} is free")


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_PATIENCE_SECONDS) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False

"""Whether the process lives, and whether the stack can do its work.

Guarantees: `/healthz` asks nobody, so a database that is away does not get the web
process killed; `/readyz` names each part, and is 503 unless runs started now would
go on: the database answers, the broker answers, and the sweeps that runs need are fresh.
Sweeps run on workers, so a fresh one shows that a worker works. Runs that no worker goes on with,
and other sweeps that are late, are told of, and leave it ready: what is started now is not kept
from going on by them.

Does not say why a part fails beyond the kind of error: the address is open to all.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

import celery
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from agentops.sweeping import read_standings
from runs.unserved import find_unserved


@dataclass(frozen=True)
class Part:
    """One part of the stack, and what was seen of it."""

    ok: bool
    detail: str


@never_cache
@require_safe
def alive(request: HttpRequest) -> HttpResponse:
    """200 as long as this process answers."""
    return JsonResponse({"status": "alive"})


@never_cache
@require_safe
def ready(request: HttpRequest) -> HttpResponse:
    """200 when every part is ready, else 503."""
    parts = check_parts()
    well = all(part.ok for part in parts.values())
    return JsonResponse(
        {
            "status": "ready" if well else "not ready",
            "parts": {name: asdict(part) for name, part in parts.items()},
        },
        status=200 if well else 503,
    )


def check_parts() -> dict[str, Part]:
    """Every part by name."""
    return {
        "database": _checked(_database),
        "broker": _checked(_broker),
        "sweeps": _checked(_sweeps),
        "versions": _checked(_versions),
    }


def _checked(check: Callable[[], Part]) -> Part:
    try:
        return check()
    except Exception as error:  # noqa: BLE001  whatever it is, the part did not answer
        return Part(ok=False, detail=f"no answer ({type(error).__name__})")


def _database() -> Part:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return Part(ok=True, detail="answers")


def _broker() -> Part:
    with celery.current_app.connection_for_write() as broker:
        broker.ensure_connection(
            max_retries=1,
            interval_start=0,
            interval_step=0,
            timeout=settings.CELERY_BROKER_CONNECTION_TIMEOUT,
        )
    return Part(ok=True, detail="answers")


def _sweeps() -> Part:
    """The oldest of the sweeps that nothing goes on without. Others are a number, as some of
    them have the name of a tool."""
    standings = read_standings()
    needed = [one for one in standings if one.is_needed]
    if missing := [one.name for one in needed if not one.has_run]:
        detail = f"none of {' and '.join(missing)} has run yet: are beat and a worker up?"
        return Part(ok=False, detail=detail)
    oldest = max(needed, key=lambda one: one.seconds)
    detail = f"a worker ran the last one of {oldest.name} {oldest.seconds:.1f} s ago"
    if oldest.is_late:
        limit = f"more than {oldest.allowed:g} s"
        return Part(ok=False, detail=f"{detail}, {limit}: are beat and a worker up?")
    if late := sum(one.is_late for one in standings):
        detail += f"; late: {late} of the others, which `manage.py doctor` names"
    return Part(ok=True, detail=detail)


def _versions() -> Part:
    """The runs whose version nobody serves. The address is open to all: a number, no names."""
    runs = sum(one.runs for one in find_unserved())
    if not runs:
        return Part(ok=True, detail="every active run is served by a worker")
    return Part(
        ok=True,
        detail=f"{runs} active {'run is' if runs == 1 else 'runs are'} served by no worker: "
        "`manage.py doctor` names the versions",
    )

"""Whether the process lives, and whether the stack can do its work.

Guarantees: `/healthz` asks nobody, so a database that is away does not get the web
process killed; `/readyz` names each part, and is 503 unless runs started now would
go on: the database answers, the broker answers, and sweeps are fresh. Sweeps run
on workers, so a fresh one shows that a worker works. Runs that no worker goes on with are told
of, and leave it ready: what is started now is not kept from going on by them.

Does not say why a part fails beyond the kind of error: the address is open to all.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Final

import celery
from django.conf import settings
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from runs.models import Sweep
from runs.unserved import find_unserved

# Those that beat asks for as often as for each other.
SWEEPS: Final = ("due runs", "approvals", "schedules")
LEAST_SWEEP_AGE: Final = timedelta(seconds=10)
SWEEPS_MISSED: Final = 10


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
    """The oldest of the sweeps that nothing goes on without."""
    allowed = max(LEAST_SWEEP_AGE, SWEEPS_MISSED * settings.SWEEP_EVERY)
    ages: dict[str, timedelta] = dict(
        Sweep.objects.filter(name__in=SWEEPS)
        .annotate(age=Now() - F("last_run_at"))
        .values_list("name", "age")
    )
    if missing := [name for name in SWEEPS if name not in ages]:
        detail = f"none of {' and '.join(missing)} has run yet: are beat and a worker up?"
        return Part(ok=False, detail=detail)
    name, age = max(ages.items(), key=lambda one: one[1])
    fresh = age < allowed
    limit = "" if fresh else f", more than {allowed.total_seconds():g} s: are beat and a worker up?"
    return Part(
        ok=fresh,
        detail=f"a worker ran the last one of {name} {age.total_seconds():.1f} s ago{limit}",
    )


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

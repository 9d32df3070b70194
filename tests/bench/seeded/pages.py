"""How long each page takes beside a million runs, over HTTP from a web process of the stack.

Guarantees that every page was answered with what it is for (200, signed in), warm, and that the
times include everything between the request and the last byte. One client asks at a time.
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

import httpx2
from rich import box
from rich.console import Console
from rich.table import Table

from tests.bench.ours import Incomplete, set_up, token
from tests.bench.processes import call
from tests.bench.seeded.database import APPS, is_filled
from tests.bench.server import Server, kept_database

FILLING: Final = "tests.bench.seeded.database"
MODULE: Final = "tests.bench.seeded.pages"
# What a page may take on this project's own machine.
MOST_MS: Final = 500.0
# Runs, and steps of the one that is long: in full and in short.
SIZES: Final = {False: (1_000_000, 10_000), True: (20_000, 300)}
DAYS: Final = 90
FILL_SECONDS: Final = 3_600.0
TIMEOUT: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Paged:
    """One page, or one thing done behind the pages: seconds of each time, and bytes."""

    title: str
    seconds: list[float]
    size: int = 0

    @property
    def is_slow(self) -> bool:
        return median(self.seconds) * 1000 > MOST_MS


def measure_pages(*, server: Server, quick: bool, fresh: bool, console: Console) -> list[Paged]:
    """Fill the database, unless one is kept that fits, and time the pages on it."""
    copies, steps = SIZES[quick]

    def fits(url: str) -> bool:
        return not fresh and is_filled(url, copies=copies)

    purpose = "pages_quick" if quick else "pages"
    with kept_database(server, purpose, fits=fits) as (url, is_kept):
        if not is_kept:
            console.print(f"pages: {copies:,} runs have to be written first")
            took = call(
                FILLING,
                "fill_database",
                url,
                copies,
                steps,
                DAYS,
                seconds=FILL_SECONDS,
                shows=True,
            )
            console.print("pages: " + ", ".join(f"{what} {took[what]:g} s" for what in took))
        console.print("pages: asking for each")
        return [Paged(**one) for one in call(MODULE, "measure", url, 3 if quick else 7)]


def measure(dsn: str, times: int) -> list[dict[str, Any]]:
    """In a process of its own, as everything is that sets Django up."""
    # The web process has to know the session that is made here.
    os.environ["AGENTOPS_SECRET_KEY"] = secrets.token_urlsafe(48)
    set_up(dsn, apps=APPS)
    from tests.bench.stack import serving

    with (
        serving() as base,
        httpx2.Client(base_url=base, cookies=_signed_in(), timeout=TIMEOUT) as person,
        httpx2.Client(base_url=base, headers=token(), timeout=TIMEOUT) as program,
    ):
        found = [_ask(person, title, path, times) for title, path in _pages()]
        found += [_ask(program, title, path, times) for title, path in _answers()]
    found += [_time(title, act, times) for title, act in _sweeps().items()]
    return [asdict(one) for one in found]


def _ask(client: httpx2.Client, title: str, path: str, times: int) -> Paged:
    size = 0

    def act() -> None:
        nonlocal size
        answer = client.get(path)
        if answer.status_code != 200:
            why = f"{path}: {answer.status_code} {answer.headers.get('location', '')}"
            raise Incomplete(done=0, expected=1, why=why)
        size = len(answer.content)

    act()
    return Paged(title=title, seconds=_time(title, act, times).seconds, size=size)


def _time(title: str, act: Callable[[], object], times: int) -> Paged:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - began)
    return Paged(title=title, seconds=seconds)


def _signed_in() -> dict[str, str]:
    """The cookie of a person who may see everything."""
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.auth.models import User
    from django.contrib.sessions.backends.db import SessionStore

    boss = User.objects.get(username="boss")
    session = SessionStore()
    session[SESSION_KEY] = str(boss.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = boss.get_session_auth_hash()
    session.create()
    return {settings.SESSION_COOKIE_NAME: str(session.session_key)}


def _pages() -> Iterator[tuple[str, str]]:
    """What a person opens."""
    from django.contrib import admin
    from django.urls import reverse

    from runs.models import AgentRun, Approval, ToolOperation

    yield "desk", reverse("admin:index")
    for model in sorted(admin.site._registry, key=lambda model: model._meta.label):
        label = model._meta
        address = reverse(f"admin:{label.app_label}_{label.model_name}_changelist")
        yield f"list of {label.verbose_name_plural}", address
    runs = reverse("admin:runs_agentrun_changelist")
    yield "runs, effect uncertain", f"{runs}?effect=uncertain"
    yield "runs, one agent", f"{runs}?q=seeded"
    for state in ("COMPLETED", "FAILED", "TOOL_STATUS_UNKNOWN", "WAITING_FOR_APPROVAL"):
        yield f"runs, {state}", f"{runs}?state={state}"
    long = AgentRun.objects.filter(input__story="long").latest("created_at")
    unknown = ToolOperation.objects.filter(status="UNKNOWN").earliest("unknown_since")
    signed = Approval.objects.filter(status="approved").latest("requested_at")
    runs_shown = {
        "an uncertain run": unknown.run_id,
        "a run that was signed": signed.run_id,
        f"a run of {long.step_number - 1:,} steps": long.id,
    }
    for title, run in runs_shown.items():
        yield title, reverse("admin:runs_agentrun_change", args=[run])
        yield f"timeline of {title}", reverse("admin:runs_agentrun_timeline", args=[run])
    yield "an operation", reverse("admin:runs_tooloperation_change", args=[unknown.id])
    yield (
        "timeline of an operation",
        reverse("admin:runs_tooloperation_timeline", args=[unknown.id]),
    )
    slo = reverse("admin:runs_rollup_changelist")
    for window in ("24h", "30d", "90d"):
        yield f"SLO page, {window}", f"{slo}?window={window}"
        yield f"SLO page, {window}, by agent", f"{slo}?window={window}&by=agent"


def _answers() -> Iterator[tuple[str, str]]:
    """What a program asks for."""
    from runs.models import AgentRun

    long = AgentRun.objects.filter(input__story="long").latest("created_at")
    yield "GET runs/", "/api/v1/runs/"
    yield "GET runs/?uncertain=true", "/api/v1/runs/?uncertain=true"
    yield "GET runs/?state=COMPLETED&agent=seeded", "/api/v1/runs/?state=COMPLETED&agent=seeded"
    yield "GET runs/{id}/timeline/, long", f"/api/v1/runs/{long.id}/timeline/"
    yield "GET operations/", "/api/v1/operations/"
    yield "GET operations/?status=unknown", "/api/v1/operations/?status=unknown"
    yield "GET approvals/?status=pending", "/api/v1/approvals/?status=pending"
    yield "GET slo/?window=24h", "/api/v1/slo/?window=24h"
    yield "GET slo/?window=90d&by=tool", "/api/v1/slo/?window=90d&by=tool"
    yield "/metrics", "/metrics"


def _sweeps() -> dict[str, Callable[[], object]]:
    """What runs behind the pages, again and again."""
    from runs.slo import rolling
    from runs.stuck import count_stuck
    from runs.unserved import find_unserved

    return {
        "rolling up, nothing new": rolling.run_once,
        "looking for stuck runs": count_stuck,
        "looking for unserved runs": find_unserved,
    }


def show_pages(found: Sequence[Paged], *, console: Console) -> None:
    """Prints one row per page, those over the limit marked."""
    table = Table(box=box.MARKDOWN)
    table.add_column("page", no_wrap=True)
    for title in ("median ms", "worst ms", "kB", f"over {MOST_MS:g} ms"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in found:
        table.add_row(
            one.title,
            f"{median(one.seconds) * 1000:.0f}",
            f"{max(one.seconds) * 1000:.0f}",
            f"{one.size / 1000:.0f}" if one.size else "",
            "SLOW" if one.is_slow else "",
        )
    console.print(table)


def as_json(found: Sequence[Paged]) -> list[dict[str, Any]]:
    """The same figures, in seconds."""
    return [asdict(one) | {"median": median(one.seconds)} for one in found]

"""What the tests of the page that settles an operation share: its address, its form, its tables."""

import re
from typing import Any

from django.test import Client
from django.urls import reverse

from runs.models import AgentRun, ToolObservation, Transition

WORD = {"outcome": "committed", "evidence": "seen in the ledger, entry 5"}
Source, Verdict = ToolObservation.Source, ToolObservation.Verdict


def page_of(run: AgentRun) -> str:
    return reverse("admin:runs_tooloperation_change", args=[run.operations.get().pk])


def question_of(run: AgentRun) -> str:
    return reverse("admin:runs_tooloperation_resolve", args=[run.operations.get().pk])


def opened(client: Client, run: AgentRun) -> str:
    answer = client.get(question_of(run))
    assert answer.status_code == 200
    return answer.content.decode()


def mark_in(page: str) -> str:
    found = re.search(r'name="mark" value="([\d.]+)"', page)
    assert found is not None
    return found[1]


def send(client: Client, run: AgentRun, page: str | None = None, **said: str) -> Any:
    """Fill in and send the form of a page, by default of one opened just now."""
    mark = mark_in(page if page is not None else opened(client, run))
    return client.post(question_of(run), {**WORD, **said, "mark": mark})


def observe(run: AgentRun, **what: Any) -> ToolObservation:
    """Write down one more thing learned about the run's operation."""
    given = {"source": Source.LOOK_UP, "verdict": Verdict.NOT_FOUND, "attempt": 1, "fence_token": 1}
    return ToolObservation.objects.create(
        run=run, operation=run.operations.get(), **{**given, **what}
    )


def standing(run: AgentRun) -> tuple[Any, ...]:
    run.refresh_from_db()
    return (
        run.version,
        run.fence_token,
        run.operations.get().status,
        Transition.objects.count(),
        ToolObservation.objects.count(),
    )


def rows_of(page: str) -> list[dict[str, str]]:
    """Every table row of a page as its labelled cells."""
    rows = re.findall(r"<tr>(<td.*?)</tr>", page, re.DOTALL)
    cell = re.compile(r'<td data-label="([^"]*)"><div class="ao-cell">(.*?)</div></td>', re.DOTALL)
    return [dict(cell.findall(row)) for row in rows]


def row_of(page: str, label: str, value: str) -> dict[str, str]:
    (found,) = [row for row in rows_of(page) if row.get(label) == value]
    return found

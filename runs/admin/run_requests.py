"""What a person may ask of a run: to be cancelled, or to go on after a pause.

Guarantees: a request asks on a page of its own and is sent as a POST, by those who may change
runs; it is the command that the API calls.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse

from runs.access import RUNS_WRITE, Actor
from runs.admin.readonly import Action
from runs.admin.show import record_url, visible
from runs.commands import cancel_run, resume_run
from runs.errors import RunsError
from runs.models import NAME, AgentRun
from runs.state import FINAL_STATES


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One kind of request, and what its page says."""

    name: str
    title: str
    explanation: str
    keep: str
    done: str
    harmful: bool
    command: Callable[..., AgentRun]
    # Why it cannot be asked now; empty if it can.
    hindrance: Callable[[AgentRun], str]


def _why_not_cancel(run: AgentRun) -> str:
    if run.cancel_requested_at is not None:
        return "This was already asked for."
    return "The run has ended; there is nothing to cancel." if run.state in FINAL_STATES else ""


def _why_not_resume(run: AgentRun) -> str:
    if run.state in FINAL_STATES:
        return "The run has ended."
    return "The run is not paused." if run.paused_at is None else ""


CANCEL: Final = RunRequest(
    name="cancel",
    title="Cancel run",
    explanation=(
        "The run ends at its next commit. A call that is under way, or whose effect is unknown, "
        "is settled first. Effects that are already committed stay as they are. This cannot be "
        "taken back."
    ),
    keep="Keep it running",
    done=(
        "Asked for. The run is cancelled at its next commit; a call that is under way or unknown "
        "is settled first."
    ),
    harmful=True,
    command=cancel_run,
    hindrance=_why_not_cancel,
)
RESUME: Final = RunRequest(
    name="resume",
    title="Resume run",
    explanation="The run opens its next step again, from what is recorded.",
    keep="Leave it paused",
    done="The run goes on.",
    harmful=False,
    command=resume_run,
    hindrance=_why_not_resume,
)
REQUESTS: Final = (CANCEL, RESUME)


def may_request(request: HttpRequest) -> bool:
    """Whether this user may ask anything of runs."""
    return request.user.has_perm("runs.change_agentrun")


def offered(request: HttpRequest, run: AgentRun) -> Action | None:
    """The button on the run's page: to go on where it is paused, else to end it."""
    if not may_request(request):
        return None
    for asked in (RESUME, CANCEL):
        if not asked.hindrance(run):
            url = reverse(f"admin:runs_agentrun_{asked.name}", args=[run.pk])
            return Action(url, f"{asked.title}…", harmful=asked.harmful)
    return None


def page_of(asked: RunRequest, run: AgentRun) -> dict[str, Any]:
    """What the page that asks for confirmation shows."""
    return {"asked": asked, "hindrance": asked.hindrance(run)}


def carry_out(request: HttpRequest, run: AgentRun, asked: RunRequest) -> HttpResponseRedirect:
    """Call the command and go back to the run's page, which says what came of it."""
    assert isinstance(request.user, User)
    actor = Actor(
        name=request.user.get_username()[:NAME],
        scopes=frozenset({RUNS_WRITE}),
        user_id=request.user.pk,
    )
    try:
        asked.command(actor=actor, run_id=run.pk)
    except RunsError as error:
        messages.error(request, visible(str(error)))
    else:
        messages.success(request, asked.done)
    return HttpResponseRedirect(record_url(AgentRun, run.pk))

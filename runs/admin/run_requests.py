"""What a person may ask of a run, each on a page of its own.

Guarantees: a request is offered only where the run's state allows it, asks before anything is
done, and is sent as a POST by those who may change runs; it is the command that the API calls.
What was typed is kept when it does not fit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse

from runs import commands
from runs.access import RUNS_WRITE, Actor
from runs.admin.readonly import Action
from runs.admin.show import record_url, visible
from runs.errors import InvalidInput, OverBudget, RunsError
from runs.models import NAME, AgentRun
from runs.state import FINAL_STATES, RunState

Given = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Field:
    """What is typed with a request. `kind` is that of an HTML input."""

    name: str
    label: str
    kind: str = "text"
    help: str = ""
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One kind of request, and what its page says."""

    name: str
    title: str
    explanation: str
    keep: str
    done: str
    harmful: bool
    # Calls the command with what was typed.
    command: Callable[[Actor, UUID, Given], AgentRun]
    # Why it cannot be asked now; empty if it can.
    hindrance: Callable[[AgentRun], str]
    fields: tuple[Field, ...] = ()


def may_request(request: HttpRequest) -> bool:
    """Whether this user may ask anything of runs."""
    return request.user.has_perm("runs.change_agentrun")


def offered(request: HttpRequest, run: AgentRun) -> list[Action]:
    """The buttons on the run's page."""
    if not may_request(request):
        return []
    return [
        Action(
            reverse(f"admin:runs_agentrun_{asked.name}", args=[run.pk]),
            f"{asked.title}…",
            harmful=asked.harmful,
        )
        for asked in REQUESTS
        if not asked.hindrance(run)
    ]


def page_of(
    asked: RunRequest, run: AgentRun, *, given: Given | None = None, problem: str = ""
) -> dict[str, Any]:
    """What the page that asks for confirmation shows."""
    typed = given or {}
    fields = [vars(field) | {"value": typed.get(field.name, "")} for field in asked.fields]
    return {
        "asked": asked,
        "hindrance": asked.hindrance(run) if given is None else "",
        "fields": fields,
        "problem": visible(problem),
    }


def carry_out(
    request: HttpRequest, run: AgentRun, asked: RunRequest
) -> HttpResponseRedirect | dict[str, Any]:
    """Call the command and go to the run's page, which says what came of it.

    What the page shows instead, where something that was typed does not fit.
    """
    assert isinstance(request.user, User)
    actor = Actor(
        name=request.user.get_username()[:NAME],
        scopes=frozenset({RUNS_WRITE}),
        user_id=request.user.pk,
    )
    given = {field.name: request.POST.get(field.name, "").strip() for field in asked.fields}
    try:
        asked_of = asked.command(actor, run.pk, given)
    except (InvalidInput, OverBudget) as error:
        return page_of(asked, run, given=given, problem=str(error))
    except RunsError as error:
        messages.error(request, visible(str(error)))
        return HttpResponseRedirect(record_url(AgentRun, run.pk))
    messages.success(request, asked.done)
    return HttpResponseRedirect(record_url(AgentRun, asked_of.pk))


# -- What each calls ---------------------------------------------------------------


def _cancel(actor: Actor, run_id: UUID, given: Given) -> AgentRun:
    return commands.cancel_run(
        actor=actor, run_id=run_id, compensate=bool(given["compensate"]), reason=given["reason"]
    )


def _pause(actor: Actor, run_id: UUID, given: Given) -> AgentRun:
    return commands.pause_run(actor=actor, run_id=run_id, reason=given["reason"])


def _resume(actor: Actor, run_id: UUID, given: Given) -> AgentRun:
    more = commands.Raise(
        steps=_number(given, "add_steps"),
        tokens=_number(given, "add_tokens"),
        cost_usd=given["add_cost_usd"] or "0",
        seconds=_number(given, "add_seconds"),
    )
    return commands.resume_run(actor=actor, run_id=run_id, add=more)


def _retry(actor: Actor, run_id: UUID, given: Given) -> AgentRun:
    return commands.retry_run(actor=actor, run_id=run_id)


def _compensate(actor: Actor, run_id: UUID, given: Given) -> AgentRun:
    return commands.compensate_run(actor=actor, run_id=run_id, reason=given["reason"])


def _fork(actor: Actor, run_id: UUID, given: Given) -> AgentRun:
    step = _number(given, "step")
    return commands.fork_run(
        actor=actor, run_id=run_id, step=step, objective=given["objective"] or None
    ).run


def _number(given: Given, name: str) -> int:
    """A whole number; nothing typed is 0. Raises InvalidInput."""
    text = given[name] or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInput(field=name, value=ascii(text[:80]), fix="Type a whole number.")
    return int(text)


# -- Where each is possible --------------------------------------------------------


def _why_not_cancel(run: AgentRun) -> str:
    if run.state in FINAL_STATES:
        return "The run has ended; there is nothing to cancel."
    if run.compensating_since is not None:
        return "The run is correcting what it did, and ends then."
    return "This was already asked for." if run.cancel_requested_at is not None else ""


def _why_not_pause(run: AgentRun) -> str:
    if run.state in FINAL_STATES:
        return "The run has ended."
    return "The run is paused already." if run.paused_at is not None else ""


def _why_not_resume(run: AgentRun) -> str:
    if run.state in FINAL_STATES:
        return "The run has ended."
    return "The run is not paused." if run.paused_at is None else ""


def _why_not_retry(run: AgentRun) -> str:
    if run.state != RunState.FAILED:
        return "The run did not fail."
    return "What it did was corrected." if run.compensation_ending else ""


def _why_not_compensate(run: AgentRun) -> str:
    if run.state in FINAL_STATES:
        return ""
    if run.compensating_since is not None or run.cancel_compensates:
        return "This was already asked for."
    return ""


def _why_not_fork(run: AgentRun) -> str:
    return ""


REASON: Final = Field(name="reason", label="Why", help="It stands in the run's timeline.")

PAUSE: Final = RunRequest(
    name="pause",
    title="Pause run",
    explanation=(
        "No further step is opened and nothing new is sent until somebody resumes the run. What "
        "may be under way is still settled."
    ),
    keep="Let it run",
    done="Asked for. No further step is opened until the run is resumed.",
    harmful=False,
    command=_pause,
    hindrance=_why_not_pause,
    fields=(REASON,),
)
RESUME: Final = RunRequest(
    name="resume",
    title="Resume run",
    explanation="The run goes on from what is recorded. Give it more to spend if it needs that.",
    keep="Leave it paused",
    done="The run goes on.",
    harmful=False,
    command=_resume,
    hindrance=_why_not_resume,
    fields=(
        Field(name="add_steps", label="Steps more", kind="number"),
        Field(name="add_tokens", label="Tokens more", kind="number"),
        Field(name="add_cost_usd", label="US dollars more", help='Such as "1.50".'),
        Field(name="add_seconds", label="Seconds more", kind="number"),
    ),
)
RETRY: Final = RunRequest(
    name="retry",
    title="Retry run",
    explanation=(
        "The run goes on from its last checkpoint: its newest steps, which committed nothing, are "
        "done again. Committed effects stay as they are."
    ),
    keep="Leave it failed",
    done="The run goes on.",
    harmful=False,
    command=_retry,
    hindrance=_why_not_retry,
)
FORK: Final = RunRequest(
    name="fork",
    title="Fork run",
    explanation=(
        "Another run of this agent starts from what this one had reached by the end of a step. It "
        "knows what was done until then and does not do it again. Signatures are not inherited."
    ),
    keep="Do not fork it",
    done="This is the fork.",
    harmful=False,
    command=_fork,
    hindrance=_why_not_fork,
    fields=(
        Field(name="step", label="Step", kind="number", help="0 is the beginning.", required=True),
        Field(name="objective", label="Objective", help="As it is here, if left empty."),
    ),
)
CANCEL: Final = RunRequest(
    name="cancel",
    title="Cancel run",
    explanation=(
        "The run ends at its next commit. A call that is under way, or whose effect is unknown, "
        "is settled first. Effects that are already committed stay as they are unless you have "
        "them corrected. This cannot be taken back."
    ),
    keep="Keep it running",
    done=(
        "Asked for. The run is cancelled at its next commit; a call that is under way or unknown "
        "is settled first."
    ),
    harmful=True,
    command=_cancel,
    hindrance=_why_not_cancel,
    fields=(
        Field(name="compensate", label="Correct what it did before it ends", kind="checkbox"),
        REASON,
    ),
)
COMPENSATE: Final = RunRequest(
    name="compensate",
    title="Compensate run",
    explanation=(
        "The run's committed effects are corrected, the newest first, each by an operation of its "
        "own under the same rules as any other. A run that has not ended ends with that."
    ),
    keep="Leave what it did",
    done="Asked for. What the run did is corrected, the newest effect first.",
    harmful=True,
    command=_compensate,
    hindrance=_why_not_compensate,
    fields=(REASON,),
)
REQUESTS: Final = (RESUME, PAUSE, RETRY, FORK, COMPENSATE, CANCEL)

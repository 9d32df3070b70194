"""The REST front door of what is asked of one run.

Guarantees: each view parses, calls one command, and presents the run as it stands then: 202,
because a worker honours most requests later; 409 where the run's state allows none.

Does not word errors: what is raised here becomes a problem document in `agentops`.
"""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from pydantic import BaseModel, ConfigDict, Field
from rest_framework.request import Request
from rest_framework.response import Response

from runs import commands, shapes
from runs.access import RUNS_WRITE
from runs.models import NAME, TEXT_LIMIT
from runs.presenting import present_run, present_signal
from runs.queries import get_run
from runs.requests import read_body
from runs.rest import IDEMPOTENCY_KEY, KernelView, answer, answer_started, problems

_RUN_ID = OpenApiParameter("run_id", OpenApiTypes.UUID, OpenApiParameter.PATH)
_ASKED = {202: shapes.Run, **problems(400, 404, 409, 413, 415)}


class AskRun(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class WithReason(AskRun):
    """Why it is asked for; stands in the run's timeline."""

    reason: str = Field(default="", max_length=TEXT_LIMIT, description="stands in the timeline")


class CancelRun(WithReason):
    """The body of `POST runs/{id}/cancel/`."""

    compensate: bool = Field(default=False, description="correct what it did before it ends")


class ResumeRun(AskRun):
    """The body of `POST runs/{id}/resume/`: what the run may spend beside its budget."""

    add_steps: int = 0
    add_tokens: int = 0
    add_cost_usd: str = Field(default="0", description="US dollars, as a decimal text")
    add_seconds: int = Field(default=0, description="from now, if its time is over already")


class ForkRun(AskRun):
    """The body of `POST runs/{id}/fork/`. What is left out is as in the origin."""

    step: int = Field(description="a closed step; 0 is the beginning")
    objective: str | None = None
    input: Any = None
    labels: dict[str, str] | None = None


class SendSignal(AskRun):
    """The body of `POST runs/{id}/signals/`."""

    name: str = Field(max_length=NAME, description="what a `WaitFor` of the run names")
    event_id: str = Field(max_length=255, description="names the event: sent again, it counts once")
    payload: Any = Field(default=None, description="any JSON value")


class CancelView(KernelView):
    """Ask a run to end."""

    scopes = {"POST": RUNS_WRITE}

    @extend_schema(
        operation_id="runs_cancel", parameters=[_RUN_ID], request=CancelRun, responses=_ASKED
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Ask for a run to be cancelled; an effect under way or unknown is settled first."""
        asked = read_body(request.data, CancelRun)
        run = commands.cancel_run(
            actor=self.actor(),
            run_id=get_run(run_id).id,
            compensate=asked.compensate,
            reason=asked.reason,
        )
        return answer(present_run(run), status=202)


class PauseView(KernelView):
    """Ask a run to stand still."""

    scopes = {"POST": RUNS_WRITE}

    @extend_schema(
        operation_id="runs_pause", parameters=[_RUN_ID], request=WithReason, responses=_ASKED
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Ask for no further step and no new call; what may be under way is still settled."""
        asked = read_body(request.data, WithReason)
        run = commands.pause_run(actor=self.actor(), run_id=get_run(run_id).id, reason=asked.reason)
        return answer(present_run(run), status=202)


class ResumeView(KernelView):
    """Let a run go on."""

    scopes = {"POST": RUNS_WRITE}

    @extend_schema(
        operation_id="runs_resume", parameters=[_RUN_ID], request=ResumeRun, responses=_ASKED
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Let a paused run go on from what is recorded; 409 where it is not paused."""
        asked = read_body(request.data, ResumeRun)
        more = commands.Raise(
            steps=asked.add_steps,
            tokens=asked.add_tokens,
            cost_usd=asked.add_cost_usd,
            seconds=asked.add_seconds,
        )
        run = commands.resume_run(actor=self.actor(), run_id=get_run(run_id).id, add=more)
        return answer(present_run(run), status=202)


class RetryView(KernelView):
    """Let a failed run go on."""

    scopes = {"POST": RUNS_WRITE}

    @extend_schema(
        operation_id="runs_retry", parameters=[_RUN_ID], request=AskRun, responses=_ASKED
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Let a failed run go on from its last checkpoint; committed effects stay as they are."""
        read_body(request.data, AskRun)
        run = commands.retry_run(actor=self.actor(), run_id=get_run(run_id).id)
        return answer(present_run(run), status=202)


class CompensateView(KernelView):
    """Have what a run did corrected."""

    scopes = {"POST": RUNS_WRITE}

    @extend_schema(
        operation_id="runs_compensate", parameters=[_RUN_ID], request=WithReason, responses=_ASKED
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Have a run's committed effects corrected, newest first; an active run ends with that."""
        asked = read_body(request.data, WithReason)
        run = commands.compensate_run(
            actor=self.actor(), run_id=get_run(run_id).id, reason=asked.reason
        )
        return answer(present_run(run), status=202)


class ForkView(KernelView):
    """Start another run from what one had reached."""

    scopes = {"POST": RUNS_WRITE}

    @extend_schema(
        operation_id="runs_fork",
        parameters=[_RUN_ID, IDEMPOTENCY_KEY],
        request=ForkRun,
        responses={
            201: shapes.Run,
            200: OpenApiResponse(shapes.Run, description="The run that this key had started."),
            **problems(400, 404, 409, 413, 415, 422),
        },
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Start a run that inherits a run's steps up to one, without doing them again."""
        asked = read_body(request.data, ForkRun)
        started = commands.fork_run(
            actor=self.actor(),
            run_id=get_run(run_id).id,
            step=asked.step,
            objective=asked.objective,
            input=asked.input,
            labels=asked.labels,
            idempotency_key=request.headers.get("Idempotency-Key"),
        )
        return answer_started(request, started.run, replayed=started.replayed)


class SignalsView(KernelView):
    """Tell a run something."""

    scopes = {"POST": RUNS_WRITE}

    @extend_schema(
        operation_id="runs_signal",
        parameters=[_RUN_ID],
        request=SendSignal,
        responses={202: shapes.Signal, **problems(400, 404, 409, 413, 415, 422)},
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Send a run a signal. It is kept until the run waits for it; one id counts once."""
        asked = read_body(request.data, SendSignal)
        sent = commands.signal_run(
            actor=self.actor(),
            run_id=get_run(run_id).id,
            name=asked.name,
            event_id=asked.event_id,
            payload=asked.payload,
        )
        said = answer(present_signal(sent.signal, agent=sent.run.agent), status=202)
        if sent.replayed:
            said["Idempotent-Replayed"] = "true"
        return said

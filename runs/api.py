"""The REST front door of runs, operations, agents and tools.

Guarantees: each view parses, calls one command or query, and presents; each names
the scope of each of its methods in `scopes`, without which nobody is let in.

Does not word errors: what is raised here becomes a problem document in `agentops`.
"""

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from runs import commands, shapes
from runs.access import OPERATIONS_RESOLVE, READ, RUNS_WRITE
from runs.agents import all_agents
from runs.paging import PAGE_SIZE, read_newest_first
from runs.presenting import (
    present_agent,
    present_operation,
    present_run,
    present_runs,
    present_tool,
)
from runs.queries import find_runs, get_operation, get_run, parse_label
from runs.requests import Query, Resolve, StartRun, read_body
from runs.resolution import resolve_operation
from runs.rest import (
    CURSOR,
    IDEMPOTENCY_KEY,
    SIZE,
    KernelView,
    answer,
    answer_started,
    page_links,
    problems,
)
from runs.state import RunState
from runs.timeline import PAGE_SIZE as TIMELINE_PAGE_SIZE
from runs.timeline import read_timeline
from tools.registry import all_tools

_RUN_ID = OpenApiParameter("run_id", OpenApiTypes.UUID, OpenApiParameter.PATH)
_OPERATION_ID = OpenApiParameter("operation_id", str, OpenApiParameter.PATH)


class RunsView(KernelView):
    """Start a run, or look for some."""

    scopes = {"GET": READ, "POST": RUNS_WRITE}

    @extend_schema(
        operation_id="runs_list",
        parameters=[
            OpenApiParameter("state", str, enum=[str(state) for state in RunState]),
            OpenApiParameter("agent", str),
            OpenApiParameter("label", str, many=True, description="`name:value`; all must match"),
            OpenApiParameter("uncertain", bool),
            OpenApiParameter("parent", OpenApiTypes.UUID, description="the run that started them"),
            CURSOR,
            SIZE,
        ],
        responses={200: shapes.RunPage, **problems(400)},
    )
    def get(self, request: Request) -> Response:
        """List runs, newest first."""
        query = Query(request, known=("state", "agent", "label", "uncertain", "parent"))
        found = find_runs(
            state=query.text("state"),
            agent=query.text("agent"),
            labels=dict(parse_label(one, separator=":") for one in query.texts("label")),
            uncertain=query.truth("uncertain"),
            parent=query.text("parent"),
        )
        page = read_newest_first(
            found, cursor=query.text("cursor"), size=query.page_size(PAGE_SIZE)
        )
        return answer(shapes.RunPage(**page_links(request, page), results=present_runs(page.items)))

    @extend_schema(
        operation_id="runs_start",
        parameters=[IDEMPOTENCY_KEY],
        request=StartRun,
        responses={
            201: shapes.Run,
            200: OpenApiResponse(shapes.Run, description="The run that this key had started."),
            **problems(400, 409, 413, 415, 422),
        },
    )
    def post(self, request: Request) -> Response:
        """Start a run. With an `Idempotency-Key`, at most one however often it is sent."""
        asked = read_body(request.data, StartRun)
        started = commands.start_run(
            actor=self.actor(),
            agent=asked.agent,
            objective=asked.objective,
            input=asked.input,
            labels=asked.labels,
            priority=asked.priority,
            idempotency_key=request.headers.get("Idempotency-Key"),
        )
        return answer_started(request, started.run, replayed=started.replayed)


class RunView(KernelView):
    """One run."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="runs_retrieve",
        parameters=[_RUN_ID],
        responses={200: shapes.Run, **problems(404)},
    )
    def get(self, request: Request, run_id: str) -> Response:
        """Show a run."""
        Query(request, known=())
        return answer(present_run(get_run(run_id)))


class TimelineView(KernelView):
    """What happened to one run, and why."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="runs_timeline",
        parameters=[_RUN_ID, CURSOR, SIZE],
        responses={200: shapes.TimelinePage, **problems(400, 404)},
    )
    def get(self, request: Request, run_id: str) -> Response:
        """Show a run's incident timeline, oldest first."""
        query = Query(request, known=())
        run = get_run(run_id)
        page = read_timeline(
            run_id=run.id,
            cursor=query.text("cursor"),
            size=query.page_size(TIMELINE_PAGE_SIZE),
        )
        return answer(shapes.TimelinePage(**page_links(request, page), results=list(page.items)))


class ResolveView(KernelView):
    """Settle an unknown operation by a person's word."""

    scopes = {"POST": OPERATIONS_RESOLVE}

    @extend_schema(
        operation_id="operations_resolve",
        parameters=[_OPERATION_ID],
        request=Resolve,
        responses={200: shapes.Operation, **problems(400, 404, 409, 413, 415)},
    )
    def post(self, request: Request, operation_id: str) -> Response:
        """Say what became of an operation that is unknown; it is journaled with your evidence."""
        said = read_body(request.data, Resolve)
        resolve_operation(
            actor=self.actor(),
            operation_id=operation_id,
            outcome=said.outcome,
            evidence=said.evidence,
            external_ref=said.external_ref or "",
            result=said.result,
        )
        return answer(present_operation(get_operation(operation_id)))


class AgentsView(KernelView):
    """What may be started."""

    scopes = {"GET": READ}

    @extend_schema(operation_id="agents_list", responses={200: shapes.AgentPage, **problems()})
    def get(self, request: Request) -> Response:
        """List the registered agents."""
        Query(request, known=())
        results = [present_agent(agent) for agent in all_agents()]
        return answer(shapes.AgentPage(next=None, previous=None, results=results))


class ToolsView(KernelView):
    """What agents may call."""

    scopes = {"GET": READ}

    @extend_schema(operation_id="tools_list", responses={200: shapes.ToolPage, **problems()})
    def get(self, request: Request) -> Response:
        """List the registered tools."""
        Query(request, known=())
        results = [present_tool(spec) for spec in all_tools()]
        return answer(shapes.ToolPage(next=None, previous=None, results=results))

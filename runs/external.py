"""Runs whose agent runs elsewhere: their decisions are the calls that came through the gateway.

Guarantees: a request is decided about once, by the commit that takes it up; those of one run in
the order in which they came, and those that wait together are decided about together. Where
nothing is asked for the run waits between two steps, and no longer than its agent's `idle`.

Does not accept requests (`gateway`), and asks nobody, so opening a step and deciding it are one
commit.
"""

from datetime import datetime, timedelta

from runs.agents import Agent
from runs.called import Called, find_called
from runs.deciders import External
from runs.decisions import MOST_CALLS, CallTools, Decision, Fail, Finish, ToolCall
from runs.models import ControlRequest, GatewayCall, ToolOperation
from runs.state import OperationStatus
from runs.work import Work
from tools.redaction import bound_text


def is_external(agent: Agent | None) -> bool:
    """Whether what the agent does is decided elsewhere."""
    return agent is not None and isinstance(agent.decider, External)


def has_next(work: Work, agent: Agent) -> bool:
    """Whether there is something to decide. False when the run was given back until there is."""
    called = _load(work)
    if called.waiting or called.ends_run:
        if called.ends_run and work.operations:
            called.last = work.operations[-1]
        return True
    left = _seconds_left(work, agent, called)
    if left <= 0:
        # Whether it was heard of since is asked of the rows, not of memory.
        work.commit()
        work.called = None
        called = _load(work)
        if called.waiting:
            return True
        called.heard_at = _heard_of(work, called)
        left = _seconds_left(work, agent, called)
    if left <= 0:
        return True
    work.release(wake_in=left)
    return False


def decide_called(work: Work, agent: Agent) -> tuple[Decision, tuple[str, ...], list[int]]:
    """What is done next, with the ids of its operations, and the requests that asked for it."""
    called = _load(work)
    if not called.waiting:
        return _end_by_itself(work, agent, called), (), []
    taken = called.take(MOST_CALLS)
    ids = [one.pk for one in taken]
    if taken[0].kind == GatewayCall.Kind.FINISH:
        return _read_finish(taken[0]), (), ids
    calls = [ToolCall(one.tool, **(one.arguments or {})).because(one.rationale) for one in taken]
    return CallTools(*calls), tuple(str(one.operation_id) for one in taken), ids


def _load(work: Work) -> Called:
    if work.called is None:
        # What calls came to is certain before anything that may fail.
        work.commit_outcomes()
        work.called = find_called(work.run_id)
    return work.called


def _seconds_left(work: Work, agent: Agent, called: Called) -> float:
    idle = agent.decider.idle if isinstance(agent.decider, External) else timedelta(0)
    until = (called.heard_at or work.created_at) + idle
    return (until - work.now).total_seconds()


def _heard_of(work: Work, called: Called) -> datetime | None:
    """When the run was asked for something last, by its agent or by whoever let it go on."""
    going_on = (ControlRequest.Kind.RESUME, ControlRequest.Kind.RETRY)
    asked = ControlRequest.objects.filter(run_id=work.run_id, kind__in=going_on)
    dates = [called.heard_at, asked.order_by("-at").values_list("at", flat=True).first()]
    return max((one for one in dates if one is not None), default=None)


def _end_by_itself(work: Work, agent: Agent, called: Called) -> Decision:
    if not called.ends_run:
        assert isinstance(agent.decider, External), "asked for such agents alone"
        return Fail(f"its agent has asked for nothing for {agent.decider.idle}")
    operation = called.last or (
        ToolOperation.objects.filter(run_id=work.run_id)
        .order_by("-step_number", "-ordinal", "-revision")
        .first()
    )
    if operation is None:
        return Fail("it was started for a call that is not there any more")
    if operation.status != OperationStatus.COMMITTED:
        return Fail(bound_text(f"{operation.tool} ended as {operation.status}: {operation.error}"))
    return Finish(operation.result)


def _read_finish(request: GatewayCall) -> Decision:
    said = request.arguments or {}
    return Fail(said["error"]) if said.get("error") else Finish(said.get("result"))

"""Rows as the JSON that callers read, without what they must not.

Guarantees: values whose names a tool declared sensitive are hidden wherever they
are shown: in arguments, results and observations of its operations, and in the
input, result and error of the runs that use it. A page costs no query per row.

Does not recognise secrets that nobody declared.
"""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Count

from runs import shapes
from runs.agents import Agent
from runs.budgets import limits_of
from runs.deciders import Llm, name_of
from runs.models import (
    AgentRun,
    GatewayCall,
    Incident,
    NeverSent,
    Signal,
    ToolObservation,
    ToolOperation,
    Wait,
)
from runs.resuming import budget_of
from runs.sensitive import names_of_operation, names_of_runs, without_secrets
from runs.state import OperationStatus, RunState
from tools import Approve, EffectType
from tools.errors import UnknownTool
from tools.redaction import redact, scrub
from tools.registry import get_tool
from tools.spec import ToolSpec


def present_run(run: AgentRun) -> shapes.Run:
    """One run."""
    return present_runs([run])[0]


def present_runs(runs: Sequence[AgentRun]) -> list[shapes.Run]:
    """Runs in the given order."""
    hidden = names_of_runs({run.id: run.agent for run in runs})
    children, waits = _count_children(runs), _find_waits(runs)
    return [
        _present_run(
            run,
            hidden=hidden[run.id],
            children=children.get(run.id, 0),
            wait=waits.get(run.id),
        )
        for run in runs
    ]


def present_spent(run: AgentRun) -> shapes.Spent:
    """What the run has spent, with what is reserved."""
    return shapes.Spent(
        steps=run.spent_steps,
        tokens=run.spent_tokens,
        cost_usd=f"{run.spent_cost_usd.normalize():f}",
    )


def present_limits(run: AgentRun) -> shapes.Limits:
    """What the run may spend: its own limits, or else those of its agent."""
    limits = limits_of(own=run.budget, budget=budget_of(run.agent), created_at=run.created_at)
    cost = limits.cost_usd
    return shapes.Limits(
        steps=limits.steps,
        tokens=limits.tokens,
        cost_usd=None if cost is None else f"{cost:f}",
        until=limits.until,
    )


def present_signal(signal: Signal, *, agent: str) -> shapes.Signal:
    """One signal to a run of this agent."""
    hidden = names_of_runs({signal.run_id: agent})[signal.run_id]
    return shapes.Signal(
        run=signal.run_id,
        name=signal.name,
        event_id=signal.event_id,
        payload=redact(signal.payload, hidden),
        sent_by=signal.sent_by,
        sent_at=signal.sent_at,
        delivered_at=signal.delivered_at,
        delivered_step=signal.delivered_step,
    )


def present_operation(operation: ToolOperation) -> shapes.Operation:
    """One operation, its observations and incidents oldest first; prefetch both for a page."""
    hidden = names_of_operation(operation)
    seen = sorted(operation.observations.all(), key=lambda one: one.pk)
    incidents = sorted(operation.incidents.all(), key=lambda one: one.pk)
    return shapes.Operation(
        operation_id=operation.id,
        run=operation.run_id,
        step_number=operation.step_number,
        tool=operation.tool,
        tool_version=operation.tool_version or None,
        effect_type=EffectType(operation.effect_type) if operation.effect_type else None,
        status=OperationStatus(operation.status),
        arguments=redact(operation.arguments, hidden),
        idempotency_key=operation.idempotency_key,
        intent=operation.intent or None,
        provider=operation.provider or None,
        account=operation.account or None,
        fence_token=operation.fence_token,
        attempts=operation.attempts,
        external_ref=operation.external_ref or None,
        result=redact(operation.result, hidden),
        error=scrub(operation.error, operation.arguments, hidden) or None,
        never_sent=operation.never_sent or None,
        revision=operation.revision,
        policy=operation.policy_outcome or None,
        policy_rule=scrub(operation.policy_rule, operation.arguments, hidden) or None,
        approval=operation.approval_id,
        unknown_since=operation.unknown_since,
        next_reconcile_at=operation.next_reconcile_at,
        may_be_in_flight=operation.may_be_in_flight,
        settles_at=operation.settles_at,
        repeats=operation.repeats_id,
        compensates=operation.compensates_id,
        compensated_by=[one.id for one in operation.compensated_by.all()],
        observations=[_present_observation(one, operation, hidden=hidden) for one in seen],
        incidents=[shapes.Incident(**_facts_of_incident(one, operation)) for one in incidents],
    )


def present_call(call: GatewayCall) -> shapes.Operation:
    """A call that its run has not taken up, as the operation that it will be; or would have been,
    where the run has ended."""
    is_dropped = call.taken_at is not None
    try:
        spec: ToolSpec | None = get_tool(call.tool)
    except UnknownTool:
        spec = None
    assert call.run_id is not None, "a call that was not taken up has its run"
    return shapes.Operation(
        operation_id=str(call.operation_id),
        run=call.run_id,
        step_number=0,
        tool=call.tool,
        tool_version=spec.version if spec else None,
        effect_type=spec.effect_type if spec else None,
        status=OperationStatus.CANCELLED if is_dropped else OperationStatus.PREPARED,
        arguments=redact(call.arguments or {}, spec.sensitive if spec else ()),
        idempotency_key=str(call.operation_id),
        intent=None,
        provider=spec.provider_name if spec else None,
        account=spec.account if spec else None,
        fence_token=0,
        attempts=0,
        external_ref=None,
        result=None,
        error="its run ended before it was taken up" if is_dropped else None,
        never_sent=NeverSent.CANCELLED if is_dropped else None,
        revision=0,
        policy=None,
        policy_rule=None,
        approval=None,
        unknown_since=None,
        next_reconcile_at=None,
        may_be_in_flight=False,
        settles_at=None,
        repeats=None,
        compensates=None,
        compensated_by=[],
        observations=[],
        incidents=[],
    )


def present_incident(incident: Incident) -> shapes.IncidentOfRun:
    """One incident with where it happened; join its operation for a page."""
    operation = incident.operation
    return shapes.IncidentOfRun(
        **_facts_of_incident(incident, operation),
        run=incident.run_id,
        operation_id=incident.operation_id,
        tool=operation.tool,
    )


def present_agent(agent: Agent) -> shapes.Agent:
    """A registered agent."""
    duration = agent.budget.duration
    return shapes.Agent(
        name=agent.name,
        version=agent.version,
        decider=agent.decider_name,
        fallback=_fallback_of(agent),
        tools=list(agent.tools),
        output=agent.output.model_json_schema() if agent.output is not None else None,
        budget=shapes.Budget(
            steps=agent.budget.steps,
            tokens=agent.budget.tokens,
            cost_usd=agent.budget.cost_usd,
            duration_seconds=duration.total_seconds() if duration is not None else None,
        ),
        on_version_change=agent.on_version_change,
        on_failure=agent.on_failure,
        concurrency=agent.concurrency,
        priority=agent.priority,
    )


def present_tool(spec: ToolSpec) -> shapes.Tool:
    """A registered tool."""
    retention = spec.idempotency_retention
    return shapes.Tool(
        name=spec.name,
        description=spec.description,
        version=spec.version,
        effect_type=spec.effect_type,
        provider=spec.provider_name or None,
        account=spec.account or None,
        idempotency_support=spec.idempotency_support,
        idempotency_scope=spec.idempotency_scope or None,
        idempotency_retention_seconds=retention.total_seconds() if retention else None,
        settle_window_seconds=spec.settle_window.total_seconds(),
        intent_key=list(spec.intent_key),
        intent_scope=spec.intent_scope,
        on_repeated_intent=spec.on_repeated_intent,
        repeatable=spec.repeatable,
        parallel=spec.parallel or spec.effect_type is EffectType.READ,
        can_reconcile=spec.reconcile_handler is not None,
        can_compensate=spec.compensation_handler is not None,
        can_audit=spec.audit_handler is not None,
        timeout_seconds=spec.timeout_policy.seconds,
        retry=shapes.Retry(
            max_attempts=spec.retry_policy.max_attempts,
            first_delay=spec.retry_policy.first_delay,
            max_delay=spec.retry_policy.max_delay,
        ),
        approval=_present_approve(spec.approval_policy),
        sensitive=list(spec.sensitive),
        arguments=spec.arguments_schema(),
        arguments_version=spec.arguments_version,
    )


def _present_run(
    run: AgentRun, *, hidden: Collection[str], children: int, wait: Wait | None
) -> shapes.Run:
    def said(text: str) -> str:
        return scrub(text, {"input": run.input}, hidden)

    lease = None
    if run.lease_expires_at is not None:
        lease = shapes.Lease(owner=run.lease_owner, expires_at=run.lease_expires_at)
    waiting_for = compensating = cancel_requested = None
    if wait is not None:
        waiting_for = shapes.WaitingFor(
            kind=Wait.Kind(wait.kind), name=said(wait.name) or None, until=wait.until
        )
    if run.compensating_since is not None and run.finished_at is None:
        compensating = shapes.Compensating(
            since=run.compensating_since, reason=said(run.compensation_reason)
        )
    if run.cancel_requested_at is not None:
        cancel_requested = shapes.CancelRequest(
            at=run.cancel_requested_at,
            by=run.cancel_requested_by,
            compensate=run.cancel_compensates,
        )
    return shapes.Run(
        id=run.id,
        agent=run.agent,
        agent_version=run.agent_version,
        state=RunState(run.state),
        objective=said(run.objective),
        input=redact(run.input, hidden),
        result=redact(run.result, hidden),
        error=said(run.error) or None,
        labels=run.labels,
        fence_token=run.fence_token,
        version=run.version,
        lease=lease,
        wake_at=run.wake_at,
        paused_at=run.paused_at,
        pause_reason=said(run.pause_reason) or None,
        cancel_requested=cancel_requested,
        waiting_for=waiting_for,
        compensating=compensating,
        uncertain=run.uncertain,
        priority=run.priority,
        parent=run.parent_id,
        depth=run.depth,
        children=children,
        forked_from=run.forked_from_id,
        forked_at_step=run.forked_at_step,
        spent=present_spent(run),
        budget=present_limits(run),
        created_at=run.created_at,
        updated_at=run.updated_at,
        finished_at=run.finished_at,
        created_by=run.created_by,
    )


def _count_children(runs: Sequence[AgentRun]) -> dict[UUID, int]:
    started = AgentRun.objects.filter(parent__in=[run.id for run in runs]).order_by()
    counts = started.values_list("parent_id").annotate(Count("pk"))
    return {parent: number for parent, number in counts if parent is not None}


def _find_waits(runs: Sequence[AgentRun]) -> dict[UUID, Wait]:
    """By run: what it waits for. No query where none does."""
    waiting = [run.id for run in runs if run.state == RunState.WAITING]
    if not waiting:
        return {}
    open_waits = Wait.objects.filter(run_id__in=waiting, ended_at__isnull=True)
    return {wait.run_id: wait for wait in open_waits}


def _present_observation(
    seen: ToolObservation, operation: ToolOperation, *, hidden: Collection[str]
) -> shapes.Observation:
    return shapes.Observation(
        at=seen.observed_at,
        source=ToolObservation.Source(seen.source),
        verdict=ToolObservation.Verdict(seen.verdict),
        stage=seen.stage or None,
        window=shapes.SendWindow.model_validate(seen.window) if seen.window else None,
        detail=scrub(seen.detail, operation.arguments, hidden),
        result=redact(seen.result, hidden),
        external_ref=seen.external_ref or None,
        also=seen.also or [],
        attempt=seen.attempt,
        fence_token=seen.fence_token,
    )


def _facts_of_incident(incident: Incident, operation: ToolOperation) -> dict[str, Any]:
    return {
        "kind": Incident.Kind(incident.kind),
        "external_ref": incident.external_ref or None,
        "detail": without_secrets(incident.detail, operation),
        "at": incident.at,
    }


def _fallback_of(agent: Agent) -> list[str]:
    if not isinstance(agent.decider, Llm):
        return []
    return [name_of(named) for named in agent.decider.options.fallback]


def _present_approve(approve: Approve | None) -> shapes.Approve | None:
    if approve is None:
        return None
    return shapes.Approve(
        when=approve.when,
        groups=list(approve.groups),
        quorum=approve.quorum,
        approve_by_seconds=approve.approve_by.total_seconds(),
        execute_by_seconds=approve.execute_by.total_seconds(),
    )

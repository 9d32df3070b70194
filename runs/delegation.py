"""Delegation: a goal that another agent's run reaches for this one.

A delegation is an operation whose effect is a run of ours: the statement that records it as
begun inserts that run, under the operation's id, so a crash never starts two. The operation is
RUNNING while the child goes on, and ends with it: COMMITTED with the child's result, or
REJECTED with its error.

Guarantees: results, failures and cancellation travel; a child whose end was not told to its
parent is found by a sweep; a parent ends only when its children have; how deep and how wide a
tree grows is bounded, and what a child may spend is reserved by its parent. The same delegation,
made again by a fork or after it came to nothing, repeats no effect of the child that it had.

Does not pause children with their parent.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Final
from uuid import UUID, uuid5

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from runs import budgets
from runs.access import RUNS_WRITE, Actor
from runs.agents import Agent, get_agent
from runs.asking import find_corrector, note_request, reopen
from runs.built_in import (
    DELEGATE,
    IS_DELEGATION,
    build_in,
    is_built_in,
    is_delegation,
    is_run_correction,
)
from runs.control import cancel_run
from runs.decisions import Delegate
from runs.descent import has_effects
from runs.errors import UnknownAgent, UnknownRun, WrongState
from runs.handing_over import hand_over
from runs.history import follow_origins
from runs.models import TEXT_LIMIT, AgentRun, ControlRequest, NeverSent, ToolOperation
from runs.outcomes import settle
from runs.planning import name_operation, refuse_operation
from runs.sensitive import names_of_agent
from runs.state import FINAL_STATES, OperationEvent, OperationStatus, RunEvent, RunState
from runs.waiting import begin_waiting_for_children
from runs.wake import hint, make_due
from runs.work import Work
from tools.canonical import digest
from tools.redaction import bound_text
from tools.tracing import current_traceparent

DEEPEST: Final = 5
MOST_CHILDREN: Final = 50
MOST_IN_TREE: Final = 500
BATCH: Final = 500


def plan_children(work: Work, delegations: Sequence[Delegate]) -> list[ToolOperation]:
    """Plan one operation for each delegation; one that cannot be is refused, and says why."""
    begun = ToolOperation.objects.filter(IS_DELEGATION, run_id=work.run_id)
    before = begun.exclude(status=OperationStatus.CANCELLED).count()
    tree = AgentRun.objects.filter(root=work.root or work.run_id)
    in_tree = tree[:MOST_IN_TREE].count()
    planned = []
    for ordinal, asked in enumerate(delegations):
        operation = name_operation(work, tool=DELEGATE, ordinal=ordinal, revision=0)
        operation.arguments = {
            "agent": asked.agent,
            "objective": asked.objective,
            "input": {} if asked.input is None else asked.input,
        }
        if asked.hand_over:
            operation.arguments["hand_over"] = True
        operation.arguments_digest = digest(operation.arguments)
        build_in(operation)
        operation.sensitive = sorted(names_of_agent(asked.agent))
        refusal = _find_refusal(work, asked, children=before + ordinal, in_tree=in_tree + ordinal)
        if refusal:
            refuse_operation(
                work, operation, refusal, rule="invalid delegation", why=NeverSent.INVALID
            )
        else:
            operation.policy_outcome = "allow"
            work.move_operation(operation, OperationEvent.INTEND)
        planned.append(operation)
    return planned


def start_children(work: Work, agent: Agent | None) -> bool:
    """Start what the step delegates, and wait for it. False when the run was given back.

    True where what it waits for is begun by looking at it, once the intent is durable.
    """
    begun = [one for one in work.operations if one.status == OperationStatus.PREPARED]
    left = _find_share(work, agent, among=len(begun))
    children: dict[ToolOperation, AgentRun] = {}
    for operation in begun:
        if is_delegation(operation):
            children[operation] = child = _build_child(work, operation, left)
            work.change.new_children.append(child)
            operation.external_ref = str(child.id)
            work.spend(work.spent.plus(budgets.granted(child.budget)))
        else:
            operation.external_ref = operation.arguments["run"]
        operation.attempts = 1
        operation.fence_token = work.lease.fence_token
        operation.first_sent_at = operation.last_sent_at = operation.settles_at = work.now
        work.move_operation(operation, OperationEvent.SEND)
    if to := [child for one, child in children.items() if one.arguments.get("hand_over")]:
        assert agent is not None, "it was asked for what it delegates"
        hand_over(work, agent, begun=children, to=to)
    begin_waiting_for_children(work)
    if any(is_run_correction(operation) for operation in begun):
        work.commit()
        return True
    work.release(wake_in=None)
    for operation in begun:
        # The sweep finds them anyway.
        hint(UUID(operation.external_ref))
    return False


def settle_children(work: Work) -> bool:
    """Plan the ends of delegations whose runs have ended. True when all of them have."""
    begun = _open(work)
    children = AgentRun.objects.in_bulk([UUID(one.external_ref) for one in begun])
    for operation in begun:
        child = children.get(UUID(operation.external_ref))
        if is_run_correction(operation) and child is not None and _reopen(work, operation, child):
            continue
        if child is None or child.state in FINAL_STATES:
            _settle(work, operation, child)
    return not _open(work)


def cancel_children(work: Work) -> None:
    """Ask the runs that the step waits for to be cancelled, as this one is to be."""
    actor = _act_for(work)
    for operation in _open(work):
        # One that has ended, or corrects what it did, comes to an end by itself.
        with suppress(WrongState, UnknownRun):
            cancel_run(
                actor=actor,
                run_id=UUID(operation.external_ref),
                compensate=work.cancel_compensates,
            )


def tell_parent(child_id: UUID, parent_id: UUID) -> None:
    """Make the parent of a run that has ended due, once."""
    with transaction.atomic():
        # The parent before the child, as everybody locks them.
        AgentRun.objects.select_for_update(no_key=True).filter(id=parent_id).first()
        untold = AgentRun.objects.filter(
            id=child_id, finished_at__isnull=False, parent_told_at__isnull=True
        )
        if untold.update(parent_told_at=Now()):
            make_due(parent_id)


def tell_untold_once() -> int:
    """Tell the parents of runs whose worker died between their end and the telling."""
    untold = AgentRun.objects.filter(
        parent__isnull=False, finished_at__isnull=False, parent_told_at__isnull=True
    ).order_by("finished_at")
    found = list(untold.values_list("id", "parent_id")[:BATCH])
    for child_id, parent_id in found:
        if parent_id is not None:
            tell_parent(child_id, parent_id)
    return len(found)


def _find_refusal(work: Work, asked: Delegate, *, children: int, in_tree: int) -> str:
    try:
        get_agent(asked.agent)
    except UnknownAgent as error:
        return str(error)
    if work.depth >= DEEPEST:
        return f"delegation: {DEEPEST} levels of runs are the most; this run is on the last one"
    if children >= MOST_CHILDREN:
        return f"delegation: a run starts at most {MOST_CHILDREN} others"
    if in_tree >= MOST_IN_TREE:
        return f"delegation: one run and all below it are at most {MOST_IN_TREE} runs"
    return ""


def _name_lineage(work: Work, operation: ToolOperation) -> UUID:
    """Names the runs that have carried out this very delegation: for a fork, or again after it
    came to nothing. The second of two equal ones that both count is another one."""
    digest_of = operation.arguments_digest
    alike = ToolOperation.objects.filter(IS_DELEGATION, arguments_digest=digest_of).exclude(
        status__in=(OperationStatus.REJECTED, OperationStatus.CANCELLED)
    )
    counts = Q(run_id=work.run_id, step_number__lt=work.step_number)
    for origin in follow_origins(work.origin):
        counts |= Q(run_id=origin.run_id, step_number__lte=origin.step)
    children = AgentRun.objects.filter(parent_operation__in=alike.filter(counts).values("pk"))
    taken = set(children.values_list("lineage", flat=True))
    taken |= {child.lineage for child in work.change.new_children}
    names = (uuid5(work.lineage or work.run_id, f"{digest_of} {n}") for n in count())
    return next(name for name in names if name not in taken)


def _find_share(work: Work, agent: Agent | None, *, among: int) -> budgets.Limits:
    """What each of the step's children may spend of what the run has left."""
    if agent is None:
        return budgets.Limits()
    limits = budgets.limits_of(own=work.budget, budget=agent.budget, created_at=work.created_at)
    return budgets.share(limits, work.spent, among=among)


def _build_child(work: Work, operation: ToolOperation, left: budgets.Limits) -> AgentRun:
    asked = operation.arguments
    other = get_agent(asked["agent"])
    request = {**asked, "labels": work.labels}
    return AgentRun(
        id=uuid7(),
        agent=other.name,
        agent_version=other.version,
        objective=asked["objective"],
        input=asked["input"],
        labels=work.labels,
        created_by=work.requester,
        created_by_user_id=work.requester_user_id,
        request_digest=digest(request),
        priority=work.priority,
        parent_operation=operation.id,
        depth=work.depth + 1,
        root=work.root or work.run_id,
        lineage=_name_lineage(work, operation),
        budget=budgets.grant(left, other.budget, now=work.now),
        # Below what is open here, where spans are recorded.
        traceparent=current_traceparent() or work.traceparent,
    )


def _open(work: Work) -> list[ToolOperation]:
    """The step's delegations that are under way."""
    return [
        one for one in work.operations if is_built_in(one) and one.status == OperationStatus.RUNNING
    ]


def _reopen(work: Work, operation: ToolOperation, child: AgentRun) -> bool:
    """Have a child run corrected that has ended and left effects; True if it goes on for that.

    Asked at every look, so a worker that dies in between leaves it to the next one; once for
    each operation, however often the child was corrected before.
    """
    if child.state not in FINAL_STATES:
        return True
    if not _is_due_for_correction(operation, child):
        return False
    ending = RunState.FAILED if child.state == RunState.FAILED else RunState.CANCELLED
    with transaction.atomic():
        locked = AgentRun.objects.select_for_update(no_key=True).get(id=child.pk)
        if locked.state not in FINAL_STATES:
            return True
        if not _is_due_for_correction(operation, locked):
            return False
        actor = _act_for(work)
        note_request(locked, ControlRequest.Kind.COMPENSATE, actor=actor)
        reopen(
            locked,
            RunEvent.COMPENSATE,
            actor=actor,
            reason=f"run {work.run_id}, which started it, is compensated",
            compensating_since=Now(),
            compensation_reason=f"run {work.run_id} is compensated",
            compensation_ending=ending,
        )
    return True


def _act_for(work: Work) -> Actor:
    """The run, as who asks its children; for the person who asked it, who may not sign there."""
    asked = find_corrector(work.run_id)
    return Actor(
        name=f"run {work.run_id}",
        scopes=frozenset({RUNS_WRITE}),
        user_id=asked[1] if asked is not None else None,
    )


def _is_due_for_correction(operation: ToolOperation, child: AgentRun) -> bool:
    assert operation.first_sent_at is not None, "its intent is durable"
    since = child.compensating_since
    return (since is None or since < operation.first_sent_at) and has_effects(str(child.pk))


def _settle(work: Work, operation: ToolOperation, child: AgentRun | None) -> None:
    settle(work, operation)
    if child is None:
        return _reject(work, operation, "its run was purged")
    if is_run_correction(operation):
        if has_effects(str(child.pk)):
            return _reject(work, operation, f"run {child.pk} has effects that are not corrected")
        return work.move_operation(operation, OperationEvent.COMMIT, f"run {child.pk} is corrected")
    actual = budgets.Spent(child.spent_steps, child.spent_tokens, child.spent_cost_usd)
    work.spend(work.spent.minus(budgets.granted(child.budget)).plus(actual))
    match RunState(child.state):
        case RunState.COMPLETED:
            operation.result = child.result
            work.move_operation(operation, OperationEvent.COMMIT, f"run {child.pk} is COMPLETED")
        case state:
            _reject(work, operation, f"run {child.pk} is {state}: {child.error}".rstrip(": "))


def _reject(work: Work, operation: ToolOperation, why: str) -> None:
    operation.error = bound_text(why, TEXT_LIMIT)
    operation.holds_intent = None
    work.move_operation(operation, OperationEvent.REJECT, operation.error)

"""Adoption: another version of its agent goes on with a run.

A run is pinned to the version of its agent that it was started with. A worker that serves
another one adopts it where the next decision is due, unless that is left to others
(`pinning.py`): nothing that was decided is decided again, and open calls of a recorded decision
are carried out as recorded. The agent's `on_version_change`, as the adopting worker has it, says
what else happens:

- `next_step`: nothing;
- `rebuild_context`: a handoff is built from the rows: an llm is shown that and no events from
  before, and any other decider is given it beside its window;
- `reapprove`: a signature that is awaited, or was given and not used yet, has no force any more and
  is asked for anew, at once;
- `finish_on_old`: it is never adopted.

Guarantees: every adoption is an edge of the run that names both versions and the rule, in one
commit with what follows from it. While two versions are served beside each other a run moves
from the older to the newer one at most once.

Does not look at what is stored under a tool's earlier arguments: `argument_versions.py` does.
"""

from collections.abc import Collection
from typing import Final, assert_never

from django.db import transaction
from django.db.models.functions import Now

from runs import handoffs
from runs.agents import Agent, all_agents
from runs.argument_versions import is_outdated
from runs.evidence import find_sender_left
from runs.gate import ask, asked_before
from runs.judging import NEEDED, adopt, judge
from runs.models import AgentRun, Approval, Handoff, ToolOperation
from runs.outcomes import move_run
from runs.pinning import look_around
from runs.renewal import renew
from runs.serving import knows_tool
from runs.state import UNCERTAIN_STATES, OperationStatus, RunEvent, RunState
from runs.work import Work
from tools.registry import all_tools, get_tool

STANDING: Final = (RunState.WAITING_FOR_APPROVAL, *UNCERTAIN_STATES)


def adopt_or_leave(work: Work, agent: Agent) -> bool:
    """Whether this worker decides what is next; False when the run was given back for others."""
    if work.agent_version == agent.version:
        return True
    if not _may_adopt(work, agent):
        work.release(wake_in=0)
        return False
    match agent.on_version_change:
        case "rebuild_context":
            # It is built from rows: what is pending has to be among them.
            work.commit()
            handoffs.rebuild(work, agent, reason=Handoff.Reason.VERSION)
        case "next_step" | "reapprove":
            pass
        case "finish_on_old":
            raise AssertionError("never adopted")
        case _ as never:
            assert_never(never)
    _adopt(work, agent)
    return True


def sign_anew(work: Work, agent: Agent) -> bool:
    """Plan that signatures which another version asked for are asked for anew, if the rule says so.

    The run is adopted with that: the call itself stands as it was decided. False where it would be
    adopted with open calls whose tool is not known here: what is not sent is left to others.
    """
    if work.agent_version == agent.version or agent.on_version_change != "reapprove":
        return True
    if work.saga is not None or not (signed := _find_unused(work)) or not _may_adopt(work, agent):
        return True
    if not all(knows_tool(one) for one in work.operations if one.settled_at is None):
        return False
    why = f"another version of its agent goes on: {_name_change(work, agent)}"
    for operation, approval in signed:
        _ask_anew(work, operation, approval, why=why)
    if work.state not in STANDING:
        if all(one.status != OperationStatus.AWAITING_APPROVAL for one in work.operations):
            # Nothing is held: it is adopted with the next decision.
            return True
        move_run(work, RunEvent.HOLD, why)
    _adopt(work, agent)
    return True


def make_signatures_due(*, left: Collection[str]) -> int:
    """Have runs looked at whose signatures this process would ask for anew; returns how many.

    They have no date: nobody comes to them before somebody signs, which would be in vain. `left`
    are the versions that are left to others.
    """
    mine = {a.name: a.version for a in all_agents() if a.on_version_change == "reapprove"}
    if not mine:
        return 0
    known = [spec.name for spec in all_tools()]
    held = ToolOperation.objects.filter(status=OperationStatus.AWAITING_APPROVAL, tool__in=known)
    waiting = AgentRun.objects.filter(
        id__in=held.values("run_id"),
        agent__in=mine,
        wake_at__isnull=True,
        compensating_since__isnull=True,
        state=RunState.WAITING_FOR_APPROVAL,
    ).exclude(agent_version__in={*mine.values(), *left})
    # Nobody is waited for while several are locked: who is locked is being moved already.
    free = waiting.order_by("id").select_for_update(no_key=True, skip_locked=True)
    with transaction.atomic():
        due = AgentRun.objects.filter(id__in=list(free.values_list("id", flat=True)))
        return due.update(wake_at=Now(), sweep_at=Now())


def _may_adopt(work: Work, agent: Agent) -> bool:
    return (
        agent.on_version_change != "finish_on_old" and work.agent_version not in look_around().left
    )


def _find_unused(work: Work) -> list[tuple[ToolOperation, Approval]]:
    """The calls that wait for a signature, or to be sent with one, with the request for it."""
    held = {
        operation.approval_id: operation
        for operation in work.operations
        if operation.status in (OperationStatus.AWAITING_APPROVAL, OperationStatus.PREPARED)
        and operation.approval_id is not None
    }
    if not held:
        return []
    unused = Approval.objects.filter(
        id__in=held, status__in=(Approval.Status.PENDING, Approval.Status.APPROVED)
    )
    return [(held[approval.id], approval) for approval in unused.order_by("requested_at", "id")]


def _ask_anew(work: Work, operation: ToolOperation, approval: Approval, *, why: str) -> None:
    spec = get_tool(operation.tool)
    if is_outdated(operation, spec) and find_sender_left(operation) is None:
        return renew(work, operation, spec)
    policy = judge(work, operation, spec)
    if policy.outcome == "refuse":
        # Whoever signs it all the same: it is refused before it is sent.
        return None
    if operation.repeats_id is None:
        adopt(operation, policy)
    operation.policy_outcome = NEEDED
    operation.policy_version = policy.version
    approve = policy.approve or asked_before(approval)
    return ask(work, operation, spec, approve=approve, why=why, instead_of=approval)


def _adopt(work: Work, agent: Agent) -> None:
    work.move(RunEvent.MIGRATE, f"{_name_change(work, agent)}, {agent.on_version_change}")
    work.agent_version = work.change.run["agent_version"] = agent.version


def _name_change(work: Work, agent: Agent) -> str:
    return f"{work.agent_version or 'none'} → {agent.version}"

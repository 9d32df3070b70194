"""Renewal: what becomes of a call that was never sent, once its tool takes other arguments.

    a worker that may send them as they are lives   left to it
    one that may be sending it is not known to end  left alone until it has ended
    the tool's migrate_arguments says how           a new revision, judged and signed like any
    nobody says how, and they still fit             the same arguments, held for a person
    nobody says how, and they do not fit            held: a person proposes others, or denies it

Guarantees: arguments that were stored for one schema are never sent under another without the
tool's own word or a person's. What is sent is always a new revision, under an id and a key of
its own, of which the one it replaces tells; signing what does not fit sends nothing, and asks
again.

Does not touch what may have been sent (`reconciliation.py`).
"""

from runs.argument_versions import find_misfit, is_outdated, migrate
from runs.gate import ask, asked_before, find_approval, is_held_anyhow, put_off, put_off_for_sender
from runs.judging import NEEDED
from runs.models import Approval, ToolOperation
from runs.outcomes import move_run, park
from runs.planning import put_in_place
from runs.serving import UNSERVED_SECONDS, may_others_send
from runs.state import RunEvent, RunState
from runs.work import Work
from tools import Approve
from tools.errors import OutdatedArguments, UnknownTool
from tools.registry import get_tool
from tools.spec import ToolSpec


def leave_or_renew(work: Work, operation: ToolOperation, spec: ToolSpec) -> None:
    """Plan what becomes of a prepared operation whose arguments are outdated."""
    if may_others_send(operation, agent=work.agent, pinned=work.agent_version):
        why = "a worker whose tool takes its arguments as they are may send it"
        return put_off(work, operation, why, seconds=UNSERVED_SECONDS)
    if not put_off_for_sender(work, operation):
        renew(work, operation, spec)
    return None


def renew(work: Work, operation: ToolOperation, spec: ToolSpec) -> None:
    """Plan what takes the place of an operation whose arguments are outdated, in a run that this
    process's version of its agent goes on with."""
    approval = find_approval(operation)
    try:
        arguments = migrate(operation, spec)
    except OutdatedArguments as error:
        if misfit := find_misfit(operation, spec):
            return _hold(work, operation, spec, approval, why=f"{error}; {misfit}")
        put_in_place(
            work,
            operation,
            arguments=operation.arguments,
            ended="whether its arguments still mean the same is a person's to say",
            why=str(error),
            instead_of=approval,
            is_held=True,
        )
    else:
        put_in_place(
            work,
            operation,
            arguments=arguments,
            ended=f"its arguments were migrated from version {operation.arguments_version} of them",
            why=f"migrated from operation {operation.id}",
            instead_of=approval,
            is_held=is_held_anyhow(operation),
        )


def find_unsendable(operation: ToolOperation) -> str:
    """Why a signature on the operation would send nothing, so that a person gives something else;
    empty if it may be sent, as it stands or migrated."""
    try:
        spec = get_tool(operation.tool)
        if not is_outdated(operation, spec):
            return ""
        run = operation.run
        if may_others_send(operation, agent=run.agent, pinned=run.agent_version):
            return ""
        migrate(operation, spec)
    except UnknownTool:
        return ""
    except OutdatedArguments as error:
        misfit = find_misfit(operation, spec)
        return f"{error}; {misfit}" if misfit else ""
    return ""


def _hold(
    work: Work, operation: ToolOperation, spec: ToolSpec, approval: Approval | None, *, why: str
) -> None:
    """Ask for what a person alone can give: arguments that fit, or a denial."""
    asked = asked_before(approval) if approval is not None else spec.approval_policy
    operation.policy_outcome = NEEDED
    operation.policy_rule = "its tool takes other arguments by now: propose those, or deny it"
    ask(work, operation, spec, approve=asked or Approve(), why=why, instead_of=approval)
    if work.state is not RunState.WAITING_FOR_APPROVAL:
        move_run(work, RunEvent.HOLD, why)
    park(work, operation, seconds=None)

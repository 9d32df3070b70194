"""What the tests of approvals share: people, and held operations with a request on them.

The request is written here, not by the engine, so that each test has exactly the one it needs.
"""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from approvals.commands import decide
from approvals.models import Verdict
from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.access import Actor, operator
from runs.engine import advance
from runs.models import AgentRun, Approval, Notice, ToolOperation
from tests.database.kit import change, past_triggers
from tests.database.stories import SECRET
from tools import Approve, Call, EffectType, tool
from tools.registry import all_tools

Start = Callable[..., AgentRun]
ARGUMENTS = {"order": "17", "amount": 900, "card": SECRET, "note": ""}
PRINT = "v1:" + "a" * 64

_numbers = count(1)


def person(name: str | None = None, *groups: str, may_decide: bool = True, **columns: Any) -> User:
    """A new user who may decide, in these groups."""
    user = User.objects.create(username=name or f"person{next(_numbers)}", **columns)
    if may_decide:
        user.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    for group in groups:
        user.groups.add(Group.objects.get_or_create(name=group)[0])
    return user


def held_run(start: Start, **declared: Any) -> AgentRun:
    """A run that waits for a signature on `wire(order, amount, card)`, of which card is secret."""
    if "wire" not in {spec.name for spec in all_tools()}:
        declare_wire(**declared)

    def wire_once(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("wire", **ARGUMENTS))
        return Finish({"status": context.last.status, "error": context.last.error})

    run = start(decider=wire_once, tools=("wire",))
    advance(run_id=run.id, owner="worker 1")
    run.refresh_from_db()
    assert run.state == "WAITING_FOR_APPROVAL"
    forget_requests(run)
    return run


def declare_wire(**declared: Any) -> None:
    """The tool `wire`, which needs a signature."""
    declared.setdefault("approval_policy", Approve())

    @tool(effect_type=EffectType.IRREVERSIBLE, sensitive=("card",), **declared)
    def wire(call: Call, order: str, amount: int, card: str = "", note: str = "") -> dict[str, Any]:
        """Wire the money."""
        return {"wired": amount}


def ask(run: AgentRun, **columns: Any) -> Approval:
    """The one pending request on the run's operation, with these columns."""
    operation = run.operations.latest("created_at")
    Approval.objects.filter(operation=operation, status="pending").update(status="superseded")
    asked: dict[str, Any] = {
        "fingerprint": PRINT,
        "covered": {"arguments": operation.arguments},
        "rule": "amount > 500",
        "policy_version": "p1",
        "requester": "shopper",
        "approve_by": Now() + timedelta(hours=24),
    }
    approval = Approval.objects.create(
        id=uuid7(), operation=operation, run=run, **(asked | columns)
    )
    ToolOperation.objects.filter(id=operation.id).update(approval=approval)
    approval.refresh_from_db()
    return approval


def asked(start: Start, **columns: Any) -> Approval:
    """A request on a new run."""
    return ask(held_run(start), **columns)


def say(approval: Approval, user: User | None, verdict: str = "approve", **given: Any) -> Approval:
    """One word by Python; a denial has a reason if none is given."""
    given.setdefault("reason", "" if verdict == "approve" else "not this one")
    given.setdefault("fingerprint", approval.fingerprint)
    return decide(
        actor=given.pop("actor", None) or acting(user),
        user=user,
        approval_id=approval.id,
        verdict=verdict,  # type: ignore[arg-type]
        **given,
    )


def acting(user: User | None) -> Actor:
    """The actor of somebody who is signed in, with every scope."""
    name = user.get_username() if user is not None else "nobody"
    return Actor(name=name, scopes=operator().scopes, user_id=user.pk if user else None)


def forget_requests(run: AgentRun) -> None:
    """Take back what the engine asked of people, so that a test can ask itself."""
    run.operations.update(approval=None)
    Notice.objects.filter(run=run).delete()
    with past_triggers():
        change("DELETE FROM runs_approval WHERE run_id = %s", run.id)


def let_run_out(approval: Approval) -> None:
    """Let the end of a request come."""
    with past_triggers():
        change(
            "UPDATE runs_approval SET approve_by = statement_timestamp() - interval '1 s'"
            " WHERE id = %s",
            approval.id,
        )
    approval.refresh_from_db()


def written(approval: Approval) -> list[Any]:
    """Everything that a word may write."""
    run = AgentRun.objects.values("state", "version", "wake_at", "sweep_at")
    return [
        list(Approval.objects.filter(run=approval.run_id).order_by("id").values()),
        list(Verdict.objects.filter(run=approval.run_id).order_by("id").values()),
        list(Notice.objects.filter(run=approval.run_id).order_by("id").values()),
        run.get(id=approval.run_id),
    ]

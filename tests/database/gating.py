"""What the tests of the gate share: a held payment, and people who sign."""

from collections.abc import Callable
from typing import Any

from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.models import AgentRun, Approval, ToolOperation
from tests.database.approving import person, say
from tests.database.kit import Script, change, drive, past_triggers, scripted_tool
from tools import Approve

Start = Callable[..., AgentRun]

PAID = {"id": "re_1"}


def pay_and_tell(amount: int = 700) -> Callable[[Context], Decision]:
    """One payment, and a result that says what became of every call."""

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("pay", amount=amount))
        return Finish(
            [
                [seen.status, seen.never_sent, seen.error, seen.arguments]
                for seen in context.observations
            ]
        )

    return decide


def held(start: Start, *answers: Any, **declared: Any) -> tuple[AgentRun, Script]:
    """A run that waits for a signature on `pay(amount=700)`, and what the tool was called with."""
    declared.setdefault("approval_policy", Approve())
    script = scripted_tool(*(answers or (PAID,)), **declared)
    run = start(decider=pay_and_tell(), tools=("pay",))
    drive(run)
    assert run.state == "WAITING_FOR_APPROVAL"
    return run, script


def request_of(run: AgentRun) -> Approval:
    """The newest request of the run."""
    return Approval.objects.filter(run=run).latest("requested_at")


def requests_of(run: AgentRun) -> list[tuple[str, bool]]:
    """(status, spent) of every request, oldest first."""
    rows = Approval.objects.filter(run=run).order_by("requested_at")
    return [(row.status, row.spent_at is not None) for row in rows]


def sign(run: AgentRun) -> Approval:
    """Somebody new signs what the run waits for."""
    return say(request_of(run), person())


def run_out_unused(approval: Approval) -> None:
    """Let the time pass in which what was signed had to be sent."""
    tamper(
        "UPDATE runs_approval SET execute_by = statement_timestamp() - interval '1 s'"
        " WHERE id = %s",
        approval.id,
    )


def operations_of(run: AgentRun) -> list[ToolOperation]:
    return list(run.operations.order_by("step_number", "ordinal", "revision"))


def tamper(sql: str, *values: Any) -> None:
    """Change a row past every guard, as somebody with the tables in their hands may."""
    with past_triggers():
        change(sql, *values)

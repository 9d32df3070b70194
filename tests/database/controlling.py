"""What the tests of requests share: runs in every state that a request may meet."""

from typing import Any

from django.db.models.functions import Now

from runs import CallTools, Context, Decision, Fail, Finish, ToolCall
from runs.access import Actor
from runs.models import AgentRun, ControlRequest
from runs.state import RunState
from tests.database.gating import Start, tamper
from tests.database.kit import Script, drive, scripted_tool
from tools import EffectType, Rejected

ANN = Actor(name="ann", scopes=frozenset({"runs:write"}), user_id=None)
READER = Actor(name="reader", scopes=frozenset({"read"}))


def finish(context: Context) -> Decision:
    return Finish("done")


def completed(start: Start, *, writes: bool = True) -> AgentRun:
    """A run that paid (or only looked) in step 1, and completed in step 2."""
    effect = EffectType.IDEMPOTENT_WRITE if writes else EffectType.READ
    scripted_tool({"id": "re_1"}, effect=effect)
    run = start(decider=_pay_then(Finish("done")), tools=("pay",))
    drive(run)
    assert run.state == RunState.COMPLETED
    return run


def failed(start: Start, *answers: Any) -> tuple[AgentRun, Script]:
    """A run that paid in step 1, was refused in step 2, and failed in step 3."""
    scripted_tool({"id": "re_1"}, name="pay")
    script = scripted_tool(*(answers or (Rejected("no"),)), name="ship")
    run = start(decider=pay_and_ship, tools=("pay", "ship"))
    drive(run)
    assert (run.state, run.step_number) == (RunState.FAILED, 3)
    return run, script


def pay_and_ship(context: Context) -> Decision:
    """By what was learned alone, so that it goes on wherever it is asked again."""
    done = {seen.tool for seen in context.observations if seen.committed}
    if refused := [seen for seen in context.observations if not seen.committed]:
        return Fail(f"refused: {refused[-1].error}")
    if "pay" not in done:
        return CallTools(ToolCall("pay"))
    return Finish("shipped") if "ship" in done else CallTools(ToolCall("ship"))


def waiting(start: Start) -> AgentRun:
    """A run that waits, as far as its rows say: for what, is not looked at."""
    run = start(decider=finish)
    tamper("UPDATE runs_agentrun SET state = 'WAITING', wake_at = NULL WHERE id = %s", run.id)
    run.refresh_from_db()
    return run


def pause_in(run: AgentRun, reason: str = "it insists") -> None:
    """As the engine pauses a run, which nobody asked for."""
    AgentRun.objects.filter(id=run.id).update(paused_at=Now(), pause_reason=reason)
    run.refresh_from_db()


def asked_of(run: AgentRun) -> list[tuple[str, str]]:
    """(kind, by) of every request to the run, oldest first."""
    rows = ControlRequest.objects.filter(run=run).order_by("id")
    return list(rows.values_list("kind", "by"))


def newest_edge(run: AgentRun) -> tuple[str, str, str, str]:
    """(event, from, to, actor) of the newest edge of the run itself."""
    edge = run.journal.filter(operation=None).latest("version", "id")
    return edge.event, edge.from_state, edge.to_state, edge.actor


def as_it_stands(run: AgentRun) -> dict[str, Any]:
    """The row, for comparing."""
    return AgentRun.objects.values().get(id=run.id)


def _pay_then(end: Decision) -> Any:
    def decide(context: Context) -> Decision:
        return CallTools(ToolCall("pay")) if context.step_number == 1 else end

    return decide

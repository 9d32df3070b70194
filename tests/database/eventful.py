"""One run to which nearly everything happens, brought about by the engine itself.

Its worker dies in the middle of a payment; another one takes over, is told "not found", and sends
it again. A transfer needs a signature, a person proposes other arguments, and two people sign. A
child does a part. At last the run fails, and what it did is corrected. Everything that strangers
write in it is hostile, and one argument is secret.
"""

from collections.abc import Callable
from typing import Any

from approvals.commands import propose
from runs import Agent, CallTools, Context, Decision, Delegate, Fail, Finish, ToolCall, events
from runs.agents import all_agents
from runs.commands import signal_run
from runs.models import AgentRun, Approval, LlmRequest, ToolOperation
from tests.database.admin_pages import CARD, HOSTILE
from tests.database.approving import acting, person, say
from tests.database.controlling import ANN
from tests.database.kit import (
    KEYED,
    Script,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
)
from tools import Approve, Call, EffectType, Reconciled, tool
from tools.registry import all_tools

Start = Callable[..., AgentRun]


def eventful_run(start: Start, *, asked: int = 1) -> AgentRun:
    """The whole of it; for each decision its llm is asked so often."""
    run = lost_run(start, asked=asked)
    expire_lease(run)
    for _ in range(9):
        if run.state == "WAITING_FOR_APPROVAL":
            break
        drive_when_due(run, owner="worker 2")
    change_and_sign(run)
    signal_run(actor=ANN, run_id=run.id, name="hurry", event_id="e1", payload={"note": HOSTILE})
    finish_with_children(run)
    assert run.state == "FAILED", (run.state, run.error)
    return run


def lost_run(start: Start, *, asked: int = 1) -> AgentRun:
    """As far as the death of its first worker, whose lease still lasts."""
    if "pay" not in {spec.name for spec in all_tools()}:
        define_tools()
    if "auditor" not in {agent.name for agent in all_agents()}:
        Agent(name="auditor", decider=lambda context: Finish({"note": HOSTILE}))
    run = start(
        decider=_decide(asked),
        tools=("look", "pay", "wire"),
        on_failure="compensate",
        objective=f"Settle the complaint {HOSTILE}",
        input={"card": CARD},
    )
    with dies_at(events.Name.CALL_DONE, nth=2):
        drive(run, owner="worker 1 <b>")
    run.refresh_from_db()
    return run


def change_and_sign(run: AgentRun) -> None:
    """Robin proposes a smaller transfer; two others sign it."""
    assert run.state == "WAITING_FOR_APPROVAL", (run.state, run.error)
    old = _pending(run)
    robin = person("robin", "finance")
    propose(
        actor=acting(robin),
        user=robin,
        approval_id=old.id,
        arguments={"amount": 600, "card": CARD, "note": HOSTILE},
        fingerprint=old.fingerprint,
        reason=f"two were returned {HOSTILE}",
    )
    drive(run, owner="worker 3")
    new = _pending(run)
    for name in ("sam", "kim"):
        say(new, person(name, "finance"))


def finish_with_children(run: AgentRun) -> None:
    """Drive the run and what it started until nobody is due any more."""
    for _ in range(20):
        for one in (run, *AgentRun.objects.filter(parent=run)):
            one.refresh_from_db()
            if one.wake_at is not None:
                drive_when_due(one, owner="worker 4")
    run.refresh_from_db()


def define_tools() -> None:
    """`look` answers; `pay` is corrected by `pay_back`; `wire` needs two signatures."""

    @tool(effect_type=EffectType.READ, name="look")
    def look(call: Call, order: str) -> dict[str, Any]:
        """Look."""
        return {"order": order, "note": HOSTILE}

    look_up = Script(*[Reconciled.not_found()] * 3)

    @tool(
        effect_type=EffectType.IDEMPOTENT_WRITE,
        provider=KEYED,
        name="pay",
        sensitive=("card",),
        reconcile_handler=look_up,
        compensation_handler="pay_back",
    )
    def pay(call: Call, amount: int, card: str) -> dict[str, Any]:
        """Pay."""
        return {"external_ref": "re_pay", "card": card, "note": HOSTILE}

    @tool(effect_type=EffectType.IDEMPOTENT_WRITE, provider=KEYED, name="pay_back")
    def pay_back(call: Call, amount: int) -> dict[str, Any]:
        """Take a payment back."""
        return {"external_ref": "re_back"}

    @tool(
        effect_type=EffectType.IDEMPOTENT_WRITE,
        provider=KEYED,
        name="wire",
        sensitive=("card",),
        compensation_handler="pay_back",
        approval_policy=Approve(when="amount > 500", groups=("finance",), quorum=2),
    )
    def wire(call: Call, amount: int, card: str, note: str = "") -> dict[str, Any]:
        """Wire the money."""
        return {"wired": amount, "card": card}


def _decide(asked: int) -> Callable[[Context], Decision]:
    def decide(context: Context) -> Decision:
        context.requests.extend(_said() for _ in range(asked))
        match context.position:
            case 1:
                return CallTools(ToolCall("look", order="17"))
            case 2:
                return CallTools(ToolCall("pay", amount=900, card=CARD))
            case 3:
                return CallTools(ToolCall("wire", amount=900, card=CARD, note=HOSTILE))
            case 4:
                return Delegate("auditor", objective=f"Check it {HOSTILE}")
        return Fail(f"the shop is closed {HOSTILE}")

    return decide


def _said() -> LlmRequest:
    return LlmRequest(
        purpose=LlmRequest.Purpose.DECIDE,
        outcome=LlmRequest.Outcome.USED,
        llm="openai:gpt-5-mini",
        llm_version="gpt-5-mini-2026-08-07",
        prompt_version="p1",
        said=f"I take {CARD}. {HOSTILE}",
        latency_ms=830,
    )


def _pending(run: AgentRun) -> Approval:
    return Approval.objects.get(run=run, status=Approval.Status.PENDING)


def operation(run: AgentRun, name: str) -> ToolOperation:
    """The newest operation of a tool."""
    found = ToolOperation.objects.filter(run=run, tool=name).order_by("step_number", "revision")
    return found.last() or _none(name)


def _none(name: str) -> ToolOperation:
    raise AssertionError(f"{name} was not called")

"""What the tests of audits share: the shop's refunds, at a provider in a process of its own."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from examples.shop.provider_process import ProviderProcess
from examples.shop.tools import refund_customer
from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.auditing import audit_tool
from runs.models import AgentRun, EffectAudit
from tests.database.kit import drive, operation_of, scripted_tool
from tools import Audit, Effect
from tools.registry import get_tool
from tools.spec import ToolSpec

Start = Callable[..., AgentRun]
REFUND: ToolSpec = refund_customer.spec  # type: ignore[attr-defined]
HOUR = timedelta(hours=1)


def refund_once(context: Context) -> Decision:
    if context.last is None:
        return CallTools(ToolCall("refund_customer", order_id="18", amount="12.50"))
    return Finish(str(context.last.status))


def refunded(start: Start) -> AgentRun:
    """A run whose refund was sent once, over HTTP; its answer is the provider's business."""
    run = start(decider=refund_once, tools=("refund_customer",))
    drive(run)
    return run


def audit(spec: ToolSpec = REFUND, *, ago: timedelta = HOUR, upto: timedelta | None = None) -> Any:
    """The audit of the last hour, or of [now - ago, now - upto)."""
    now = datetime.now(UTC)
    return audit_tool(spec=spec, since=now - ago, until=now - (upto or timedelta(0)))


def place_second(provider: ProviderProcess, run: AgentRun) -> str:
    """Another refund of the run's operation under a key of its own; its reference."""
    answer = provider.place_refund(operation_of(run).id, key="another")
    return str(answer.raise_for_status().json()["refund_id"])


def counts(audit: EffectAudit) -> dict[str, int]:
    """What was counted, without the zeros."""
    names = ("effects", "matched", "duplicates", "late", "unaccounted", "missing")
    return {name: number for name in names if (number := getattr(audit, name))}


def found(audit: EffectAudit) -> list[tuple[str, str]]:
    """(what, reference) of each finding."""
    return [(one["what"], one["external_ref"]) for one in audit.findings]


def made(operation_id: str | None, reference: str, *, ago: timedelta = timedelta(0)) -> Effect:
    """An effect that a provider made so long ago."""
    return Effect(operation_id, reference, at=datetime.now(UTC) - ago)


class Listing:
    """A provider that lists what the test wrote down, and notes for which spans it was asked."""

    def __init__(self, *effects: Effect) -> None:
        self.effects = list(effects)
        self.asked: list[Audit] = []
        self.error: Exception | None = None

    def __call__(self, audit: Audit) -> list[Effect]:
        self.asked.append(audit)
        if self.error is not None:
            raise self.error
        return self.effects


def paying(listing: Any, *answers: Any, name: str = "pay", **declared: Any) -> ToolSpec:
    """The scripted tool `pay`, whose provider lists its effects so."""
    scripted_tool(*(answers or (7,)), name=name, audit_handler=listing, **declared)
    return get_tool(name)

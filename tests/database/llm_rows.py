"""Runs whose llms were asked, and rows about them: what tests of their display share."""

from decimal import Decimal
from typing import Any

from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.models import (
    AgentRun,
    Handoff,
    LlmRequest,
    ModelDecision,
    ToolOperation,
)
from tests.database.gating import Start
from tests.database.kit import change, drive, scripted_tool
from tools.registry import all_tools

USED: dict[str, Any] = {
    "purpose": LlmRequest.Purpose.DECIDE,
    "outcome": LlmRequest.Outcome.USED,
    "llm": "openai:gpt-5-mini",
    "llm_version": "gpt-5-mini-2026-08-07",
    "prompt_version": "p1",
    "finish_reason": "tool_call",
    "input_tokens": 1_200,
    "cached_tokens": 800,
    "output_tokens": 80,
    "reasoning_tokens": 64,
    "cost_usd": Decimal("0.0012"),
    "latency_ms": 830,
}
BAD: dict[str, Any] = {
    **USED,
    "outcome": LlmRequest.Outcome.UNUSABLE,
    "problem": LlmRequest.Problem.REPEATED_CALL_ID,
    "detail": "call_1 twice",
    "cost_usd": None,
}
DOWN: dict[str, Any] = {
    "purpose": LlmRequest.Purpose.DECIDE,
    "outcome": LlmRequest.Outcome.FAILED,
    "llm": "anthropic:claude-sonnet-4-5",
    "prompt_version": "p1",
    "detail": "503",
    "latency_ms": 12,
}


def asking_run(start: Start, *asked: dict[str, Any], steps: int = 1) -> AgentRun:
    """A run of so many calls; for each decision these requests were made."""
    if "pay" not in {spec.name for spec in all_tools()}:
        scripted_tool(*["done"] * 20, sensitive=("card",))

    def decide(context: Context) -> Decision:
        context.requests.extend(LlmRequest(**one) for one in asked)
        if context.step_number > steps:
            return Finish()
        return CallTools(ToolCall("pay", amount=context.step_number))

    run = start(decider=decide, tools=("pay",))
    drive(run)
    assert run.state == "COMPLETED"
    return run


def handed_off(run: AgentRun, *, number: int = 1, body: Any = None, **options: Any) -> Handoff:
    return Handoff.objects.create(
        run=run,
        number=number,
        through_step=number,
        reason=Handoff.Reason.WINDOW,
        schema_version=1,
        body=body or {"schema_version": 1, "done": ["paid"]},
        **{"written_by": "openai:gpt-5-mini", "repairs": 1, "fence_token": 1, **options},
    )


def alter(row: ModelDecision | ToolOperation, **values: str) -> None:
    """Write what its trigger keeps everybody from writing."""
    table, key = row._meta.db_table, row._meta.pk.column
    columns = ", ".join(f"{name} = %s" for name in values)
    change("SET session_replication_role = replica")
    try:
        change(f"UPDATE {table} SET {columns} WHERE {key} = %s", *values.values(), row.pk)
    finally:
        change("RESET session_replication_role")

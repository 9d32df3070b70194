"""A step of a long run costs what a step of a short one does: tokens shown, and bytes written."""

from typing import Any

from runs.engine import Slice, advance
from runs.models import Handoff, LlmRequest
from tests.database.handing import Answer, Mind, Seen, right, start_llm
from tests.database.kit import ON_DATABASE, ask
from tools import Call, EffectType, tool

pytestmark = ON_DATABASE

# What is written for one step, in bytes, by the tables that hang on it.
_WRITTEN = """
    SELECT sum(pg_column_size(t.*)) FROM runs_{table} t {join} WHERE {number} BETWEEN %s AND %s
"""
_BY_STEP = ("JOIN runs_step s ON s.id = t.step_id", "s.number")
_TABLES = {
    "step": ("", "t.number"),
    "tooloperation": ("", "t.step_number"),
    "transition": ("", "t.step_number"),
    "handoff": ("", "t.through_step"),
    "toolobservation": (
        "JOIN runs_tooloperation o ON o.id = t.operation_id",
        "o.step_number",
    ),
    "modeldecision": _BY_STEP,
    "stepattempt": _BY_STEP,
    "checkpoint": _BY_STEP,
    "llmrequest": _BY_STEP,
}


def test_a_step_costs_the_same_however_long_the_run_is() -> None:
    @tool(effect_type=EffectType.READ)
    def look(call: Call, n: int) -> dict[str, Any]:
        return {"n": n, "text": "x" * 200}

    def decide(seen: Seen) -> Answer:
        step = seen.state["step"]
        return [("look", {"n": step})] if step < 1_000 else "done"

    def hand_off(seen: Seen) -> Answer:
        return right(seen, done=[f"looked at {seen.state['step'] - 1} things"])

    mind = Mind(decide, hand_off)
    run = start_llm(mind, tools=("look",), window_tokens=3_000)
    while run.state != "COMPLETED":
        advance(run_id=run.id, owner="worker 1", turn=Slice(steps=1_000, seconds=600))
        run.refresh_from_db()
        mind.seen.clear()
    assert run.step_number == 1_000
    # Each of them has a few handoffs in it.
    at_10, at_100, at_1000 = [(10, 49), (100, 139), (960, 999)]
    tokens = [_tokens(run.id, *steps) for steps in (at_10, at_100, at_1000)]
    written = [_written(*steps) for steps in (at_10, at_100, at_1000)]
    assert max(tokens) < 1.05 * min(tokens), tokens
    assert max(written) < 1.05 * min(written), written
    assert Handoff.objects.filter(run=run).count() > 40


def _tokens(run_id: Any, first: int, last: int) -> int:
    """What was shown at the most, of the context alone."""
    asked = LlmRequest.objects.filter(run_id=run_id, step__number__range=(first, last))
    return max(shown["estimated_tokens"] for shown in asked.values_list("shown", flat=True))


def _written(first: int, last: int) -> float:
    """The bytes that a step wrote, on average."""
    sizes = [
        ask(_WRITTEN.format(table=table, join=join, number=number), first, last) or 0
        for table, (join, number) in _TABLES.items()
    ]
    return float(sum(sizes)) / (last - first + 1)

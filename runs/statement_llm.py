"""The parts of a change's statement about llms: what they were asked, and handoffs.

Guarantees: as in `statement.py`, nothing is written where the run's row is not found.

Does not execute anything; `commit.py` does.
"""

from collections.abc import Sequence
from typing import Any, Final

from runs.models import Handoff, LlmRequest
from runs.statement_values import encode_json

_REQUEST: Final = {
    "purpose": "text",
    "llm": "text",
    "llm_version": "text",
    "prompt_version": "text",
    "outcome": "text",
    "problem": "text",
    "detail": "text",
    "said": "text",
    "finish_reason": "text",
    "response_id": "text",
    "input_tokens": "int",
    "cached_tokens": "int",
    "output_tokens": "int",
    "reasoning_tokens": "int",
    "cost_usd": "numeric",
    "latency_ms": "int",
    "shown": "jsonb",
}
_HANDOFF: Final = {
    "number": "int",
    "through_step": "int",
    "reason": "text",
    "schema_version": "int",
    "body": "jsonb",
    "written_by": "text",
    "repairs": "int",
}


def add_llm_requests(
    requests: Sequence[LlmRequest], parts: list[str], values: dict[str, Any]
) -> None:
    """The open step's: a request is made while it is. Their ids are in the given order."""
    columns = ", ".join(_REQUEST)
    rows = ", ".join(
        f"({place}, {_bind(f'asked{place}', request, _REQUEST, values)})"
        for place, request in enumerate(requests)
    )
    parts.append(f"""asked AS (
        INSERT INTO runs_llmrequest (step_id, run_id, fence_token, {columns})
        SELECT %(step)s::bigint, held.id, held.fence_token, {columns}
        FROM held, (VALUES {rows}) AS request (place, {columns})
        ORDER BY place)""")


def add_handoff(handoff: Handoff, parts: list[str], values: dict[str, Any]) -> None:
    given = _bind("handoff", handoff, _HANDOFF, values)
    parts.append(f"""handed_off AS (
        INSERT INTO runs_handoff (run_id, fence_token, {", ".join(_HANDOFF)})
        SELECT held.id, held.fence_token, {given} FROM held)""")


def hand_over(n: int, handoff: Handoff, parts: list[str], values: dict[str, Any]) -> None:
    """To a child run of this very statement, which nobody has held yet."""
    given = _bind(f"handed{n}", handoff, _HANDOFF, values)
    values[f"handed{n}_run"] = handoff.run_id
    parts.append(f"""handed{n} AS (
        INSERT INTO runs_handoff (run_id, fence_token, {", ".join(_HANDOFF)})
        SELECT %(handed{n}_run)s::uuid, 0, {given} FROM held)""")


def _bind(prefix: str, row: object, columns: dict[str, str], values: dict[str, Any]) -> str:
    for name, kind in columns.items():
        value = getattr(row, name)
        values[f"{prefix}_{name}"] = encode_json(value) if kind == "jsonb" else value
    return ", ".join(f"%({prefix}_{name})s::{kind}" for name, kind in columns.items())

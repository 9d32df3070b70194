"""What llms were asked and what they answered, and handoffs, in words.

Guarantees: a figure that nobody gave is said to be unknown and never counts as nothing; texts
of an llm are shown without the declared secrets of its run and of the calls of its step.

Does not say what an llm was shown: a request refers to the rows that it was made of.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, Sum

from runs.handoffs import BY_ROWS
from runs.models import Handoff, LlmRequest
from runs.sensitive import Secrets


def say_outcome(request: LlmRequest) -> str:
    """What came of a request: `It answered what cannot be used: Two calls under one id`."""
    said = LlmRequest.Outcome(request.outcome).label
    return f"{said}: {LlmRequest.Problem(request.problem).label}" if request.problem else said


def say_figures(request: LlmRequest) -> str:
    """What a request took: `1,200 tokens in (800 cached), 80 out, 0.0012 USD, 830 ms`."""
    parts = (say_tokens(request), say_cost(request.cost_usd), f"{request.latency_ms:,} ms")
    return ", ".join(parts)


def say_tokens(request: LlmRequest) -> str:
    """`1,200 tokens in (800 cached), 80 out (64 reasoning)`."""
    if request.input_tokens is None and request.output_tokens is None:
        return "tokens not known"
    read = _say_count(request.input_tokens, "tokens in", request.cached_tokens, "cached")
    wrote = _say_count(request.output_tokens, "out", request.reasoning_tokens, "reasoning")
    return f"{read}, {wrote}"


def say_cost(cost: Decimal | None) -> str:
    """`0.0012 USD`; an unknown price is said."""
    return "no price known" if cost is None else f"{cost.normalize():f} USD"


def say_handoff(handoff: Handoff) -> str:
    """`Handoff 2 through step 40: The window …; written by openai:gpt-5-mini, sent back 1 time`."""
    why = Handoff.Reason(handoff.reason).label
    return f"Handoff {handoff.number} through step {handoff.through_step}: {why}; {_by(handoff)}"


def say_totals(run_id: UUID) -> list[str]:
    """One line for each llm that the run asked: how often, in vain how often, for how much."""
    unusable, failed = (
        Count("pk", filter=Q(outcome=outcome))
        for outcome in (LlmRequest.Outcome.UNUSABLE, LlmRequest.Outcome.FAILED)
    )
    totals = (
        LlmRequest.objects.filter(run_id=run_id)
        .order_by("llm")
        .values("llm")
        .annotate(
            requests=Count("pk"),
            unusable=unusable,
            failed=failed,
            unpriced=Count("pk", filter=Q(cost_usd=None, input_tokens__isnull=False)),
            read=Sum("input_tokens"),
            wrote=Sum("output_tokens"),
            cost=Sum("cost_usd"),
        )
    )
    return [_say_total(one) for one in totals]


def facts_of_request(request: LlmRequest, secrets: Secrets) -> dict[str, Any]:
    """A request as JSON. A null is not known, or there is none."""
    return {
        "llm": request.llm,
        "purpose": request.purpose,
        "outcome": request.outcome,
        "problem": request.problem or None,
        "detail": secrets.without(request.detail),
        "said": secrets.without(request.said),
        "finish_reason": request.finish_reason or None,
        "response_id": request.response_id or None,
        "input_tokens": request.input_tokens,
        "cached_tokens": request.cached_tokens,
        "output_tokens": request.output_tokens,
        "reasoning_tokens": request.reasoning_tokens,
        "cost_usd": None if request.cost_usd is None else f"{request.cost_usd.normalize():f}",
        "latency_ms": request.latency_ms,
        "shown": request.shown,
    }


def facts_of_handoff(handoff: Handoff, secrets: Secrets) -> dict[str, Any]:
    """A handoff as JSON, the whole artifact with it."""
    return {
        "handoff": handoff.number,
        "through_step": handoff.through_step,
        "why": handoff.reason,
        "written_by": handoff.written_by,
        "repairs": handoff.repairs,
        "schema_version": handoff.schema_version,
        "artifact": secrets.scrub(handoff.body),
    }


def _say_count(number: int | None, unit: str, part: int | None, of_them: str) -> str:
    said = f"{'?' if number is None else f'{number:,}'} {unit}"
    return f"{said} ({part:,} {of_them})" if part else said


def _by(handoff: Handoff) -> str:
    if handoff.written_by == BY_ROWS:
        return "built from the database, without an llm"
    times = "1 time" if handoff.repairs == 1 else f"{handoff.repairs} times"
    back = f", sent back {times}" if handoff.repairs else ""
    return f"written by {handoff.written_by}{back}, and checked against the database"


def _say_total(total: Mapping[str, Any]) -> str:
    requests = "1 request" if total["requests"] == 1 else f"{total['requests']:,} requests"
    vain = [f"{total[name]:,} {name}" for name in ("unusable", "failed") if total[name]]
    tokens = f"{total['read'] or 0:,} tokens in, {total['wrote'] or 0:,} out"
    cost = say_cost(total["cost"])
    if total["unpriced"] and total["cost"] is not None:
        cost = f"{cost} and {total['unpriced']:,} without a known price"
    return f"{total['llm']}: {', '.join([requests, *vain])}; {tokens}; {cost}"

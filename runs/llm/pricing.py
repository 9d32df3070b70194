"""What a request used, and what that cost.

Guarantees: what a provider did not say, or nobody knows the price of, is None and never 0.

Does not know a price that the installed `genai-prices` does not.
"""

from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

# The most that its column takes; a provider that says more is not believed.
_MOST: Final = 2**31 - 1
_SMALLEST_USD: Final = Decimal("0.000001")


@dataclass(frozen=True)
class Used:
    """Tokens of one request: `cached` are among `read`, `reasoning` among `written`."""

    read: int | None = None
    cached: int | None = None
    written: int | None = None
    reasoning: int | None = None
    cost_usd: Decimal | None = None

    @property
    def tokens(self) -> int:
        return (self.read or 0) + (self.written or 0)


def find_used(response: "ModelResponse") -> Used:
    usage = response.usage
    if usage.unmeasured_requests or not (usage.input_tokens or usage.output_tokens):
        return Used()
    return Used(
        read=_bound(usage.input_tokens),
        cached=_bound(usage.cache_read_tokens),
        written=_bound(usage.output_tokens),
        reasoning=_bound(usage.output_reasoning_tokens),
        cost_usd=_find_cost(response),
    )


def _bound(tokens: int) -> int:
    return min(max(int(tokens), 0), _MOST)


def _find_cost(response: "ModelResponse") -> Decimal | None:
    if response.usage.cost is not None:
        cost = response.usage.cost
    elif response.model_name:
        try:
            cost = response.cost().total_price
        except (LookupError, ValueError):
            return None
    else:
        return None
    if not (cost.is_finite() and 0 <= cost < 10**6):
        return None
    # As its column stores it, so that what requests cost adds up to what their run has spent.
    return cost.quantize(_SMALLEST_USD, rounding=ROUND_UP)

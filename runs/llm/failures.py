"""What it means that a request of an llm ended in an exception.

Guarantees: every exception is one of two conditions: the question was at fault (`UnusableAnswer`),
or nobody answered it (`LlmUnavailable`), with the wait that the provider asked for, bounded; a
request counts as free only where the provider did not begin to answer it.

Does not decide whether anybody is asked again.
"""

from math import isfinite
from typing import Final, TypeAlias

from runs.errors import LlmUnavailable, UnusableAnswer
from runs.models import LlmRequest
from tools.outcome import describe

Condition: TypeAlias = LlmUnavailable | UnusableAnswer
Problem: Final = LlmRequest.Problem

# Longer waits are asked for by exhausted quotas of a day: by then somebody may have raised it.
LONGEST_WAIT: Final = 900.0
# Unavailable, and overloaded, which providers say before they begin.
_TURNED_AWAY: Final = frozenset({503, 529})


def to_condition(error: Exception, *, llm: str, seconds: float) -> Condition:
    """The condition that `error` of a request is; `seconds` is how long it could take."""
    from pydantic_ai import exceptions

    match error:
        case exceptions.ModelContextWindowExceededError():
            return UnusableAnswer(llm=llm, kind=Problem.TOO_LONG, detail=describe(error))
        case exceptions.ContentFilterError():
            return UnusableAnswer(llm=llm, kind=Problem.REFUSED, detail=describe(error))
        case exceptions.ModelRequestRejectedError() | exceptions.ModelQuotaExceededError():
            # A key, a name, a bill, or a request that this provider takes from nobody.
            return LlmUnavailable(llm=llm, why=describe(error), needs_person=True)
        case exceptions.UserError():
            # What this llm, or this client of it, can never do.
            return LlmUnavailable(llm=llm, why=describe(error), needs_person=True)
        case exceptions.ModelAPIError(retry_after=float() | int() as wait) if isfinite(wait):
            retry_in = min(max(wait, 0.0), LONGEST_WAIT)
            return LlmUnavailable(llm=llm, why=describe(error), retry_in=retry_in)
        case TimeoutError():
            return LlmUnavailable(llm=llm, why=f"no answer within {seconds:g} s")
    return LlmUnavailable(llm=llm, why=describe(error))


def used_nothing(error: Exception) -> bool:
    """Whether the provider never had the request, or turned it away. One that broke off, or that
    failed in the middle, may be paid for all the same."""
    from pydantic_ai import exceptions

    match error:
        case exceptions.ModelAPIError(in_stream=True):
            return False
        case exceptions.ModelConnectionError(phase=phase):
            return phase in ("pool", "connect")
        case exceptions.ModelHTTPError(status_code=status):
            return status < 500 or status in _TURNED_AWAY
        case (
            exceptions.ModelRateLimitError()
            | exceptions.ModelQuotaExceededError()
            | exceptions.ModelUnavailableError()
            | exceptions.ModelRequestRejectedError()
        ):
            return True
    return False

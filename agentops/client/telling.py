"""What an llm is told of a call that has no result.

Guarantees: it is told what stands and what not to do, in words that an llm can act on, with the
operation's id; a refusal of its arguments comes back to it, so that it can correct them.

Does not hide a lost connection or a token that may not: these are raised, since no llm can mend
them, and the framework's own resuming can.
"""

import json
from typing import Any, Final

from agentops.client.errors import ActionReused, Refused
from agentops.client.results import Committed, Operation, Pending, Uncertain

MOST_SHOWN: Final = 2_000
# What another decision of the llm may mend.
MENDABLE: Final = frozenset({400, 413, 422})


def tell(operation: Operation) -> Any:
    """The result; or what stands instead of one, as a JSON object."""
    if isinstance(operation, Committed):
        return operation.result
    said = {
        "status": operation.status,
        "operation_id": operation.operation_id,
        "note": _bound(operation.explanation),
    }
    if isinstance(operation, Pending | Uncertain):
        said["next"] = "Do not make this call again, nor do the same by another way."
    return said


def tell_reused(operation: Operation) -> Any:
    """For a decision that was made anew: what the first one did in its place."""
    return {
        "status": operation.status,
        "operation_id": operation.operation_id,
        "note": "This step had been decided before, and was interrupted. What it did then stands; "
        "your new call was not made. " + _bound(operation.explanation),
        "arguments": _bound(json.dumps(dict(operation.arguments), ensure_ascii=False)),
        "result": operation.result if isinstance(operation, Committed) else None,
    }


def tell_refused(refusal: Refused) -> Any:
    """For arguments that do not fit. Raises the refusal where no llm can mend it."""
    if refusal.status not in MENDABLE or isinstance(refusal, ActionReused):
        raise refusal
    return {
        "status": "NOT_CALLED",
        "note": f"Nothing was done: {_bound(str(refusal))}",
        "field": refusal.field,
        "fix": refusal.fix,
    }


def as_text(said: Any) -> str:
    """For frameworks whose tools answer in text."""
    return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)


def _bound(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"

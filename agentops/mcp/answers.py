"""What came of a call, as an llm can act on it.

Guarantees: an answer says what is known, and what to do about it; `isError` is set where nothing
happened and nothing is under way; a text is bounded, and what it shows of an operation is what
the API shows, without what is sensitive. What an unknown or held call came to is never guessed.

Does not vouch for what a tool returned: an llm that reads it reads a stranger's words.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types

from agentops.mcp.listing import REFUSED, UNAVAILABLE, name_of_look
from runs import shapes
from runs.gateway.calling import Called
from runs.models import NeverSent, ToolOperation
from runs.presenting import present_call, present_operation
from runs.state import OperationStatus
from tools.redaction import bound_text
from tools.spec import ToolSpec

# Characters of an answer as text; the structured form has all that is stored.
LONGEST_TEXT: Final = 20_000
# From this HTTP status on nothing is wrong with the request.
LATER: Final = 500

_NEVER_SENT: Final[Mapping[str, str]] = {
    NeverSent.INVALID: "Nothing was sent. Correct the arguments and call again.",
    NeverSent.REFUSED: "Policy refuses this call, and nothing was sent. Do not repeat it as it is.",
    NeverSent.DENIED: "A person refused this call, and nothing was sent. Do not repeat it as it "
    "is; tell your user what was refused and why.",
    NeverSent.EXPIRED: "Nobody signed it in time, and nothing was sent. Calling again asks anew.",
    NeverSent.CHANGED: "Other arguments took its place.",
    NeverSent.REPEAT: "It repeats an earlier call that came to nothing; nothing was sent.",
    NeverSent.GIVEN_UP: "It could not be sent, and nothing happened. You may call again later.",
    NeverSent.CANCELLED: "Its run was cancelled before it was sent; nothing happened.",
}


def answer_call(called: Called, *, was_named: bool = True) -> types.CallToolResult:
    """What is known of a call; `was_named` says that its caller gave the key."""
    said = _say(_present(called))
    if called.replayed:
        said["replayed"] = True
        said["first_asked_at"] = called.call.received_at.isoformat()
        if not was_named and said["status"] == OperationStatus.COMMITTED:
            said["next"] = (
                "This is what the same call came to before; nothing was done now. To do it again "
                "on purpose, give a new idempotency_key."
            )
    return _finish(said)


def answer_look(found: Called | ToolOperation) -> types.CallToolResult:
    """What is known of a call that somebody looks at."""
    shown = _present(found) if isinstance(found, Called) else present_operation(found)
    answered = _finish(_say(shown))
    # The look itself went well.
    return answered.model_copy(update={"is_error": False})


def answer_other_arguments(called: Called, *, spec: ToolSpec) -> types.CallToolResult:
    """The intent of a keyless call was asked for before, with other arguments."""
    shown = _present(called)
    said = _say(shown)
    names = ", ".join(spec.intent_key) or "the arguments"
    said |= {"replayed": True, "first_asked_at": called.call.received_at.isoformat()}
    said["recorded_arguments"] = shown.arguments
    told = (
        f"Nothing was done now. The same action (same {names}) was asked for before with other "
        "arguments, see recorded_arguments; this is what that call came to. "
    )
    if spec.on_repeated_intent == "return_recorded":
        said["next"] = f"{told}If another one is meant, give a new idempotency_key."
        return _finish(said)
    said["next"] = (
        f"{told}This tool does not repeat an action by itself: tell your user, and give a new "
        "idempotency_key only if they want another one."
    )
    return _finish(said, is_error=True)


def answer_problem(problem: shapes.Problem) -> types.CallToolResult:
    """Why a request was refused, or cannot be answered now."""
    about = problem.model_dump(mode="json", exclude_none=True, exclude={"instance"})
    if about.get("field") == "Idempotency-Key":
        about["field"] = "idempotency_key"
    status = UNAVAILABLE if problem.status >= LATER else REFUSED
    return _finish({"status": status, "problem": about}, is_error=True)


def _present(called: Called) -> shapes.Operation:
    if called.operation is not None:
        return present_operation(called.operation)
    return present_call(called.call)


def _say(shown: shapes.Operation) -> dict[str, Any]:
    status = shown.status
    said: dict[str, Any] = {
        "status": str(status),
        "operation_id": shown.operation_id,
        "run": str(shown.run),
        "tool": shown.tool,
    }
    if (advice := _advise(shown)) is not None:
        said["next"] = advice
    if shown.error is not None:
        said["error"] = shown.error
    if shown.approval is not None and status == OperationStatus.AWAITING_APPROVAL:
        said["approval"] = str(shown.approval)
    if shown.never_sent is not None:
        said["never_sent"] = shown.never_sent
    if shown.repeats is not None:
        said |= {"replayed": True, "repeats": shown.repeats}
    if shown.external_ref is not None:
        said["external_ref"] = shown.external_ref
    if status == OperationStatus.COMMITTED:
        # Last: where a text is cut, it is cut here.
        said["result"] = shown.result
    return said


def _advise(shown: shapes.Operation) -> str | None:
    look = f"{name_of_look()}(operation_id)"
    match shown.status:
        case OperationStatus.COMMITTED if shown.repeats is not None:
            return (
                "The same action was carried out before, by the operation in `repeats`; this is "
                "its result, and nothing was done now."
            )
        case OperationStatus.COMMITTED:
            return None
        case OperationStatus.REJECTED:
            return "The provider refused it, and nothing happened. See error before calling again."
        case OperationStatus.CANCELLED:
            return _NEVER_SENT.get(shown.never_sent or "", "It was not sent; nothing happened.")
        case OperationStatus.AWAITING_APPROVAL:
            return (
                "A person has to sign it first; nothing was sent yet. Do not call it again: it "
                f"will be carried out once it is signed. See {look} later, and tell your user."
            )
        case OperationStatus.UNKNOWN:
            return (
                "It was sent, and nobody knows yet whether it took effect. Do not call it again "
                "and do not assume either. The provider is being asked, or a person will settle "
                f"it. See {look} later, and tell your user."
            )
        case OperationStatus.PREPARED | OperationStatus.RUNNING:
            return f"It is under way. Do not call it again; wait with {look} and wait_seconds."


def _finish(said: dict[str, Any], *, is_error: bool | None = None) -> types.CallToolResult:
    if is_error is None:
        is_error = said["status"] in (OperationStatus.REJECTED, OperationStatus.CANCELLED)
    text = json.dumps(said, ensure_ascii=False)
    if len(text) > LONGEST_TEXT:
        text = f"{bound_text(text, LONGEST_TEXT)}\n[cut: {len(text)} characters in all]"
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=bound_text(text, LONGEST_TEXT + 100))],
        structured_content=said,
        is_error=is_error,
    )

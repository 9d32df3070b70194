"""Other arguments that a person proposes for an action that waits.

Guarantees: what comes out fits the tool and is normalised as a decider's own arguments are, so
two ways to write the same amount are no change; a hidden value that came back as it was shown
is the value that was hidden, and one that was not there is refused by name.

Does not decide whether the change is allowed: policy judges it as a new action.
"""

from collections.abc import Collection, Mapping
from typing import Any

from runs.argument_versions import is_outdated
from runs.errors import InvalidInput
from runs.models import ToolOperation
from runs.sensitive import names_of_operation
from tools.canonical import canonical_json
from tools.redaction import REDACTED, redact
from tools.registry import get_tool
from tools.spec import ToolSpec


def changed_arguments(operation: ToolOperation, proposed: Mapping[str, Any]) -> dict[str, Any]:
    """`proposed` as the tool of `operation` takes it.

    Raises UnknownTool, InvalidArguments, or InvalidInput for what is no change.
    """
    spec = get_tool(operation.tool)
    if not isinstance(proposed, Mapping):
        raise InvalidInput(
            field="arguments", value=type(proposed).__name__, fix="Send all of them, as an object."
        )
    hidden = {name.casefold() for name in names_of_operation(operation)}
    whole = _restore(proposed, operation.arguments, hidden, at="arguments") if hidden else proposed
    arguments = spec.validate(whole)
    if _is_unchanged(operation, arguments, spec):
        raise InvalidInput(
            field="arguments",
            value="what was asked for",
            fix="Change something, or approve or deny what was asked for.",
        )
    return arguments


def _is_unchanged(operation: ToolOperation, arguments: dict[str, Any], spec: ToolSpec) -> bool:
    if is_outdated(operation, spec):
        return canonical_json(arguments) == canonical_json(operation.arguments)
    return spec.means_the_same(arguments, operation.arguments)


def _restore(proposed: Any, original: Any, hidden: Collection[str], *, at: str) -> Any:
    if isinstance(proposed, Mapping):
        known = original if isinstance(original, Mapping) else {}
        whole = {}
        for key, value in proposed.items():
            place = f"{at}.{key}"
            if str(key).casefold() in hidden and value == REDACTED:
                if key not in known:
                    raise InvalidInput(
                        field=place,
                        value=REDACTED,
                        fix="There was no such value to keep; write the one you mean.",
                    )
                whole[key] = known[key]
            else:
                whole[key] = _restore(value, known.get(key), hidden, at=place)
        return whole
    if isinstance(proposed, list):
        items = original if isinstance(original, list) else []
        return [
            # Items may have moved, and a hidden value must not end up in another one: only an
            # item that is wholly as it was shown is known to be the same.
            items[place]
            if place < len(items) and value == redact(items[place], hidden)
            else _restore(value, None, hidden, at=f"{at}[{place}]")
            for place, value in enumerate(proposed)
        ]
    return proposed

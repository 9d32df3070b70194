"""The fingerprint of an action: what a signature is a signature on.

Guarantees: the encoding is canonical JSON (RFC 8785), so equal actions have equal
fingerprints and different ones do not: every covered field stands under its own name, none
is left out, and text cannot pretend to be two fields. The version of the encoding is part of
the fingerprint. A description is not covered: changing it changes no action.

Does not read anything: the caller gathers the fields, and gathers them again before a send.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from tools.canonical import canonical_json

VERSION: Final = "v1"


@dataclass(frozen=True, kw_only=True)
class Action:
    """One exact action. All of it is covered; arguments are normalised JSON."""

    operation_id: str
    run_id: str
    step_number: int
    tool: str
    tool_version: str
    arguments: Mapping[str, Any]
    provider: str
    account: str
    resource_version: str
    policy_version: str
    requester: str

    def covered(self) -> dict[str, Any]:
        """The fields as they are stored with a request, and compared with later."""
        return asdict(self) | {"arguments": dict(self.arguments)}


def fingerprint(covered: Mapping[str, Any]) -> str:
    """`v1:` and 64 hexadecimal digits over the covered fields. Raises InvalidPayload."""
    encoded = canonical_json([VERSION, dict(covered)])
    return f"{VERSION}:{hashlib.sha256(encoded).hexdigest()}"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The names of the covered fields that differ, arguments one by one (`arguments.amount`)."""
    names = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if name == "arguments" and isinstance(old, Mapping) and isinstance(new, Mapping):
            names += [
                f"arguments.{argument}"
                for argument in sorted({*old, *new})
                if _encoded(old, argument) != _encoded(new, argument)
            ]
        elif canonical_json(old) != canonical_json(new):
            names.append(name)
    return names


def _encoded(values: Mapping[str, Any], name: str) -> bytes | None:
    return canonical_json(values[name]) if name in values else None

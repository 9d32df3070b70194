"""What MCP promises about a repeated tool call: nothing. Read on 29 November 2026.

    key scope    none: the protocol has no idempotency key (revisions 2025-11-25 and 2026-07-28).
                 A proposal for one was closed ("SEP-3182: Request Idempotency", 1 August 2026).
                 A server of its own accord may honour one in `_meta` or in an argument
    retention    none; a server that honours keys must publish how long
    mismatch     none
    look-up      none; a server may have another tool that tells
    request id   the JSON-RPC `id` pairs answers with requests in one session; it names no effect
    annotations  `readOnlyHint`, `idempotentHint` and the others are hints; clients are not to
                 decide by them unless they trust the server (specification 2025-11-25, "Tools")

Guarantees: `MCP` is the worst case. `honouring_keys` says what one server of yours documents.
"""

from datetime import timedelta
from typing import Final

from tools.declarations import Lookup, Provider

MCP: Final = Provider(name="mcp")


def honouring_keys(
    name: str, *, kept_for: timedelta, scope: str, account: str = "", lookup: Lookup = "none"
) -> Provider:
    """A server that makes repeated calls under one key one effect, as its own manual says."""
    return Provider(
        name=name,
        account=account,
        idempotency_support="key",
        idempotency_scope=scope,
        idempotency_retention=kept_for,
        lookup=lookup,
    )

"""A call from outside as people are shown it: who asked, and under which key.

Guarantees: a key is shown as its digest, since it may say more than its caller meant it to.
"""

import hashlib
from typing import Final

from runs.models import GatewayCall

DIGITS: Final = 16


def digest_of_key(call: GatewayCall) -> str:
    """The beginning of the SHA-256 of the key, which its caller can make too; "" without one."""
    if call.key is None:
        return ""
    return hashlib.sha256(call.key.encode()).hexdigest()[:DIGITS]


def asker_of(call: GatewayCall) -> str:
    """Who asked, and by which token: `support-bot, token 3`."""
    kind, _, name = call.scope.partition(":")
    return f"{call.created_by}, token {name}" if kind == "token" else call.created_by

"""Fencing downstream: a resource of ours refuses a worker that has been replaced.

Guarantees: for one resource, a transaction that showed a smaller token never commits after
one that showed a larger token; the same token passes again, so the holder may retry.

What makes tokens comparable: they count the leases of one run, so 7 of one run and 3 of
another say nothing about each other. Use `only_newer_call`, which names the run, or name
what owns the token in `resource` yourself. Of two runs, neither is fenced from the other.

Does not remember a resource for ever: `purge_keys` forgets one that was not seen for
`FORGET_AFTER`, and a worker that wakes after so long is no longer told apart.
"""

from datetime import timedelta
from typing import Final

from django.db import connection

from tools.call import Call
from tools.errors import InvalidPayload, StaleToken, TransactionNeeded
from tools.names import check_name

FORGET_AFTER: Final = timedelta(days=90)
LARGEST_TOKEN: Final = 2**63 - 1

# The row stays locked until the caller's transaction ends, also where nothing changes:
# that is what keeps a smaller token from committing after a larger one.
_SHOW: Final = """
    INSERT INTO tools_fencedresource AS known (resource, token, seen_at)
    VALUES (%s, %s, statement_timestamp())
    ON CONFLICT (resource) DO UPDATE
    SET token = GREATEST(known.token, EXCLUDED.token),
        seen_at = CASE WHEN known.seen_at < EXCLUDED.seen_at - interval '1 day'
                       THEN EXCLUDED.seen_at ELSE known.seen_at END
    RETURNING token
"""


def only_newer_token(resource: str, token: int) -> None:
    """Go on only if no larger token was shown for `resource`; call it before the first write.

    `resource` is 1 to 255 printable characters, and names what all its tokens belong to.
    Raises StaleToken (with both tokens), TransactionNeeded or InvalidPayload. Another
    transaction that has shown a token for the resource is waited for.
    """
    if connection.get_autocommit():
        raise TransactionNeeded("only_newer_token")
    check_name(resource, field="resource")
    if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token <= LARGEST_TOKEN:
        raise InvalidPayload(field="token", value=token, fix="give a whole number from 0 to 2^63-1")
    with connection.cursor() as cursor:
        cursor.execute(_SHOW, [resource, token])
        newest = int(cursor.fetchone()[0])
    if newest > token:
        raise StaleToken(resource=resource, token=token, newest=newest)


def only_newer_call(call: Call, resource: str = "") -> None:
    """`only_newer_token` for a tool: a worker that lost the run's lease gets no further.

    `resource` narrows it to one thing that the run writes; without it, the whole run.
    """
    run = f"run {call.run_id}"
    only_newer_token(f"{run} {resource}" if resource else run, call.fence_token)

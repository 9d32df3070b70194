"""What a CalDAV server promises about conditional creation. Read on 29 November 2026.

    key scope    the address of the new resource; the client chooses it (RFC 4791, "Calendaring
                 Extensions to WebDAV (CalDAV)", March 2007, section 5.3.2)
    retention    as long as the resource exists: `If-None-Match: *` compares with what is there
                 (RFC 9110, "HTTP Semantics", June 2022, section 13.1.2)
    mismatch     412 whatever the body is; a server does not compare (the same section)
    second name  a UID that another resource of the calendar has is refused with 403 or 409 and
                 `no-uid-conflict` (RFC 4791, section 5.3.2.1)
    look-up      GET of the address. A server may write an event down in other words, and then
                 gives no ETag with the answer to the PUT (RFC 4791, section 5.3.4)

Guarantees: nothing beyond the two standards.
Does not hold for a server that ignores the condition: the tool author's kit finds that out.
"""

from datetime import timedelta
from typing import Final

from tools.declarations import Provider

# The longest that can be declared: the address is taken for as long as the event exists.
WHILE_IT_EXISTS: Final = timedelta(days=36_500)

CALDAV: Final = Provider(
    name="caldav",
    idempotency_support="natural_id",
    idempotency_scope="calendar",
    idempotency_retention=WHILE_IT_EXISTS,
    lookup="by_key",
    settle_window=timedelta(minutes=15),
)

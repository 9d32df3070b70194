"""What SMTP promises (RFC 5321, "Simple Mail Transfer Protocol", October 2008).

    key scope    none: the protocol has no idempotency key
    retention    none; a Message-ID (RFC 5322, "Internet Message Format", October 2008, 3.6.4)
                 names a message, and no server must look at it
    mismatch     none: two messages under one Message-ID are two messages
    look-up      none
    before the end of the message
                 a connection that ends before it cancels the message (RFC 5321, 4.1.1.10)
    after it     2xx: the server has taken the responsibility (6.1); 4xx and 5xx: it has not done
                 what was asked, and will not (4.2.1); no reply: nobody knows (4.5.3.2.6)

Guarantees: a tool of this provider is irreversible, and a lost reply goes to a person.
Does not cover what a server does later: a message that was taken may still bounce.
"""

from tools.declarations import Provider


def smtp_provider(account: str) -> Provider:
    """One mail server, as one sender sees it."""
    return Provider(name="smtp", account=account, idempotency_support="none", lookup="none")

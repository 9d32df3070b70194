"""What Stripe promises about its API v1 (read in November 2026).

    key scope    the account that the request acts for; test and live mode are apart
                 ("Idempotent requests", docs.stripe.com/api/idempotent_requests, and the
                 Stripe-Account header for connected accounts)
    retention    a key may be removed once it is at least 24 hours old, and is then executed anew
                 ("Idempotent requests", API version 2026-09-30.preview)
    what is kept status and body of the first answer once the endpoint had begun to execute, a
                 500 included, and replayed ("Idempotent requests"); a 429, and a 401 without a
                 key, come before that ("Advanced error handling", docs.stripe.com/error-low-level)
    mismatch     400 with type idempotency_error ("Idempotent requests", "Errors")
    in use       409 while the first request is executed ("Errors", docs.stripe.com/api/errors)
    look-up      lists are current; search is not, by a minute or more ("Search",
                 docs.stripe.com/search)
    metadata     kept with the refund and returned in lists ("Metadata",
                 docs.stripe.com/api/metadata)

Guarantees: these facts and no better ones are declared.
Does not hold for API v2, which keeps keys for 30 days and executes failures again.
"""

from datetime import timedelta

from tools.declarations import Provider

KEY_RETENTION = timedelta(hours=24)


def stripe_provider(account: str) -> Provider:
    """Stripe as this account sees it; share it between tools of one account."""
    return Provider(
        name="stripe",
        account=account,
        idempotency_support="key",
        idempotency_scope="account",
        idempotency_retention=KEY_RETENTION,
        lookup="list",
    )

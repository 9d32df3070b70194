"""What one HTTP API promises, and how it is reached; shared by its tools.

The facts are the API's own, so `provider` has no defaults worth having: state them with source
and date where you declare it. Where an API follows "The Idempotency-Key HTTP Header Field"
(IETF draft-ietf-httpapi-idempotency-key-header-06, 24 February 2025):

    key scope    the API says (usually the account); the draft leaves it open
    retention    the API must publish it; the draft names no time
    mismatch     422 for a known key with another request: list it in `mismatch`
    in use       409 while the first request is in flight: never listed, it stays unknown
    missing key  400, where the API asks for one

Guarantees: the token is an environment variable's name here, and its value is in no declaration.
Does not know an API's facts: a promise that is untrue is found by the tool author's kit alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tools.catalog.http_api.answers import Says
from tools.declarations import Provider


@dataclass(frozen=True, kw_only=True)
class HttpApi:
    """One API, as one account sees it.

    `base_url` is `https://host/prefix`; `base_url_env` names a variable that holds it instead.
    `token_env` names the variable with the token, sent as `token_header: token_scheme token`.
    `key_header` carries the idempotency key of every write ("" sends none), in the quotes that
    the IETF draft asks for if `quoted_key`; `fence_header` carries the fencing token, for an API
    that refuses an older one. `mismatch` and `not_executed` are the answers documented for a
    key that was used with another request, and for a request that was not executed and may be
    sent again.
    """

    provider: Provider
    base_url: str = ""
    base_url_env: str = ""
    token_env: str = ""
    token_header: str = "Authorization"  # noqa: S105  a header's name
    token_scheme: str = "Bearer"  # noqa: S105  what precedes the token
    key_header: str = "Idempotency-Key"
    quoted_key: bool = False
    fence_header: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    mismatch: Sequence[Says] = ()
    not_executed: Sequence[Says] = ()

"""Stripe's SDK for one call: its retries off, its requests sent by ours. Imports the SDK.

Guarantees: each of the SDK's requests is sent once, as `sending` does; an error before the first
of them left is "nothing was sent"; what the SDK makes of an answer is read by Stripe's
documentation, and in doubt is unknown.
Does not use the SDK's module-wide settings, nor change them.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

import stripe

from tools.call import Call
from tools.catalog.sending import send
from tools.errors import NotSent, Rejected, ToolError
from tools.outcome import describe

PAGE = 100
MOST_PAGES = 50
OPERATION = "operation_id"
# What the SDK itself reads. A notice would become a warning, which some projects make an error.
_KEPT_HEADERS = ("request-id", "idempotent-replayed")


class KeyMismatch(ToolError):
    """Stripe knows the key with other parameters: one of the two requests was sent in error."""

    def __init__(self, key: str, *, said: str) -> None:
        self.key = key
        super().__init__(
            f"Stripe knows the key {key} with other parameters; a person must compare: {said}"
        )


class Session:
    """The SDK's client for one call."""

    def __init__(
        self, call: Call, *, api_key: str, api_base: str | None, connected_account: str | None
    ) -> None:
        self._call = call
        self._http = _Sender(call)
        self._stripe = stripe.StripeClient(
            api_key,
            base_addresses={"api": api_base} if api_base else None,
            stripe_account=connected_account,
            max_network_retries=0,
            http_client=self._http,
        )

    def create(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The refund that Stripe made, or had made under this key."""
        params: Any = {**given, "metadata": {OPERATION: self._call.operation_id}}
        options: Any = {"idempotency_key": self._call.idempotency_key}
        try:
            made = self._stripe.v1.refunds.create(params=params, options=options)
        except Exception as error:  # noqa: BLE001  raised again, read by the documentation
            self._raise_as_documented(error)
        return made.to_dict()

    def find(self, of: str, payment: str) -> list[dict[str, Any]] | None:
        """The payment's refunds that carry the operation's id; None if the list has no end."""
        found: list[dict[str, Any]] = []
        params: Any = {of: payment, "limit": PAGE}
        for _ in range(MOST_PAGES):
            page = self._stripe.v1.refunds.list(params=params)
            for refund in (one.to_dict() for one in page.data):
                if (refund.get("metadata") or {}).get(OPERATION) == self._call.operation_id:
                    found.append(refund)
            if not page.has_more:
                return found
            params = {**params, "starting_after": page.data[-1].id}
        return None

    def _raise_as_documented(self, error: Exception) -> NoReturn:
        if not self._http.asked:
            raise NotSent(f"the request was not built: {describe(error)}") from error
        match error:
            case stripe.IdempotencyError():
                raise KeyMismatch(
                    self._call.idempotency_key, said=error.user_message or ""
                ) from error
            case stripe.CardError():
                raise Rejected(error.user_message or "Stripe gave no reason") from error
            case stripe.InvalidRequestError() if _type(error) == "invalid_request_error":
                raise Rejected(error.user_message or "Stripe gave no reason") from error
            case stripe.AuthenticationError() | stripe.PermissionError():
                raise NotSent(f"not executed: {describe(error)}") from error
        raise error


class _Sender(stripe.HTTPClient):
    """The SDK's requests, sent as every request of the catalog is."""

    name = "httpx2"

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        self.asked = False

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,
        *,
        _usage: list[str] | None = None,
    ) -> Any:
        self.asked = True
        content = post_data.encode() if isinstance(post_data, str) else post_data
        answer = send(
            self._call, method=method.upper(), url=url, headers=headers or {}, content=content
        )
        kept = {name: answer.headers.get(name) for name in _KEPT_HEADERS}
        return answer.body, answer.status, {k: v for k, v in kept.items() if v is not None}

    def close(self) -> None:
        """There is nothing of its own to close."""


def _type(error: stripe.StripeError) -> str | None:
    return None if error.error is None else error.error.type

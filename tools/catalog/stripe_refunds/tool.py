"""The refund of a Stripe payment, as a tool.

Guarantees: one request per call, under the operation's key and with its id in the refund's
metadata; what Stripe documents as a failed request is a rejection, what it documents as not
authenticated was not executed, and every other error is unknown; the look-up reads the
payment's refunds to the end of the list, and takes an incomplete one for no answer.
Does not say that the money has arrived: a refund has a status, and Stripe may change it later.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from pydantic import BaseModel, Field

from tools.call import Call
from tools.catalog.declared import Declared
from tools.catalog.extras import need
from tools.catalog.secret import read_secret
from tools.catalog.stripe_refunds.provider import stripe_provider
from tools.declarations import EffectType
from tools.reconciled import Reconciled
from tools.results import external_ref
from tools.spec import tool

if TYPE_CHECKING:
    from tools.catalog.stripe_refunds.client import Session

PaymentIntentId = Annotated[str, Field(pattern=r"^pi_[A-Za-z0-9_]{1,250}$")]
ChargeId = Annotated[str, Field(pattern=r"^(ch|py)_[A-Za-z0-9_]{1,250}$")]
Amount = Annotated[int, Field(gt=0, le=99_999_999, description="in the smallest unit: cents")]
Reason = Literal["duplicate", "fraudulent", "requested_by_customer"]
Of = Literal["payment_intent", "charge"]


class StripeRefund(BaseModel):
    """A refund as Stripe answered it. `status` is Stripe's word: "succeeded", "pending", …"""

    id: str
    amount: int
    currency: str
    status: str | None = None
    charge: str | None = None
    payment_intent: str | None = None
    reason: str | None = None


def refund_tool(
    *,
    account: str,
    name: str = "stripe_refund",
    description: str = "",
    of: Of = "payment_intent",
    api_key_env: str = "STRIPE_API_KEY",
    api_base: str | None = None,
    connected_account: str | None = None,
    effect_type: EffectType = EffectType.IDEMPOTENT_WRITE,
    **declared: Unpack[Declared],
) -> Callable[..., Any]:
    """Register the tool `name(payment_intent, amount, reason)`; returns it, with a `.spec`.

    `account` names the Stripe account in journals and approvals; `of="charge"` takes the id of a
    charge instead. The API key is read from `api_key_env` at each call. `api_base` is another
    address than Stripe's own; `connected_account` makes the call for that account. `effect_type`
    is for an address that does not honour keys. `declared` is what `@tool` takes.
    """
    refunds = _Refunds(
        of=of, api_key_env=api_key_env, api_base=api_base, connected_account=connected_account
    )

    def refund_payment_intent(
        call: Call, payment_intent: PaymentIntentId, amount: Amount, reason: Reason | None = None
    ) -> StripeRefund:
        return refunds.create(call)

    def refund_charge(
        call: Call, charge: ChargeId, amount: Amount, reason: Reason | None = None
    ) -> StripeRefund:
        return refunds.create(call)

    act = refund_payment_intent if of == "payment_intent" else refund_charge
    act.__doc__ = description or (
        f"Refund a Stripe {of.replace('_', ' ')}, in part or in full. The amount is in the "
        "currency's smallest unit (cents)."
    )
    return tool(
        name=name,
        provider=stripe_provider(account),
        effect_type=effect_type,
        reconcile_handler=refunds.find,
        **declared,
    )(act)


class _Refunds:
    """Refunds of one account. The SDK is imported when the first is made or looked for."""

    def __init__(
        self, *, of: Of, api_key_env: str, api_base: str | None, connected_account: str | None
    ) -> None:
        self._of = of
        self._api_key_env = api_key_env
        self._api_base = api_base
        self._connected_account = connected_account

    def create(self, call: Call) -> StripeRefund:
        given = {name: value for name, value in call.arguments.items() if value is not None}
        refund = StripeRefund.model_validate(self._session(call).create(given))
        external_ref(refund.id)
        return refund

    def find(self, call: Call) -> Reconciled[StripeRefund]:
        session = self._session(call)
        listed = session.find(self._of, call.arguments[self._of])
        if listed is None:
            return Reconciled.indeterminate("the list of refunds has no end within reach")
        if not listed:
            return Reconciled.not_found()
        found = [StripeRefund.model_validate(one) for one in listed]
        if any(refund.amount != call.arguments["amount"] for refund in found):
            return Reconciled.indeterminate(
                "Stripe has a refund of this operation, of another amount"
            )
        first, *others = found
        return Reconciled.committed(first, first.id, also=[refund.id for refund in others])

    def _session(self, call: Call) -> "Session":
        need("stripe", extra="stripe")
        # Only here may a module be loaded that imports the SDK.
        from tools.catalog.stripe_refunds.client import Session

        return Session(
            call,
            api_key=read_secret(self._api_key_env),
            api_base=self._api_base,
            connected_account=self._connected_account,
        )

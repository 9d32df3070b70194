"""Refunds of Stripe payments, through Stripe's own SDK; see README.md."""

from tools.catalog.stripe_refunds.provider import stripe_provider
from tools.catalog.stripe_refunds.tool import StripeRefund, refund_tool

__all__ = ["StripeRefund", "refund_tool", "stripe_provider"]

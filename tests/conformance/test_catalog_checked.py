"""The author's kit finds the ready-made tools sound, over providers that keep their promises."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

# Loaded here once, and not by every process that is forked.
import tools.catalog.stripe_refunds.client  # noqa: F401  imported for its imports
from examples.shop.provider_process import provider_process
from tests.conformance.side_by_side import AGAIN, WHOLE, Check, Reports, reports_of
from tests.conformance.targets.mail import MailServer
from tests.conformance.targets.stripes import API_KEY, Localstripe, StatefulStripe
from tests.conformance.test_http_api import declare_refund
from tools import EffectType
from tools.catalog.smtp_email import email_tool
from tools.catalog.stripe_refunds import refund_tool
from tools.testing import Intended, Report, assert_sound, check

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600), pytest.mark.django_db]


def an_http_api(folder: Path, *, honours_keys: bool) -> Report:
    with provider_process(folder / "b.sqlite3", ignore_keys=not honours_keys) as provider:
        os.environ |= {"BOOKS_URL": provider.url, "BOOKS_TOKEN": "tok-4711-secret"}
        return check(
            declare_refund(**{} if honours_keys else KEYLESS),
            arguments=lambda number: {"order_id": "21", "amount": f"1.{number:02}"},
            count_effects=lambda intended: len(provider.effects(intended.operation_id)),
            **(WHOLE if honours_keys else AGAIN),
        )


def stripe_refunds(folder: Path, *, honours_keys: bool) -> Report:
    os.environ["STRIPE_API_KEY"] = API_KEY
    with (StatefulStripe if honours_keys else Localstripe)(log_dir=folder) as stripe:

        def count(intended: Intended) -> int:
            mine = {"operation_id": intended.operation_id}
            made = stripe.refunds(intended.arguments["charge"])
            return sum(refund["metadata"] == mine for refund in made)

        declared = {} if honours_keys else KEYLESS
        return check(
            refund_tool(account="acct_1", of="charge", api_base=stripe.url, **declared),
            arguments=lambda _: {"charge": stripe.charge(100_00), "amount": 10_00},
            count_effects=count,
            **(WHOLE if honours_keys else AGAIN),
        )


def smtp_email(folder: Path) -> Report:
    with MailServer(log_dir=folder) as server:
        os.environ["SMTP_HOST"] = server.address
        return check(
            email_tool(sender="shop@example.com", security="none"),
            arguments=lambda number: {
                "to": ["ann@example.com"],
                "subject": f"Order {number}",
                "text": "It is on its way.",
            },
            count_effects=lambda intended: len(
                server.taken(f"<{intended.operation_id}@example.com>")
            ),
            **WHOLE,
        )


KEYLESS: dict[str, Any] = {
    "effect_type": EffectType.NON_IDEMPOTENT_WRITE,
    "idempotency_support": "none",
}

CHECKS: dict[str, Check] = {
    "http_api with keys": partial(an_http_api, honours_keys=True),
    "http_api without keys": partial(an_http_api, honours_keys=False),
    "stripe_refunds with keys": partial(stripe_refunds, honours_keys=True),
    "stripe_refunds without keys": partial(stripe_refunds, honours_keys=False),
    "smtp_email": smtp_email,
}
reports = reports_of(CHECKS, are_sound=True)


@pytest.mark.parametrize("checked", CHECKS)
def test_a_ready_made_tool_is_sound(checked: str, reports: Reports) -> None:
    print(reports[checked])
    assert_sound(reports[checked])

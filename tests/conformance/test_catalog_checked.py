"""The author's kit finds the ready-made tools sound, over providers that keep their promises."""

from pathlib import Path
from typing import Any

import pytest

# Loaded here once, and not by every process that the kit forks.
import tools.catalog.stripe_refunds.client  # noqa: F401  imported for its imports
from examples.shop.provider_process import provider_process
from tests.conformance.targets.mail import MailServer
from tests.conformance.targets.stripes import API_KEY, Localstripe, StatefulStripe
from tests.conformance.test_http_api import declare_refund
from tools import EffectType
from tools.catalog.smtp_email import email_tool
from tools.catalog.stripe_refunds import refund_tool
from tools.testing import Intended, assert_sound, check

pytestmark = [pytest.mark.crash, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("honours_keys", [True, False])
def test_an_http_api(honours_keys: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with provider_process(tmp_path / "b.sqlite3", ignore_keys=not honours_keys) as provider:
        monkeypatch.setenv("BOOKS_URL", provider.url)
        monkeypatch.setenv("BOOKS_TOKEN", "tok-4711-secret")
        tool = declare_refund(**{} if honours_keys else KEYLESS)
        report = check(
            tool,
            arguments=lambda number: {"order_id": "21", "amount": f"1.{number:02}"},
            count_effects=lambda intended: len(provider.effects(intended.operation_id)),
        )
    print(report)
    assert_sound(report)


@pytest.mark.parametrize("honours_keys", [True, False])
def test_stripe_refunds(
    honours_keys: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", API_KEY)
    with (StatefulStripe if honours_keys else Localstripe)(log_dir=tmp_path) as stripe:
        tool = refund_tool(
            account="acct_1", of="charge", api_base=stripe.url, **{} if honours_keys else KEYLESS
        )

        def count(intended: Intended) -> int:
            mine = {"operation_id": intended.operation_id}
            made = stripe.refunds(intended.arguments["charge"])
            return sum(refund["metadata"] == mine for refund in made)

        report = check(
            tool,
            arguments=lambda _: {"charge": stripe.charge(100_00), "amount": 10_00},
            count_effects=count,
        )
    print(report)
    assert_sound(report)


def test_smtp_email(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MailServer(log_dir=tmp_path) as server:
        monkeypatch.setenv("SMTP_HOST", server.address)
        tool = email_tool(sender="shop@example.com", security="none")
        report = check(
            tool,
            arguments=lambda number: {
                "to": ["ann@example.com"],
                "subject": f"Order {number}",
                "text": "It is on its way.",
            },
            count_effects=lambda intended: len(
                server.taken(f"<{intended.operation_id}@example.com>")
            ),
        )
    print(report)
    assert_sound(report)


KEYLESS: dict[str, Any] = {
    "effect_type": EffectType.NON_IDEMPOTENT_WRITE,
    "idempotency_support": "none",
}

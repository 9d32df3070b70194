"""What `manage.py check_tool` is told about the shop's refunds in its tests."""

import os
import sys
from typing import Any

import httpx2

from runs.models import AgentRun
from tools.testing import Intended

_client = httpx2.Client(transport=httpx2.HTTPTransport())


def count_refunds(intended: Intended) -> int:
    """The refunds of an operation, in the provider's own books."""
    answer = _client.get(f"{os.environ['SHOP_PAYMENTS_URL']}/ledger").raise_for_status()
    return int(answer.json()["counts"].get(intended.operation_id, 0))


def new_refund(number: int) -> dict[str, Any]:
    return {"order_id": "21", "amount": f"{number}.00"}


def require_fresh_database() -> None:
    """Fails on any database but a new one that has the project's tables."""
    assert not AgentRun.objects.exists()
    print("prepared", file=sys.stderr)

"""What every agent of these programs does: its llm's answers, and a tool without any protection.

The llm is a script of the conversation's length, so that a process that starts again in the
middle goes on from there. As llms do it gives every call a new id, and decides a little otherwise
each time it is asked.
"""

import json
import os
import secrets
from dataclasses import dataclass
from typing import Any

import httpx2

OBJECTIVE = "Refund most of order 17, and order 18 in three parts."
PARTS = {"order_id": "18", "amount": "5.00"}
# The same call twice in one answer, and once more in the next: all three are meant.
ANSWERS: list[list[dict[str, str]]] = [
    [{"order_id": "17", "amount": "42.00"}],
    [PARTS, PARTS],
    [PARTS],
]
if told := os.environ.get("ANSWERS"):
    ANSWERS = json.loads(told)
LAST_WORDS = "Refunded."


@dataclass(frozen=True)
class Wanted:
    """One call that the llm asks for."""

    id: str
    name: str
    arguments: dict[str, str]


def answer(turns: int) -> list[Wanted]:
    """What the llm wants after so many answers of its own; nothing at the end."""
    wanted = [dict(one) for one in ANSWERS[turns]] if turns < len(ANSWERS) else []
    for one in wanted:
        if one["order_id"] == "17":
            one["amount"] = f"41.{secrets.randbelow(100):02}"
    return [Wanted(f"call_{secrets.token_hex(8)}", "refund_customer", one) for one in wanted]


def turns_of(calls: int) -> int:
    """How many answers of the llm that many calls came from."""
    asked = 0
    for turns, wanted in enumerate(ANSWERS):
        if asked >= calls:
            return turns
        asked += len(wanted)
    return len(ANSWERS)


def refund_by_hand(order_id: str, amount: str, *, key: str) -> dict[str, Any]:
    """What a tool does that knows no better: call the provider, with the call's id for a key."""
    said = httpx2.post(
        f"{os.environ['SHOP_PAYMENTS_URL']}/refunds",
        json={"order": order_id, "amount": amount, "operation_id": key},
        headers={"Idempotency-Key": key, "Account": "acct_bare"},
        timeout=60,
    )
    made: dict[str, Any] = said.raise_for_status().json()
    return made

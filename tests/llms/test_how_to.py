"""What the page about llms shows works as it stands there."""

import re
from pathlib import Path
from typing import Any

import pytest

from runs.access import operator
from runs.agents import get_agent
from runs.checks_llm import check_llms
from runs.commands import start_run
from runs.models import AgentRun, LlmRequest
from runs.state import RunState
from tests.database.kit import ON_DATABASE, drive, scripted_tool
from tests.llms.server import LlmServer, call, calls, fail

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "decide-with-an-llm.md"

pytestmark = ON_DATABASE


@pytest.fixture
def shop(transactional_db: None) -> None:
    """The agents of the page."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    exec("\n".join(blocks), {"__name__": "shop.agents"})


def started(agent: str) -> AgentRun:
    return start_run(actor=operator(), agent=agent, objective="Refund order 17.").run


def test_the_agent_settles_a_complaint_though_its_first_llm_is_away(
    llm_server: LlmServer, shop: None
) -> None:
    scripted_tool({"total": "42.10"}, name="lookup_order")
    refunds = scripted_tool({"refund_id": "re_1"}, name="refund_customer")
    assert check_llms() == []
    reasons: dict[str, Any] = {"call_rationale": "It is broken.", "call_confidence": 0.9}
    llm_server.script(
        fail(500),
        call("lookup_order", amount=17, **reasons),
        calls(("refund_customer", {"amount": 42} | reasons)),
        call("finish", order_id="17", refunded="42.10", words="Refunded."),
    )
    run = started("support")
    drive(run)
    assert run.state == RunState.COMPLETED
    assert run.result == {"order_id": "17", "refunded": "42.10", "words": "Refunded."}
    assert [made.arguments for made in refunds.calls] == [{"amount": 42}]
    asked = LlmRequest.objects.filter(run=run).order_by("id")
    assert [one.llm.split(":")[0] for one in asked] == [
        *("openai", "anthropic"),
        *("openai", "openai"),
    ]
    constraint = get_agent("support").constraints[0]
    assert all(constraint in str(body) for body in llm_server.bodies)


def test_the_tested_agent_gives_up(shop: None) -> None:
    run = started("tested")
    drive(run)
    assert (run.state, run.error) == (RunState.FAILED, "a test")

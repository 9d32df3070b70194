"""Agents of other frameworks, resumed by their framework: after a kill, or after a signature.

They are killed after the provider acted and before they heard of it. In each test two agents work
side by side in one process: one whose tool calls the provider by hand, and one whose tool calls
it through the gateway, which is the code of the how-to page.
"""

import re
import shutil
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.frameworks.conftest import Killing, Refunds, Shop
from tests.frameworks.programs import task
from tests.frameworks.programs.pages import HOW_TO
from tests.processes import Celery, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.django_db]

# Order 17 was being refunded at the kill; the three refunds of order 18 are all meant.
EXPECTED = Refunds(bare={"17": 2, "18": 3}, guarded={"17": 1, "18": 3})


@pytest.mark.parametrize("framework", ["langgraph", "pydantic_ai", "openai_agents", "rest"])
def test_a_killed_agent_that_its_framework_resumes_has_refunded_once(
    framework: str, killing: Killing
) -> None:
    job = f"{framework}-7"
    killing.kill_in_the_middle_of_its_refunds(framework, job)
    said = killing.run(framework, job)
    assert task.LAST_WORDS in said
    assert killing.refunds() == EXPECTED
    assert _figures_of(framework) == {"unguarded": EXPECTED.bare["17"], "guarded": 1}


def _figures_of(framework: str) -> dict[str, int]:
    """What the how-to page says was measured here."""
    page = HOW_TO / f"use-from-{framework.replace('_', '-')}.md"
    rows = re.findall(r"^\| ((?:un)?guarded) \| (\d+) \|$", page.read_text(), re.M)
    return {name: int(count) for name, count in rows}


def test_a_graph_whose_newest_checkpoint_is_lost_asks_its_llm_again_and_has_refunded_once(
    killing: Killing, shop: Shop
) -> None:
    """As it can be with every durability but "sync"."""
    job = "langgraph-8"
    killing.kill_in_the_middle_of_its_refunds("langgraph", job)
    with psycopg.connect(shop.servers.database_url) as connection:
        connection.execute("DELETE FROM checkpoint_writes WHERE thread_id LIKE %s", [f"{job}%"])
        lost = connection.execute(
            "DELETE FROM checkpoints WHERE (thread_id, checkpoint_id) IN ("
            " SELECT thread_id, max(checkpoint_id) FROM checkpoints"
            " WHERE thread_id LIKE %s GROUP BY thread_id)",
            [f"{job}%"],
        )
        assert lost.rowcount == 2
    assert task.LAST_WORDS in killing.run("langgraph", job)
    assert killing.refunds() == EXPECTED
    ids = {one.operation_id for one in killing.effects() if one.order_id == "17"}
    assert len(ids) == 3, "its llm was not asked again"


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_a_killed_script_that_is_started_again_has_refunded_once(killing: Killing) -> None:
    killing.kill_in_the_middle_of_its_refunds("script", refunds=1)
    assert '"COMMITTED"' in killing.run("script")
    assert killing.refunds() == Refunds(bare={}, guarded={"17": 1})


def test_a_killed_mcp_client_that_calls_again_has_refunded_once(killing: Killing) -> None:
    """Order 19 is refunded without a key: its tool's intent names the call."""
    killing.kill_in_the_middle_of_its_refunds("mcp_client", "mcp-7", refunds=3)
    assert task.LAST_WORDS in killing.run("mcp_client", "mcp-7")
    assert killing.refunds() == Refunds(bare=EXPECTED.bare, guarded={**EXPECTED.guarded, "19": 1})


def test_a_graph_ends_where_a_call_needs_a_signature_and_goes_on_when_it_is_given(
    killing: Killing, shop: Shop, tmp_path: Path
) -> None:
    killing.answers = [[{"order_id": "21", "amount": "900.00"}]]
    assert killing.run("langgraph", "langgraph-9").split() == [task.LAST_WORDS]
    by_hand_alone = Refunds(bare={"21": 1}, guarded={})
    assert killing.refunds() == by_hand_alone
    killing.run("langgraph", "langgraph-9")
    assert killing.refunds() == by_hand_alone, "it was asked twice, and not signed yet"
    with Celery(shop.servers, log_dir=tmp_path, env=shop.env) as celery:
        celery.worker("worker")
        _sign_and_await(shop)
    assert killing.run("langgraph", "langgraph-9").split() == [task.LAST_WORDS] * 2
    assert killing.refunds() == Refunds(bare={"21": 1}, guarded={"21": 1})


def _sign_and_await(shop: Shop) -> None:
    headers = {"Authorization": f"Token {shop.tokens['clara']}"}
    with httpx2.Client(base_url=f"{shop.url}/api/v1/", headers=headers) as clara:
        waiting = clara.get("approvals/", params={"status": "pending"}).raise_for_status().json()
        (approval,) = waiting["results"]
        clara.post(
            f"approvals/{approval['id']}/verdict/",
            json={"verdict": "approve", "fingerprint": approval["fingerprint"]},
        ).raise_for_status()

        def is_carried_out() -> bool:
            operation = clara.get(f"operations/{approval['operation_id']}/").raise_for_status()
            return bool(operation.json()["status"] == "COMMITTED")

        wait_until(is_carried_out, what="the signed refund is made", seconds=30)

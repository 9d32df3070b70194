"""A program around the official MCP client, by hand and through the gateway.

MCP resumes nothing by itself: the program keeps how far it is, and makes the calls after that
again when it is started again. Those to the gateway have a key made of the job, but for the one
for order 19: only the intent that its tool declares names that.
"""

import asyncio
import os
import secrets
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, RequestParamsMeta

from tests.frameworks.programs import task

Calls = Callable[[int], list[Awaitable[CallToolResult]]]
by_hand = MCPServer("payments")


@by_hand.tool()
async def refund_customer(order_id: str, amount: str, key: str) -> dict[str, Any]:
    """Refund a customer's order, in full or in part."""
    return await asyncio.to_thread(task.refund_by_hand, order_id, amount, key=key)


async def work_by_hand(job: str) -> None:
    async with Client(by_hand) as client:

        def calls(turn: int) -> list[Awaitable[CallToolResult]]:
            keyed = [one | {"key": secrets.token_hex(8)} for one in task.ANSWERS[turn]]
            return [client.call_tool("refund_customer", one) for one in keyed]

        await go_on(job, calls)


async def work(job: str) -> None:
    headers = {"Authorization": f"Bearer {os.environ['AGENTOPS_TOKEN']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        at = streamable_http_client(f"{os.environ['AGENTOPS_URL']}/mcp", http_client=http)
        async with Client(at) as client:

            def calls(turn: int) -> list[Awaitable[CallToolResult]]:
                keyed: list[Awaitable[CallToolResult]] = [
                    client.call_tool(
                        "refund_customer",
                        dict(one),
                        meta=cast(RequestParamsMeta, {"idempotencyKey": f"{job}:{turn}:{number}"}),
                    )
                    for number, one in enumerate(task.ANSWERS[turn])
                ]
                if turn == 0:
                    arguments = {"order_id": "19", "amount": "5.00"}
                    keyed.append(client.call_tool("refund_order", arguments))
                return keyed

            await go_on(job, calls)


async def go_on(job: str, calls: Calls) -> None:
    kept = Path(os.environ["STATE_DIRECTORY"], f"{job}.turn")
    done = int(kept.read_text()) if kept.exists() else 0
    for turn in range(done, len(task.ANSWERS)):
        for said in await asyncio.gather(*calls(turn)):
            assert not said.is_error, said
        kept.write_text(str(turn + 1))


async def main() -> None:
    _, job = sys.argv
    await asyncio.gather(work_by_hand(f"{job}-by-hand"), work(job))
    print(task.LAST_WORDS)


if __name__ == "__main__":
    asyncio.run(main())

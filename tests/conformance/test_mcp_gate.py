"""Below the MCP client library: one tool call leaves, in time, and no answer is endless."""

import asyncio

import httpx2
import pytest

from tests.conformance.calls import new_call
from tests.conformance.targets.fault_proxy import AnswerInstead, FaultProxy
from tools.catalog.mcp_call.gate import MOST_BYTES, Gate, GatedTransport, SentAlready, TooLong
from tools.errors import NotSent


def test_a_second_tool_call_does_not_leave_whoever_asks_for_it(notes_proxy: FaultProxy) -> None:
    async def call_twice() -> None:
        transport = GatedTransport(Gate(new_call("op")))
        async with httpx2.AsyncClient(transport=transport) as client:
            for _ in range(2):
                await client.post(f"{notes_proxy.url}/mcp", json={"method": "tools/call"})

    with pytest.raises(SentAlready):
        asyncio.run(call_twice())
    assert notes_proxy.forwarded(method="POST") == 1


def test_no_tool_call_leaves_after_the_deadline(notes_proxy: FaultProxy) -> None:
    async def call_late() -> None:
        async with httpx2.AsyncHTTPTransport() as transport:
            request = httpx2.Request(
                "POST", f"{notes_proxy.url}/mcp", json={"method": "tools/call"}
            )
            call = new_call("op", seconds=0.5)
            Gate(call).watch(request)
            # As a worker that is stopped right here, and continued.
            while call.seconds_left() > 0:
                await asyncio.sleep(0.01)
            await transport.handle_async_request(request)

    with pytest.raises(NotSent, match="before the call could leave"):
        asyncio.run(call_late())
    assert notes_proxy.forwarded() == 0


def test_an_endless_answer_is_cut_off(notes_proxy: FaultProxy) -> None:
    notes_proxy.next(AnswerInstead(status=200, body=b" " * (MOST_BYTES + 1)), method="POST")

    async def ask() -> None:
        transport = GatedTransport(Gate(new_call("op")))
        async with httpx2.AsyncClient(transport=transport) as client:
            await client.post(f"{notes_proxy.url}/mcp", json={"method": "tools/list"})

    with pytest.raises(TooLong):
        asyncio.run(ask())

"""The official MCP client, for tests that do not wait for anything else meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import CallToolResult, Tool

Value = TypeVar("Value")
# The two protocols that clients speak: with a handshake, as until 2025, and without.
ERAS = ("legacy", "2026-07-28")


def with_client(
    url: str, token: str, use: Callable[[Client], Awaitable[Value]], *, era: str = ERAS[1]
) -> Value:
    """What `use` returns, given a connected client. Raises MCPError."""

    async def run() -> Value:
        headers = {"Authorization": f"Bearer {token}"}
        async with create_mcp_http_client(headers=headers) as http:
            transport = streamable_http_client(f"{url}/mcp", http_client=http)
            async with Client(transport, mode=era) as client:
                try:
                    return await use(client)
                except MCPError as error:
                    # Raised in there it would come out wrapped in groups.
                    refused = error
        raise refused

    return asyncio.run(run())


def call(
    url: str, token: str, name: str, /, *, meta: Any = None, era: str = ERAS[1], **arguments: Any
) -> CallToolResult:
    """One call by a client of its own, whose answer fits the tool's schema."""

    async def use(client: Client) -> CallToolResult:
        await client.list_tools()
        return await client.call_tool(name, arguments, meta=meta)

    return with_client(url, token, use, era=era)


def tools(url: str, token: str, *, era: str = ERAS[1]) -> dict[str, Tool]:
    """The tools that the token is shown, by name."""

    async def use(client: Client) -> dict[str, Tool]:
        return {tool.name: tool for tool in (await client.list_tools()).tools}

    return with_client(url, token, use, era=era)

"""A tool of an MCP server as one of ours; see README.md."""

from tools.catalog.mcp_call.provider import MCP, honouring_keys
from tools.catalog.mcp_call.server import HttpServer, StdioServer
from tools.catalog.mcp_call.tool import ask_server, mcp_tool

__all__ = ["MCP", "HttpServer", "StdioServer", "ask_server", "honouring_keys", "mcp_tool"]

"""The system check of the file of MCP servers.

Guarantees: everything that is wrong with it is an Error at start, with its place and the fix.
Does not ask the servers: `doctor` and `describe_mcp` do. How safe the declarations are together
is said by the checks of tools, as of any tool.
"""

from typing import Any

from django.core.checks import CheckMessage, Error

from tools.mcp_servers.declaring import declared_servers


def check_mcp_servers(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """What was found when the file was read; Django's check interface."""
    declared = declared_servers()
    return [
        Error(
            f"AGENTOPS_MCP_SERVERS, {declared.path}: {problem}",
            hint="Correct the file; docs/how-to/call-mcp-servers.md has every word of it.",
            id="tools.E025",
        )
        for problem in declared.problems
    ]

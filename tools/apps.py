"""Finds the tools of every installed app when Django is ready.

Guarantees: the `tools` module of each app is imported once, that of `runs` with the tools that
the runtime itself brings among them, and an error in one stops the start; then the tools of the
MCP servers that the settings name, whose errors are said by a system check.
Does not look outside the installed apps, and asks no server.
"""

from importlib import import_module
from pathlib import Path

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import register
from django.utils.module_loading import module_has_submodule


class ToolsConfig(AppConfig):
    """The outside world: tool specs, registry, outcomes."""

    name = "tools"
    verbose_name = "Tools"

    def ready(self) -> None:
        from tools.checks import check_tools
        from tools.checks_limits import check_limits

        discover_tools()
        # Last, so that a name which is taken is a fault of the file and not of an app.
        if (path := getattr(settings, "AGENTOPS_MCP_SERVERS", None)) is not None:
            _declare_servers(path)
        register(check_tools)
        register(check_limits)


def _declare_servers(path: Path) -> None:
    # Imported here: nobody else waits for what a client of MCP needs.
    from tools.mcp_servers.checks import check_mcp_servers
    from tools.mcp_servers.declaring import declare_servers

    declare_servers(path)
    register(check_mcp_servers)


def discover_tools() -> None:
    """Import `<app>.tools` of every installed app that has one."""
    for config in apps.get_app_configs():
        if config.module is not None and module_has_submodule(config.module, "tools"):
            import_module(f"{config.name}.tools")

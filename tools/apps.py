"""Finds the tools of every installed app when Django is ready.

Guarantees: the `tools` module of each app is imported once, that of `runs` with the tools that
the runtime itself brings among them, and an error in one stops the start.
Does not look outside the installed apps.
"""

from importlib import import_module

from django.apps import AppConfig, apps
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
        register(check_tools)
        register(check_limits)


def discover_tools() -> None:
    """Import `<app>.tools` of every installed app that has one."""
    for config in apps.get_app_configs():
        if config.module is not None and module_has_submodule(config.module, "tools"):
            import_module(f"{config.name}.tools")

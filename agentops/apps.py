import gc

from django.apps import AppConfig

from agentops import (
    celery,  # noqa: F401  tasks are published through the current app
    logs,
)
from agentops.telemetry import lines
from runs import events


class AgentopsConfig(AppConfig):
    name = "agentops"
    verbose_name = "Access"

    def ready(self) -> None:
        from agentops import checks  # noqa: F401  registers the system checks

        logs.configure()
        events.subscribe(lines.hear)
        from agentops.metrics import counting, flushing  # noqa: F401  hears of workers

        counting.listen()
        # Off since the settings. Nothing that is loaded by now is ever looked at again.
        gc.freeze()
        gc.enable()

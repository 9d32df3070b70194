from django.apps import AppConfig

from agentops import celery  # noqa: F401  tasks are published through the current app


class AgentopsConfig(AppConfig):
    name = "agentops"
    verbose_name = "Access"

    def ready(self) -> None:
        from agentops import checks  # noqa: F401  registers the system checks

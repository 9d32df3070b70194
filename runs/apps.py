from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class RunsConfig(AppConfig):
    name = "runs"
    verbose_name = "Runs"

    def ready(self) -> None:
        from runs import (  # noqa: F401  registers the system checks
            checks,
            checks_budgets,
            checks_flow,
            checks_llm,
        )

        # `tools` was discovered by its own app, which is ready before this one.
        autodiscover_modules("agents")

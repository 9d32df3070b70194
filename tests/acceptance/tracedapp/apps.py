"""`AGENTOPS_APPS=tests.acceptance.tracedapp` arms the fault that CRASH_AT asks for."""

import os

from django.apps import AppConfig


class TracedConfig(AppConfig):
    name = "tests.acceptance.tracedapp"
    label = "tracedapp"

    def ready(self) -> None:
        from tests.crash.faultapp import faults

        if told := os.environ.get("CRASH_AT", ""):
            faults.arm(told)

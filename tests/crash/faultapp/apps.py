"""`AGENTOPS_APPS=tests.crash.faultapp` arms the fault that CRASH_AT asks for."""

import os

from django.apps import AppConfig


class FaultConfig(AppConfig):
    name = "tests.crash.faultapp"
    label = "faultapp"

    def ready(self) -> None:
        from tests.crash.faultapp import faults

        if told := os.environ.get("CRASH_AT", ""):
            faults.arm(told)

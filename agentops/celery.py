"""The Celery application.

A message is a wake-up: it may be lost, doubled or late without harm, because
PostgreSQL owns the state and a sweep finds every run that is due. So messages
are acknowledged late, results are not kept, and nothing is retried or delayed
by the broker.
"""

import os
import warnings
from typing import Any

from celery import Celery, signals
from celery.platforms import SecurityWarning  # type: ignore[attr-defined]

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentops.settings")

# Celery warns of root because of pickled messages; only JSON is accepted here.
warnings.filterwarnings("ignore", category=SecurityWarning)

app = Celery("agentops")


@signals.worker_init.connect
def _require_sound(**_: Any) -> None:
    from django.core.management.base import SystemCheckError

    from agentops.checks import require_sound  # Django is set up by now, not before

    try:
        require_sound()
    except SystemCheckError as error:
        # Celery logs an ordinary exception of a signal and goes on.
        raise SystemExit(str(error)) from error


app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(["agentops.notifications"])

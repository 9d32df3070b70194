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
# Celery would run Django's checks and drop what they find; a worker runs them itself, below.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

# Celery warns of root because of pickled messages; only JSON is accepted here.
warnings.filterwarnings("ignore", category=SecurityWarning)

app = Celery("agentops")


@signals.worker_init.connect
def _require_sound(**_: Any) -> None:
    from django.core.management.base import SystemCheckError

    from agentops.checks import require_sound  # Django is set up by now, not before

    try:
        require_sound(pages=False)
    except SystemCheckError as error:
        # Celery logs an ordinary exception of a signal and goes on.
        raise SystemExit(str(error)) from error


@signals.worker_ready.connect
def _record_here(sender: Any, **_: Any) -> None:
    # Forked workers each record for themselves: a child has no threads of its parent.
    if "prefork" not in type(sender.pool).__module__:
        _record()


@signals.worker_process_init.connect
def _record(**_: Any) -> None:
    from agentops.telemetry import exporting

    exporting.start()


@signals.worker_shutdown.connect
@signals.worker_process_shutdown.connect
def _send_last_spans(**_: Any) -> None:
    from agentops.telemetry import exporting

    exporting.stop()


@signals.worker_process_shutdown.connect
def _write_last_lines(**_: Any) -> None:
    from agentops import logs

    # A forked worker runs nothing more of what Python does at an end.
    logs.flush()


@signals.setup_logging.connect
def _keep_logging(**_: Any) -> None:
    """Django has set logging up by the settings; Celery would do it anew, in its own form."""


app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(["agentops.notifications"])

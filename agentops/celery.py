"""The Celery application.

A message is a wake-up: it may be lost, doubled or late without harm, because
PostgreSQL owns the state and a sweep finds every run that is due. So messages
are acknowledged late, results are not kept, and nothing is retried or delayed
by the broker.
"""

import os
import warnings

from celery import Celery
from celery.platforms import SecurityWarning  # type: ignore[attr-defined]

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentops.settings")

# Celery warns of root because of pickled messages; only JSON is accepted here.
warnings.filterwarnings("ignore", category=SecurityWarning)

app = Celery("agentops")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

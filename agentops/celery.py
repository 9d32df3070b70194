"""The Celery application.

A message is a wake-up: it may be lost, doubled or late without harm, because
PostgreSQL owns the state and a sweep finds every run that is due. So messages
are acknowledged late, results are not kept, and nothing is retried or delayed
by the broker.
"""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentops.settings")

app = Celery("agentops")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

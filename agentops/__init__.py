"""The front door: settings, the Celery app, URLs, access tokens, embedded servers."""

from agentops.celery import app as celery_app

__all__ = ["celery_app"]

"""Celery's front door to the upkeep of received keys."""

from celery import shared_task

from tools import retention


@shared_task(name="tools.purge_keys")
def purge_keys() -> None:
    """Drop results that are past their retention, and forget keys that nobody asks for."""
    retention.run()

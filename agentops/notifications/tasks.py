"""Celery's front door to notifications."""

from celery import shared_task

from agentops.notifications import sending


@shared_task(name="agentops.send_notifications")
def send_notifications() -> None:
    """Hand on what the outbox holds, and send what is due."""
    sending.run_once()

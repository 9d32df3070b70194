"""Celery's front door: one short, named, idempotent task."""

from celery import shared_task

from approvals import sweeps


@shared_task(name="approvals.sweep_approvals")
def sweep_approvals() -> None:
    """Expire, remind of and escalate the approvals whose dates have passed."""
    sweeps.run_once()

"""What forked processes do at once. Imported there, so it needs no fixtures."""

from uuid import UUID

from django.conf import settings

from runs.access import operator
from runs.commands import start_run
from runs.lease import claim


def try_to_claim(run_id: UUID) -> str:
    settings.AGENTOPS_LEASE_SECONDS = 30.0
    return "claimed" if claim(run_id=run_id, owner="one of many") else "nothing"


def create() -> str:
    started = start_run(
        actor=operator(), agent="crash_sighted", input={"same": True}, idempotency_key="one key"
    )
    return f"{'replayed' if started.replayed else 'created'} {started.run.id}"

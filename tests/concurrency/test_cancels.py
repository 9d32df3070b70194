"""A cancel request reaches a run at the same moment as its worker lets it go."""

import threading
from collections.abc import Callable

import pytest
from django.db import connection

from runs import CallTools, ToolCall, events
from runs.access import operator
from runs.commands import cancel_run
from runs.engine import advance
from runs.models import AgentRun, ToolOperation
from runs.state import OperationStatus, RunState
from tools import Approve, Call, EffectType, tool

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(60)]


def test_a_cancel_that_arrives_while_the_run_is_parked_for_a_signature_is_not_forgotten(
    start: Callable[..., AgentRun],
) -> None:
    """Parking clears the run's date; the request, one commit earlier, had set it."""

    @tool(effect_type=EffectType.READ, approval_policy=Approve())
    def look(call: Call) -> int:
        """Look, once somebody signed."""
        return 1

    run = start(decider=lambda context: CallTools(ToolCall("look")), tools=("look",))

    def cancel_elsewhere() -> None:
        cancel_run(actor=operator(), run_id=run.id)
        connection.close()

    def cancel_before_parking(event: events.Event) -> None:
        if event.name is events.Name.COMMIT_STARTING and decided:
            decided.clear()
            elsewhere = threading.Thread(target=cancel_elsewhere)
            elsewhere.start()
            elsewhere.join()
        elif event.name is events.Name.DECIDER_DONE:
            decided.append(True)

    decided: list[bool] = []
    unsubscribe = events.subscribe(cancel_before_parking)
    try:
        assert advance(run_id=run.id, owner="one").state is RunState.WAITING_FOR_APPROVAL
    finally:
        unsubscribe()
    run.refresh_from_db()
    assert run.wake_at is not None
    advance(run_id=run.id, owner="another")
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED
    assert ToolOperation.objects.get(run=run).status == OperationStatus.CANCELLED

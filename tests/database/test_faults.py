"""What a fault of our own, or a deployment in between, may not change."""

from collections.abc import Callable

import pytest

from runs import events
from runs.access import operator
from runs.commands import reconcile_now
from runs.models import AgentRun
from runs.state import RunState
from tests.database.kit import (
    ON_DATABASE,
    Script,
    call_once,
    drive,
    drive_when_due,
    scripted_tool,
)
from tools.registry import isolated_registry

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


def test_an_answer_survives_a_fault_between_the_call_and_its_record(start: Start) -> None:
    look_up = Script()
    script = scripted_tool("done", look_up=look_up)
    run = start(decider=call_once(), tools=("pay",))
    called: list[bool] = []

    def break_once(event: events.Event) -> None:
        if event.name is events.Name.CALL_DONE:
            called.append(True)
        if event.name is events.Name.COMMIT_STARTING and called == [True]:
            called.append(True)
            raise RuntimeError("a fault of ours")

    unsubscribe = events.subscribe(break_once)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        drive(run)
    unsubscribe()
    run.refresh_from_db()
    assert "a fault of ours" in run.error
    drive_when_due(run)
    assert (run.state, run.result, run.error) == (RunState.COMPLETED, "done", "")
    assert (len(script.calls), len(look_up.calls)) == (1, 0)


def test_while_a_person_is_awaited_nothing_is_sent_whatever_a_deployment_changed(
    start: Start,
) -> None:
    scripted_tool(ConnectionResetError("lost"), max_attempts=1)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    assert run.state == RunState.WAITING_FOR_RESOLUTION
    with isolated_registry():
        later = scripted_tool("sent again", max_attempts=5)
        reconcile_now(actor=operator())
        drive(run)
        assert later.calls == []
    assert run.state == RunState.WAITING_FOR_RESOLUTION

"""The engine, driven in process on a real database."""

from collections.abc import Callable

import pytest

from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.engine import advance
from runs.models import AgentRun
from runs.state import RunState
from tools import Call, EffectType, tool

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_run_of_tool_steps_completes(start: Callable[..., AgentRun]) -> None:
    @tool(effect_type=EffectType.READ)
    def double(call: Call, number: int) -> int:
        """Double a number."""
        return 2 * number

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("double", number=context.input["number"]))
        return Finish(context.last.result)

    run = start(decider=decide, tools=("double",), input={"number": 4})
    advance(run_id=run.id, owner="test")
    run.refresh_from_db()
    assert (run.state, run.result) == (RunState.COMPLETED, 8)

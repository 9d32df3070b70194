"""What the kernel itself carries out is told by no name: no tool and no call passes for it."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from runs import Fail, Finish, Script, ToolCall
from runs.built_in import BUILT_IN
from runs.checks import check_tool_names
from runs.models import AgentRun, ToolOperation
from tests.database.delegating import worker
from tests.database.handing import Answer, Mind, Seen, start_llm
from tests.database.kit import ON_DATABASE, drive
from tools import Call, EffectType, tool

pytestmark = ON_DATABASE


@pytest.mark.parametrize("name", sorted(BUILT_IN))
@pytest.mark.parametrize("agent", ["helper", 5, None, ["x"], {"a": 1}], ids=repr)
def test_a_call_of_such_a_name_is_a_call_of_an_unknown_tool(
    name: str, agent: Any, tmp_path: Path
) -> None:
    worker(Script(Finish(1)))

    def decide(seen: Seen) -> Answer:
        return "I see" if seen.results else [(name, {"agent": agent, "run": agent})]

    run = start_llm(mind := Mind(decide))
    drive(run)
    assert run.state == "COMPLETED", run.error
    ((called, said),) = mind.seen[-1].results
    assert (called, said["status"], said["never_sent"]) == (name, "CANCELLED", "invalid")
    assert "no tool" in said["error"].lower() or "unknown" in said["error"].lower()
    assert not AgentRun.objects.exclude(id=run.id).exists()
    call_command("export_case", str(run.id), output=tmp_path / "case.yaml", stdout=StringIO())


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_a_tool_of_such_a_name_is_called_as_any_tool_is(name: str) -> None:
    """The system check refuses it; where nobody looks, it still starts nobody's run."""
    called = []

    @tool(name=name, effect_type=EffectType.NON_IDEMPOTENT_WRITE)
    def other(call: Call, agent: str, run: str) -> str:
        called.append((agent, run))
        return "called"

    worker(Script(Finish(1)))
    stranger = start_llm(Mind(lambda seen: "done"))

    def decide(seen: Seen) -> Answer:
        given = {"agent": "helper", "run": str(stranger.id)}
        return "done" if seen.results else [(name, given)]

    run = start_llm(Mind(decide), tools=(name,))
    drive(run)
    assert run.state == "COMPLETED", run.error
    assert called == [("helper", str(stranger.id))]
    assert AgentRun.objects.filter(parent=run).count() == 0


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_a_tool_of_such_a_name_is_an_error_at_start(name: str) -> None:
    @tool(name=name, effect_type=EffectType.READ)
    def other(call: Call) -> str:
        return ""

    (error,) = check_tool_names()
    assert (error.id, name in error.msg) == ("runs.E020", True)


def test_what_a_handler_names_is_a_tool_and_never_a_run(start: Callable[..., AgentRun]) -> None:
    stranger = start(decider=Script(Finish(1)))

    @tool(
        effect_type=EffectType.NON_IDEMPOTENT_WRITE,
        compensation_handler=lambda call: ToolCall("compensate_run", run=str(stranger.id)),
    )
    def pay(call: Call) -> str:
        return "paid"

    run = start(
        decider=Script(ToolCall("pay"), Fail("no")), tools=("pay",), on_failure="compensate"
    )
    drive(run)
    drive(run)
    correction = ToolOperation.objects.get(run=run, compensates__isnull=False)
    assert (correction.status, correction.external_ref) == ("CANCELLED", "")
    assert run.paused_at is not None

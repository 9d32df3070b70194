"""An agent that compensates on failure is told where it cannot."""

from runs import Agent, Finish, Script
from runs.checks import check_agents
from tools import Call, EffectType, tool


def _told() -> list[str]:
    return [one.msg for one in check_agents() if one.id == "runs.W002"]


def _define() -> None:
    for name, effect, handler in (
        ("read", EffectType.READ, None),
        ("undo", EffectType.TRANSACTIONAL, None),
        ("do", EffectType.TRANSACTIONAL, "undo"),
        ("pivot", EffectType.TRANSACTIONAL, None),
    ):

        @tool(name=name, effect_type=effect, compensation_handler=handler)
        def act(call: Call) -> None:
            """Act."""


def test_a_write_without_a_handler_is_its_pivot() -> None:
    _define()
    Agent(
        name="careful",
        decider=Script(Finish()),
        tools=("read", "do", "pivot"),
        on_failure="compensate",
    )
    (told,) = _told()
    assert "'careful'" in told
    assert "'pivot'" in told


def test_an_agent_that_stops_on_failure_is_told_nothing() -> None:
    _define()
    Agent(name="plain", decider=Script(Finish()), tools=("do", "pivot"))
    assert _told() == []


def test_an_agent_whose_writes_can_all_be_corrected_is_told_nothing() -> None:
    _define()
    Agent(name="whole", decider=Script(Finish()), tools=("read", "do"), on_failure="compensate")
    assert _told() == []

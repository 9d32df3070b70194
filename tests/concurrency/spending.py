"""A tool that everybody together may call once, and agents that call it: for many processes."""

import threading
from collections.abc import Callable
from uuid import UUID

from django.conf import settings
from django.db import connection

from runs import Agent, CallTools, Context, Decision, Fail, Finish, ToolCall
from runs.access import operator
from runs.agents import all_agents
from runs.commands import start_run
from runs.engine import advance
from runs.models import AgentRun
from tests.processes import wait_until
from tools import Call, EffectType, Provider, Retry, tool

BOOKS = "CREATE TABLE spent (operation text, what text)"
_turn = threading.Lock()
EAGER = Retry(max_attempts=5, first_delay=0.05, max_delay=0.2)


def register(*orders: str) -> str:
    """Make the tool and an agent that spends on these, in one decision; returns its name."""
    name = "spender of " + " and ".join(orders)
    with _turn:
        if name not in {agent.name for agent in all_agents()}:
            if not any("spend" in agent.tools for agent in all_agents()):
                _register_tool()
            Agent(name=name, decider=_decide(orders), tools=("spend",))
    return name


def spend_together() -> str:
    """In one of many threads of many processes: start a run of one's own and see it through."""
    settings.AGENTOPS_LEASE_SECONDS = 30.0
    run = start_run(actor=operator(), agent=register("lunch")).run
    see_through(run.id)
    return str(AgentRun.objects.get(id=run.id).result)


def see_through(run_id: UUID) -> None:
    """Drive the run until it is finished, as its only worker."""

    def is_finished() -> bool:
        advance(run_id=run_id, owner="one of many")
        return AgentRun.objects.filter(id=run_id, finished_at__isnull=False).exists()

    wait_until(is_finished, what=f"run {run_id} is finished", seconds=45)


def _register_tool() -> None:
    @tool(
        provider=Provider(name="till"),
        effect_type=EffectType.NON_IDEMPOTENT_WRITE,
        intent_key=("what",),
        intent_scope="global",
        retry_policy=EAGER,
    )
    def spend(call: Call, what: str) -> str:
        """Spend on something."""
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO spent VALUES (%s, %s)", [call.operation_id, what])
        return call.operation_id


def _decide(orders: tuple[str, ...]) -> Callable[[Context], Decision]:
    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(*(ToolCall("spend", what=what) for what in orders))
        if all(seen.committed for seen in context.observations):
            return Finish([seen.result for seen in context.observations])
        return Fail("not everything was spent")

    return decide

"""What names a call: its key, and within its run the step and action.

Guarantees: a step and action of a thread name the same call whether the thread is given or the
run that it is, and also after that run was purged; the same request has the same digest, whatever
else is said of why it is made and how long it is waited for.

Does not look for calls (`accepting`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any
from uuid import UUID

from runs.access import Actor
from runs.models import NAME, AgentRun, GatewayCall
from runs.planning import operation_id
from runs.starting import KEY_OF_THREAD
from tools.canonical import digest


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One call as an agent that runs elsewhere asks for it.

    `run` is a run of an external agent; `thread` is the caller's own name for one, which is
    started where there is none. With neither, the call is a run of its own. `step` and `action`
    name the call within the run, whatever key it comes under. `agent` is the external agent in
    whose name a new run is started.
    """

    tool: str
    arguments: Any
    key: str
    run: UUID | None = None
    thread: str | None = None
    step: int | None = None
    action: str | None = None
    agent: str | None = None
    rationale: str = ""

    @property
    def is_named(self) -> bool:
        """Whether it is named within its run."""
        return self.step is not None or self.action is not None


def key_of_thread(actor: Actor, thread: str) -> str:
    """The idempotency key of the run that the actor's thread is. Nobody else may give it."""
    return f"thread:{digest([actor.keys, thread])[:48]}"


def digest_of(asked: Asked) -> str:
    """What the same request has in common with itself: not why, nor how long it is waited for."""
    return digest(
        {
            "tool": asked.tool,
            "arguments": asked.arguments,
            "run": str(asked.run) if asked.run is not None else None,
            "thread": asked.thread,
            "step": asked.step,
            "action": asked.action,
            "agent": asked.agent,
        }
    )


def means_the_same(asked: Asked, known: GatewayCall, run: AgentRun) -> bool:
    """Whether this asks for what `known`, which has the same name in the run, asked for, however
    either of them names that run, its agent, or what goes without saying."""
    return any(digest_of(one) == known.request_digest for one in _spellings(asked, run))


def name_call(actor: Actor, asked: Asked, run: UUID | AgentRun) -> GatewayCall:
    """The call's row, but for its dates."""
    run_id = run.pk if isinstance(run, AgentRun) else run
    if asked.is_named:
        place = _place_of(run) if isinstance(run, AgentRun) else run
        what = ["action", asked.action or asked.tool]
    else:
        place = run_id
        what = ["key", digest([actor.keys, asked.key])]
    return GatewayCall(
        run_id=run_id,
        scope=actor.keys,
        key=asked.key,
        request_digest=digest_of(asked),
        operation_id=operation_id(
            run_id=place, step_number=asked.step or 0, logical_action=f"external {what}"
        ),
        tool=asked.tool,
        arguments=asked.arguments,
        rationale=asked.rationale,
        created_by=actor.name,
        door=actor.door,
        address=actor.address,
    )


def _place_of(run: AgentRun) -> UUID:
    """Within what step and action are names: the thread, which outlives its run, or the run."""
    found = KEY_OF_THREAD.fullmatch(run.idempotency_key or "")
    return UUID(hex=found["name"]) if found is not None else run.pk


def _spellings(asked: Asked, run: AgentRun) -> Iterator[Asked]:
    yield asked
    places: list[dict[str, Any]] = [{"run": run.pk, "thread": None}]
    # A longer one was cut.
    if len(thread := run.labels.get("thread", "")) in range(1, NAME):
        places.append({"run": None, "thread": thread})
    agents = (None, run.agent)
    steps = (None, 0) if not asked.step else (asked.step,)
    actions = (None, asked.tool) if asked.action in (None, asked.tool) else (asked.action,)
    for place, agent, step, action in product(places, agents, steps, actions):
        yield replace(asked, **place, agent=agent, step=step, action=action)

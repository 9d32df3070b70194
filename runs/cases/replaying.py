"""Having today's agent decide a case again.

Guarantees: at step n the agent is shown what the run's decider was shown there, whatever it
decided before; nothing is written, no tool is called and no message is sent: a decider that tries
to change a row is refused by the database. A difference is reported as one, never raised.

Does not keep a decider from speaking to others by itself: an llm is really asked, and costs what
it costs. It is shown the same past, and not the same clock, nor what else the database said at
that time of limits, watched operations and incidents.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import partial
from typing import Any, Final, Literal

from runs import deciders, decisions
from runs.agents import Agent, Decider, get_agent
from runs.cases.comparing import Difference, find_differences
from runs.cases.effects import reading_only
from runs.cases.hiding import hide_in_decision
from runs.cases.shapes import Case, StepSeen
from runs.cases.telling import tell
from runs.context import WINDOW, BadAnswer, Context, Usage
from runs.deciders import Llm, LlmOptions
from runs.deciding import DECIDER_SECONDS
from runs.decisions import MOST_CALLS, CallTools, Decision, Finish
from runs.errors import InvalidInput, LlmUnavailable, RunsError, UnusableAnswer
from runs.final_results import fit_result
from runs.hiding import Hider
from runs.history import to_received
from runs.llm.asking import ask_llm, most_seconds
from runs.sensitive import names_of_agent
from runs.undecided import MAX_FAILURES
from tools.canonical import check_json
from tools.execution import run_within
from tools.outcome import describe
from tools.redaction import bound_text

LONGEST_PROBLEM: Final = 500


class UnknownStep(RunsError):
    """A case has no such step."""

    def __init__(self, *, step: int, known: Sequence[int]) -> None:
        self.step, self.known = step, tuple(known)
        super().__init__(f"--step: the case has no step {step}. Give {_say_range(known)}.")


@dataclass(frozen=True)
class Replayed:
    """One step, decided again. `problem` says why there was no decision."""

    step: int
    expected: dict[str, Any] | None
    decided: dict[str, Any] | None
    differences: tuple[Difference, ...] = ()
    problem: str = ""

    @property
    def verdict(self) -> Literal["same", "different", "open"]:
        """`open` where the case expects nothing."""
        if self.differences or self.problem:
            return "different"
        return "open" if self.expected is None else "same"


@dataclass(frozen=True)
class Replay:
    """What today's agent decides, and what deciding it used."""

    agent: str
    agent_version: str
    recorded_version: str
    steps: tuple[Replayed, ...]
    llm_requests: int = 0
    tokens: int = 0
    # Of the requests whose price is known.
    cost_usd: Decimal = Decimal(0)

    @property
    def matches(self) -> bool:
        return all(step.verdict != "different" for step in self.steps)

    def __str__(self) -> str:
        return tell(self)


def replay(case: Case, *, step: int | None = None, llm: str | None = None) -> Replay:
    """Have the registered agent of the case's name decide its steps again, or only `step`.

    `llm` is asked in place of the agent's own, if its decider is one. Raises UnknownAgent,
    UnknownStep, InvalidInput (an llm for an agent that asks none) and LlmUnavailable.
    """
    agent = get_agent(case.inputs.agent)
    decider = _choose_decider(agent, llm)
    steps = [one for one in case.inputs.steps if step is None or one.step == step]
    if step is not None and not steps:
        raise UnknownStep(step=step, known=[one.step for one in case.inputs.steps])
    hider = Hider(names_of_agent(agent.name))
    used = Usage()
    requests = 0
    replayed = []
    for one in steps:
        context = _build_context(case, agent, one, is_llm=isinstance(decider, Llm))
        replayed.append(_decide_again(case, agent, decider, context, hider))
        used.add(tokens=context.usage.tokens, cost_usd=context.usage.cost_usd)
        requests += len(context.requests)
    return Replay(
        agent=agent.name,
        agent_version=agent.version,
        recorded_version=case.metadata.agent_version if case.metadata is not None else "",
        steps=tuple(replayed),
        llm_requests=requests,
        tokens=used.tokens,
        cost_usd=used.cost_usd,
    )


def _choose_decider(agent: Agent, llm: str | None) -> Decider:
    if llm is None:
        return agent.decider
    if not isinstance(agent.decider, Llm):
        raise InvalidInput(
            field="--llm",
            value=ascii(llm),
            fix=f"Leave it out: agent {agent.name!r} decides by {agent.decider_name}.",
        )
    options = {one.name: getattr(agent.decider.options, one.name) for one in fields(LlmOptions)}
    # Nobody but the one that was named is asked.
    return Llm(llm, agent.decider.instructions, **options | {"fallback": ()})


def _build_context(case: Case, agent: Agent, at: StepSeen, *, is_llm: bool) -> Context:
    """What the run's decider was shown at a step, as `runs.canonical` has it."""
    inputs = case.inputs
    handoffs = [one for one in inputs.handoffs if one.through_step < at.step]
    newest = handoffs[-1] if handoffs else None
    handed = newest.constraints if newest is not None else ()
    seen = [one for one in inputs.observations if one.inherited or one.step < at.step]
    if not is_llm:
        seen = seen[-WINDOW:]
    elif newest is not None and not newest.inherited:
        seen = [one for one in seen if not one.inherited and one.step > newest.covers_step]
    observations = tuple(one.to_observed(at_step=at.step) for one in seen)
    return Context(
        run_id=inputs.run,
        agent=agent.name,
        objective=inputs.objective,
        input=deepcopy(inputs.input),
        labels=dict(inputs.labels),
        step_number=at.step,
        position=at.position,
        observations=observations,
        signals=to_received(observations),
        constraints=tuple(dict.fromkeys((*agent.constraints, *handed))),
        handoff=newest.body if newest is not None else None,
    )


def _decide_again(
    case: Case, agent: Agent, decider: Decider, context: Context, hider: Hider
) -> Replayed:
    expected = case.expected_at(context.step_number)
    try:
        body = hide_in_decision(hider, _ask(agent, decider, context))
    except LlmUnavailable:
        # Nobody decided, which says nothing about the agent.
        raise
    except Exception as error:  # noqa: BLE001  a decider is somebody else's code
        problem = bound_text(describe(error), LONGEST_PROBLEM)
        return Replayed(context.step_number, expected, None, problem=problem)
    found: list[Difference] = []
    if expected is not None:
        found = find_differences(expected, body, is_llm=isinstance(decider, Llm))
    return Replayed(context.step_number, expected, body, tuple(found))


def _ask(agent: Agent, decider: Decider, context: Context) -> dict[str, Any]:
    """The decision as it would be stored; raises whatever makes it unusable.

    An llm hears what was wrong with its answer, as often as in a run.
    """
    for _ in range(MAX_FAILURES - 1):
        try:
            return _ask_once(agent, decider, context)
        except UnusableAnswer as error:
            bad = BadAnswer(error.kind, error.detail)
            context = replace(context, bad_answers=(*context.bad_answers, bad))
    return _ask_once(agent, decider, context)


def _ask_once(agent: Agent, decider: Decider, context: Context) -> dict[str, Any]:
    seconds = most_seconds(decider) if isinstance(decider, Llm) else DECIDER_SECONDS
    answer = run_within(partial(_ask_reading_only, agent, decider, context), seconds=seconds)
    if isinstance(answer, CallTools) and not 0 < len(answer.calls) <= MOST_CALLS:
        raise ValueError(f"a decision calls 1 to {MOST_CALLS} tools, not {len(answer.calls)}")
    body = decisions.encode(answer)
    check_json(body, field="decision")
    decisions.decode(body, where=f"step {context.step_number}")
    return body


def _ask_reading_only(agent: Agent, decider: Decider, context: Context) -> Decision:
    with reading_only():
        if isinstance(decider, Llm):
            return ask_llm(decider, agent, context)
        answer = deciders.ask(decider, context)
    return Finish(fit_result(answer.result, agent.output)) if isinstance(answer, Finish) else answer


def _say_range(known: Sequence[int]) -> str:
    return str(known[0]) if len(known) == 1 else f"one from {known[0]} to {known[-1]}"

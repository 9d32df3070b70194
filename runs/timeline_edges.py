"""What the run's own edges refer to: its decisions, its waits, and where it came from.

Guarantees: one query for each kind of row that the edges of a page name, and none for a kind
that they do not; what was waited for and what came is shown without the values of sensitive
arguments.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runs.models import AgentRun, ModelDecision, Step, Transition, Wait
from runs.state import RunEvent
from runs.timeline_subject import Subject
from tools.redaction import redact, scrub

_OF_WAITS: Final = (RunEvent.WAIT, RunEvent.WAKE)


@dataclass(frozen=True)
class RunFacts:
    """By step: its decision and its wait. `run` is there where an edge needs it."""

    decisions: Mapping[int, ModelDecision]
    waits: Mapping[int, Wait]
    run: AgentRun | None
    hidden: frozenset[str]


def look_up_facts(subject: Subject, edges: Sequence[Transition]) -> RunFacts:
    """Everything that these edges refer to."""
    own = [edge for edge in edges if edge.operation_id is None]
    decided = [edge.step_number for edge in own if edge.event == RunEvent.RECORD_DECISION]
    waited = [edge.step_number for edge in own if edge.event in _OF_WAITS]
    created = any(edge.event == RunEvent.CREATE for edge in own)
    steps = _steps(subject, {*decided, *waited})
    return RunFacts(
        decisions={one.number: one.decision for one in steps if hasattr(one, "decision")},
        waits={one.number: one.wait for one in steps if hasattr(one, "wait")},
        run=subject.run if created or waited else None,
        hidden=subject.hidden if waited else frozenset(),
    )


def _steps(subject: Subject, numbers: Collection[int]) -> list[Step]:
    """With decision and wait: those of the known holders, and whatever steps nobody held."""
    known = {step: attempt.step for (step, _), attempt in subject.held.items() if step in numbers}
    if missing := set(numbers) - known.keys():
        steps = Step.objects.filter(run_id=subject.run_id, number__in=missing)
        more = steps.select_related("decision", "wait").defer("decision__body")
        known |= {step.number: step for step in more}
    return list(known.values())


def decision_of_edge(edge: Transition, facts: RunFacts) -> ModelDecision | None:
    """The decision that an edge of the run recorded."""
    if edge.operation_id is not None or edge.event != RunEvent.RECORD_DECISION:
        return None
    return facts.decisions.get(edge.step_number)


def evidence_of_run_edge(edge: Transition, facts: RunFacts) -> dict[str, Any] | None:
    """What explains an edge of the run itself, if anything does."""
    match edge.event:
        case RunEvent.CREATE:
            return _origin(facts.run)
        case RunEvent.RECORD_DECISION if edge.step_number in facts.decisions:
            decision = facts.decisions[edge.step_number]
            return {
                "decision": decision.kind,
                "decider": decision.decider,
                "agent_version": decision.agent_version,
                "tool_versions": decision.tool_versions,
            }
        case RunEvent.WAIT if edge.step_number in facts.waits:
            return _began(facts.waits[edge.step_number], facts)
        case RunEvent.WAKE if edge.step_number in facts.waits:
            return _ended(facts.waits[edge.step_number], facts)
    return None


def _origin(run: AgentRun | None) -> dict[str, Any] | None:
    if run is not None and run.parent_operation is not None:
        parent = str(run.parent_id) if run.parent_id else None
        return {"parent_id": parent, "parent_operation": run.parent_operation}
    if run is not None and run.forked_from_id is not None:
        return {"forked_from": str(run.forked_from_id), "step": run.forked_at_step}
    return None


def _began(wait: Wait, facts: RunFacts) -> dict[str, Any]:
    assert facts.run is not None, "it is read with the waits"
    return {
        "waits_for": wait.kind,
        "name": scrub(wait.name, {"input": facts.run.input}, facts.hidden) or None,
        "until": wait.until.isoformat() if wait.until else None,
    }


def _ended(wait: Wait, facts: RunFacts) -> dict[str, Any]:
    return {
        **_began(wait, facts),
        "outcome": wait.outcome,
        "author": wait.author or None,
        "result": redact(wait.result, facts.hidden),
    }

"""From the rows of a claimed run to its `Work`.

Guarantees: loading costs the same however long the run is: the open step, its decision, its
operations and what it waits for, all of one version of the run.

Does not write.
"""

import time
from decimal import Decimal
from itertools import takewhile
from typing import Final

from runs import decisions
from runs.budgets import Spent
from runs.context import BadAnswer
from runs.errors import LeaseLost
from runs.history import Origin
from runs.lease import Claimed
from runs.models import AgentRun, LlmRequest, Step, StepAttempt, ToolOperation, Wait
from runs.state import RunState
from runs.work import Saga, Work

# Beyond this many lost attempts in a row a run is parked long since.
ATTEMPTS_LOOKED_AT: Final = 100
BAD_ANSWERS_SHOWN: Final = 5


def begin(claimed: Claimed) -> Work:
    """The claimed run as the claim's one statement showed it."""
    row = claimed.row
    saga = None
    if row["compensating_since"] is not None:
        ending = RunState(row["compensation_ending"])
        saga = Saga(row["compensating_since"], row["compensation_reason"], ending)
    origin = None
    if row["forked_from_id"] is not None:
        origin = Origin(row["forked_from_id"], row["forked_at_step"], row["created_at"])
    # What is being corrected is not cancelled in the middle.
    is_asked = row["cancel_requested_at"] is not None and saga is None
    return Work(
        lease=claimed.lease,
        run_id=row["id"],
        agent=row["agent"],
        agent_version=row["agent_version"],
        objective=row["objective"],
        input=row["input"],
        labels=row["labels"],
        created_at=row["created_at"],
        state=RunState(row["state"]),
        version=row["version"],
        step_number=row["step_number"],
        failures=row["failures"],
        setbacks=row["setbacks"],
        cancel_requested_by=row["cancel_requested_by"] if is_asked else None,
        requester=row["created_by"],
        requester_user_id=row["created_by_user_id"],
        policy_generation=claimed.policy_generation,
        is_paused=row["paused_at"] is not None,
        clock=(claimed.now, time.monotonic()),
        due_at=row["wake_at"],
        spent=Spent(row["spent_steps"], row["spent_tokens"], Decimal(row["spent_cost_usd"])),
        budget=row["budget"],
        cancel_compensates=row["cancel_compensates"],
        saga=saga,
        parent_id=row["parent_id"],
        root=row["root"],
        depth=row["depth"],
        priority=row["priority"],
        origin=origin,
        lineage=row["lineage"],
        traceparent=row["traceparent"],
        inherited_steps=row["inherited_steps"],
        voided_steps=row["voided_steps"],
        newest_action=row["newest_action"],
        repeats=row["repeats"],
    )


def load(work: Work) -> None:
    """Read the open step, if the run has one. Raises UndecodableDecision, LeaseLost."""
    if work.state in (RunState.READY, RunState.COMPENSATING):
        return
    _read_step(work)
    # Only the holder raises the version, so an unchanged one makes what was read one picture.
    ours = AgentRun.objects.filter(
        id=work.run_id, version=work.version, fence_token=work.lease.fence_token
    )
    if not ours.exists():
        raise LeaseLost(run_id=str(work.run_id), fence_token=work.lease.fence_token)


def _read_step(work: Work) -> None:
    step = (
        Step.objects.select_related("decision")
        .filter(run_id=work.run_id, number=work.step_number, closed_at__isnull=True)
        .first()
    )
    if step is None:
        return
    work.step_id = step.pk
    newest = list(
        step.attempts.order_by("-number").values_list("number", "outcome")[:ATTEMPTS_LOOKED_AT]
    )
    work.attempt = newest[0][0] if newest else 0
    work.lost_attempts = sum(1 for _ in takewhile(_was_lost, (end for _, end in newest)))
    # By the run's own index: there is none by step.
    operations = ToolOperation.objects.filter(run_id=work.run_id, step_number=step.number)
    work.operations = list(operations.order_by("ordinal", "revision"))
    if work.state is RunState.WAITING:
        work.wait = Wait.objects.filter(step_id=step.pk).first()
    if hasattr(step, "decision"):
        work.decision = decisions.decode(
            step.decision.body, where=f"run {work.run_id} step {step.number}"
        )
    elif work.failures:
        work.bad_answers = _read_bad_answers(step)


def _read_bad_answers(step: Step) -> list[BadAnswer]:
    unusable = LlmRequest.objects.filter(
        step=step, purpose=LlmRequest.Purpose.DECIDE, outcome=LlmRequest.Outcome.UNUSABLE
    )
    newest = unusable.order_by("-id").values_list("problem", "detail")[:BAD_ANSWERS_SHOWN]
    return [BadAnswer(kind, detail) for kind, detail in newest][::-1]


def _was_lost(outcome: str) -> bool:
    """One that is open when the run is claimed anew belongs to a worker that vanished."""
    return outcome in ("", StepAttempt.Outcome.LOST)

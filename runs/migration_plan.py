"""What a deployment of this code would do to every active run, before it does.

Guarantees: each active run is in the plan once, with the rule that its agent has in this code;
what the plan calls stranded, no worker of this code goes on with. Runs and their open calls are
read in chunks, so the cost grows with the active runs alone, and nothing is written.

Does not foresee what happens to a run until then, and does not know which of today's workers
stay: what they alone serve is stranded once they are gone.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Final, assert_never
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from runs.agents import Agent, get_agent
from runs.argument_versions import Outlook, judge_stored
from runs.errors import UnknownAgent
from runs.models import AgentRun, Approval, ToolOperation
from runs.serving import knows_tool
from runs.shapes import Shape
from runs.state import SETTLED_STATUSES
from runs.unserved import Pinned, is_served
from runs.versions import Deployed, live_releases

CHUNK: Final = 1000


class Move(StrEnum):
    """What becomes of a run."""

    GOES_ON = "goes_on"
    ADOPTED = "adopted"
    CONTEXT_REBUILT = "context_rebuilt"
    SIGNED_ANEW = "signed_anew"
    STAYS = "stays"
    STRANDED = "stranded"


SENTENCES: Final = {
    Move.GOES_ON: "goes on: its version does not change",
    Move.ADOPTED: "the new version takes its next decision",
    Move.CONTEXT_REBUILT: "the new version takes its next decision, from a rebuilt context",
    Move.SIGNED_ANEW: "the new version has it signed anew, and takes its next decision",
    Move.STAYS: "finishes on the old workers",
    Move.STRANDED: "nobody goes on with it",
}


class Planned(Shape):
    """One run. Counts are of its open calls: signatures asked for anew, stored arguments that
    the tool's `migrate_arguments` brings up to date, and calls that wait for a person."""

    run: str
    agent: str
    pinned: str
    serves: str | None
    state: str
    move: Move
    why: str
    signatures: int
    arguments_migrated: int
    arguments_to_person: int


class Group(Shape):
    """Runs of one agent and version that become the same."""

    agent: str
    pinned: str
    serves: str | None
    move: Move
    why: str
    runs: int
    signatures: int
    arguments_migrated: int
    arguments_to_person: int


def active_runs(*, agent: str | None = None) -> QuerySet[AgentRun]:
    """The runs that a plan is made of."""
    runs = AgentRun.objects.filter(finished_at__isnull=True)
    return runs if agent is None else runs.filter(agent=agent)


def plan_runs(*, agent: str | None = None) -> Iterator[list[Planned]]:
    """The plan, chunk by chunk."""
    releases = live_releases()
    rows = active_runs(agent=agent).order_by("agent", "agent_version", "id")
    columns = ("id", "agent", "agent_version", "state", "step_number", "compensating_since")
    for chunk in _chunks(rows.only(*columns).iterator(chunk_size=CHUNK)):
        calls = _open_calls(chunk)
        unused = _find_unused([call for found in calls.values() for call in found])
        yield [_plan(run, calls.get(run.pk, []), unused, releases) for run in chunk]


def group(plans: Iterable[Planned]) -> list[Group]:
    """The plan in numbers."""
    counted: dict[tuple[str, ...], Group] = {}
    for one in plans:
        key = (one.agent, one.pinned, one.move, one.why)
        have = counted.setdefault(
            key,
            Group(
                **one.model_dump(include={"agent", "pinned", "serves", "move", "why"}),
                runs=0,
                signatures=0,
                arguments_migrated=0,
                arguments_to_person=0,
            ),
        )
        counted[key] = have.model_copy(
            update={
                "runs": have.runs + 1,
                "signatures": have.signatures + one.signatures,
                "arguments_migrated": have.arguments_migrated + one.arguments_migrated,
                "arguments_to_person": have.arguments_to_person + one.arguments_to_person,
            }
        )
    return [counted[key] for key in sorted(counted)]


def make_due(plans: Iterable[Planned]) -> int:
    """Have those looked at now that the new version does something to at once; returns how many.

    The sweep tells the workers.
    """
    ids = [
        one.run
        for one in plans
        if one.move is not Move.STRANDED
        and (one.signatures or one.arguments_migrated or one.arguments_to_person)
    ]
    waiting = AgentRun.objects.filter(id__in=ids, finished_at__isnull=True)
    later = waiting.exclude(wake_at__lte=Now())
    free = later.order_by("id").select_for_update(no_key=True, skip_locked=True)
    with transaction.atomic():
        due = AgentRun.objects.filter(id__in=list(free.values_list("id", flat=True)))
        return due.update(wake_at=Now(), sweep_at=Now())


def _chunks(rows: Iterable[AgentRun]) -> Iterator[list[AgentRun]]:
    ordered = iter(rows)
    while chunk := list(islice(ordered, CHUNK)):
        yield chunk


def _open_calls(runs: Iterable[AgentRun]) -> dict[UUID, list[ToolOperation]]:
    calls = ToolOperation.objects.filter(
        run_id__in=[run.pk for run in runs], step_number=F("run__step_number")
    ).exclude(status__in=SETTLED_STATUSES)
    found: dict[UUID, list[ToolOperation]] = {}
    for call in calls.order_by("ordinal", "revision"):
        found.setdefault(call.run_id, []).append(call)
    return found


def _find_unused(calls: Iterable[ToolOperation]) -> set[UUID]:
    """The requests whose signature is awaited, or was given and not used."""
    asked = [call.approval_id for call in calls if call.approval_id is not None]
    unused = Approval.objects.filter(
        id__in=asked,
        status__in=(Approval.Status.PENDING, Approval.Status.APPROVED),
        spent_at__isnull=True,
    )
    return set(unused.values_list("id", flat=True))


def _plan(
    run: AgentRun, calls: list[ToolOperation], unused: set[UUID], releases: list[Deployed]
) -> Planned:
    try:
        agent = get_agent(run.agent)
    except UnknownAgent:
        agent = None
    signatures = sum(1 for call in calls if call.approval_id in unused)
    move, why = _judge(run, agent, calls, signatures, releases)
    outlooks = [judged.outlook for judged in judge_stored(calls).values()]
    return Planned(
        run=str(run.pk),
        agent=run.agent,
        pinned=run.agent_version,
        serves=agent.version if agent is not None else None,
        state=run.state,
        move=move,
        why=why or SENTENCES[move],
        signatures=signatures if move is Move.SIGNED_ANEW else 0,
        arguments_migrated=outlooks.count(Outlook.MIGRATED),
        arguments_to_person=outlooks.count(Outlook.PERSON),
    )


def _judge(
    run: AgentRun,
    agent: Agent | None,
    calls: list[ToolOperation],
    signatures: int,
    releases: list[Deployed],
) -> tuple[Move, str]:
    """What becomes of a run; and why, where the move alone does not say it."""
    pinned = Pinned(run.agent, run.agent_version)
    if missing := sorted({call.tool for call in calls if not knows_tool(call)}):
        return Move.STRANDED, f"this code has no tool {', '.join(missing)} for its open calls"
    if run.compensating_since is not None:
        return Move.GOES_ON, "corrects what it did, which needs the tools alone"
    if agent is None:
        return Move.STRANDED, "this code has no such agent"
    if run.agent_version == agent.version:
        return Move.GOES_ON, ""
    match agent.on_version_change:
        case "finish_on_old":
            if is_served(pinned, releases):
                return Move.STAYS, ""
            return Move.STRANDED, "it finishes on old workers, and none is alive"
        case "rebuild_context":
            return Move.CONTEXT_REBUILT, ""
        case "reapprove" if signatures:
            return Move.SIGNED_ANEW, ""
        case "next_step" | "reapprove":
            return Move.ADOPTED, ""
        case _ as never:
            assert_never(never)

"""The runs that the database is filled with copies of: each was driven by the kernel itself.

Guarantees: every state that a copy may be in is one that the engine, the commands and the
database's triggers led to. Belongs in a process of its own that has set Django up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

from django.contrib.auth.models import Group, User

from approvals.commands import decide
from approvals.questions import answer_question
from runs.access import Actor, operator
from runs.commands import pause_run, start_run
from runs.engine import Slice, advance
from runs.gateway.accepting import Asked, accept_call
from runs.models import AgentRun, Approval, Question, Worker
from tests.database.kit import make_due

OWNER: Final = "seeded worker"
FOREVER: Final = Slice(steps=1_000_000, seconds=3_600.0)
# How many of so many runs tell each story; what is not said tells "looked once".
OF: Final = 2_000
SHARES: Final[Mapping[str, int]] = {
    "nothing to do": 850,
    "looked twice": 200,
    "refunded": 400,
    "rejected": 20,
    "gave up": 20,
    "lost": 20,
    "signed": 40,
    "denied": 5,
    "took it back": 10,
    "answered": 10,
    "delegates": 20,
    "asked an llm": 200,
    "called": 60,
    # These stay as they are, and are what the desk is about.
    "open": 1,
    "needs a person": 1,
    "waits for a signature": 2,
    "asks": 1,
    "sleeps": 3,
    "waits for a signal": 2,
    "paused": 1,
}


@dataclass(frozen=True)
class Told:
    """The runs of one story, the one that began it first."""

    story: str
    runs: tuple[UUID, ...]


def tell_all() -> list[Told]:
    """Every story once. The first one is "looked once"."""
    boss = User.objects.create_superuser("boss")
    for name in ("finance", "support"):
        boss.groups.add(Group.objects.get_or_create(name=name)[0])
    _work()
    return [_tell(story, boss) for story in ("looked once", *SHARES)]


def tell_long(steps: int) -> UUID:
    """One run of so many steps, which ends."""
    _work()
    run = _start("long", steps=steps)
    advance(run_id=run.id, owner=OWNER, turn=FOREVER)
    return _ended(run, "COMPLETED").id


def _work() -> None:
    """Let the worker of these stories be one that is known."""
    Worker.objects.get_or_create(name=OWNER, defaults={"host": "seeded", "pid": 1})


def _tell(story: str, boss: User) -> Told:
    if story == "called":
        return _call()
    agent = {"took it back": "seeded_saga", "asked an llm": "seeded_llm"}.get(story, "seeded")
    run = _start(story, agent=agent)
    if story == "paused":
        pause_run(actor=operator(), run_id=run.id, reason="Looks wrong; wait for the audit.")
    _drive(run)
    match story:
        case "signed" | "denied":
            _sign(run, boss, "approve" if story == "signed" else "deny")
        case "answered":
            question = Question.objects.get(run=run)
            answer_question(actor=_acting(boss), question_id=question.id, answer="the second")
            _drive(run)
        case "lost" | "needs a person":
            make_due(run)
            _drive(run)
        case "took it back":
            _drive(run)
        case "delegates":
            child = AgentRun.objects.get(parent=run)
            _drive(child)
            _drive(run)
            return Told(story, (_ended(run, "COMPLETED").id, child.id))
    run.refresh_from_db()
    return Told(story, (_ended(run, _ENDS.get(story, "COMPLETED")).id,))


_ENDS: Final = {
    "gave up": "FAILED",
    "took it back": "FAILED",
    "open": "TOOL_STATUS_UNKNOWN",
    "needs a person": "WAITING_FOR_RESOLUTION",
    "waits for a signature": "WAITING_FOR_APPROVAL",
    "asks": "WAITING",
    "sleeps": "WAITING",
    "waits for a signal": "WAITING",
    "paused": "READY",
}


def _call() -> Told:
    """A call from outside, which is a run of its own."""
    asked = Asked(tool="seed_look", arguments={"order": 17}, key=uuid4().hex)
    accepted = accept_call(actor=operator(), asked=asked, wait_seconds=0.0, owner=None)
    assert accepted.call.run_id is not None, "a call without a run opens one"
    run = AgentRun.objects.get(id=accepted.call.run_id)
    _drive(run)
    return Told("called", (_ended(run, "COMPLETED").id,))


def _start(story: str, *, agent: str = "seeded", **given: Any) -> AgentRun:
    return start_run(
        actor=operator(OWNER),
        agent=agent,
        objective=f"Tell the story of one that {story}",
        input={"story": story, **given},
        labels={"team": "shop"},
    ).run


def _drive(run: AgentRun) -> None:
    """As far as it goes without another or more time, and what is due later made due once."""
    advance(run_id=run.id, owner=OWNER, turn=FOREVER)
    run.refresh_from_db()
    if run.wake_at is not None and run.state in ("READY", "COMPENSATING", "WAITING_FOR_APPROVAL"):
        make_due(run)
        advance(run_id=run.id, owner=OWNER, turn=FOREVER)


def _sign(run: AgentRun, boss: User, verdict: Any) -> None:
    approval = Approval.objects.get(run=run)
    decide(
        actor=_acting(boss),
        user=boss,
        approval_id=approval.id,
        verdict=verdict,
        fingerprint=approval.fingerprint,
        reason="The invoice says so.",
    )
    _drive(run)


def _acting(user: User) -> Actor:
    return Actor(name=user.username, scopes=operator().scopes, user_id=user.pk)


def _ended(run: AgentRun, state: str) -> AgentRun:
    run.refresh_from_db()
    told = run.input.get("story", "called")
    assert run.state == state, f"{told} is {run.state}: {run.error}"
    return run

"""What may happen to the runs of random programs, as a state machine.

Guarantees: the kernel, its database and its dates are the real ones; time is the test's own: it
stands still but for moments, and is set forward to the next date or by hours. After every move,
and at the end, a picture is taken and checked; driven on fairly, every run ends.

Does not tell the stories: `test_programs.py` tells some, and lets Hypothesis tell others.
"""

import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any, Final, Literal
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from approvals import sweeps as approval_sweeps
from approvals.errors import ApprovalError
from runs import commands, events
from runs.access import operator
from runs.agents import all_agents, forget_agents
from runs.corrections import correct_by_hand
from runs.delegation import tell_untold_once
from runs.engine import advance
from runs.errors import InvalidInput, RunsError
from runs.lease import heartbeat
from runs.llm import resting
from runs.models import AgentRun, Approval, Question, ToolOperation, Wait, Worker
from runs.resolution import resolve_operation
from runs.state import FINAL_STATES, OperationStatus
from runs.worker_ends import end, end_workers
from tests.database import approving, asking
from tests.database.kit import ask, dies_at, expire_lease, let_pass
from tests.protocol.invariants import violations
from tests.protocol.llms import SimulatedLlm
from tests.protocol.picture import Picture, take
from tests.protocol.programs import SIGNAL, Program, enlist, open_books, programs
from tests.protocol.provider import ANSWERS, LOOK_UPS
from tests.protocol.story import DEATHS
from tools import registry

MOST_GOALS: Final = 2
MOST_FORKS: Final = 2
MOVES_TO_THE_END: Final = 120
# A call that repeats another one looks at it again and again, whoever that one waits for.
PATIENCE: Final = 5
A_MOMENT: Final = 0.002
ENOUGH: Final = 200

_numbers = count(1)

REQUESTS: Final = ("pause", "compensate", "retry", "cancel", "cancel_and_correct", "resume")

PLACE = st.integers(0, 3)
FAULTS = st.lists(st.sampled_from(ANSWERS), max_size=3)
LAGS = st.lists(st.sampled_from(LOOK_UPS), max_size=3)
NTH = st.integers(1, 2)


class Life(RuleBasedStateMachine):
    """What may happen to some runs, in any order. `taken` are the edges, once it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0
        self.known = {agent.name for agent in all_agents()}
        self.registry = registry.isolated_registry()
        self.registry.__enter__()
        self.books = open_books(lambda: time.monotonic() + self.passed)
        self.llm = SimulatedLlm()
        self.name = f"life-{next(_numbers)}"
        self.goals = self.forks = 0
        self.before = Picture()
        self.taken: list[str] = []
        self.unnoticed: list[str] = []
        self.worker = self._new_worker()
        self.person = asking.answerer(f"{self.name}-ann", is_superuser=True)

    # -- Goals and workers ---------------------------------------------------------

    @initialize(program=programs())
    def start_first(self, program: Program) -> None:
        self.start(program)

    @precondition(lambda self: self.goals < MOST_GOALS)
    @rule(program=programs(levels=1))
    def start(self, program: Program) -> None:
        self.goals += 1
        labels = {"life": self.name}
        commands.start_run(
            actor=operator(), agent=enlist(program, llm=self.llm).name, labels=labels
        )

    @rule(answers=FAULTS)
    def go_on(self, answers: Collection[str]) -> None:
        self.work(answers)

    @rule(answers=FAULTS, look_ups=LAGS)
    def work(self, answers: Collection[str] = (), look_ups: Collection[str] = ()) -> None:
        """Every run that is due, now or next, is driven on; the providers fail so meanwhile."""
        self._arm(answers, look_ups)
        self._await_next()
        for run in self._runs():
            advance(run_id=run.id, owner=self.worker)

    @rule(answers=FAULTS, at=st.sampled_from(DEATHS), nth=NTH, is_known=st.booleans())
    def die(self, answers: Collection[str], at: events.Name, nth: int, is_known: bool) -> None:
        """The worker dies at some event; whether anybody notices is another matter."""
        self._arm(answers)
        self._await_next()
        for run in self._runs():
            try:
                with dies_at(at, nth=nth):
                    advance(run_id=run.id, owner=self.worker)
            except AssertionError as error:
                if not str(error).startswith("nobody died"):
                    raise
                continue
            expire_lease(run)
            if is_known:
                end(self.worker, by=Worker.EndedBy.SUPERVISOR, evidence="it exited")
            else:
                self.unnoticed.append(self.worker)
            self.worker = self._new_worker()
            return

    @rule(answers=FAULTS, at=st.sampled_from(DEATHS), nth=NTH)
    def stand_still(self, answers: Collection[str], at: events.Name, nth: int) -> None:
        """The worker is stopped at some event, loses its lease to another, and goes on."""
        self._arm(answers)
        self._await_next()
        seen = 0

        def stop(event: events.Event) -> None:
            nonlocal seen
            run = held.get(event.fields.get("run_id", at_work))
            seen += event.name is at
            if event.name is not at or seen != nth or run is None:
                return
            stopped, self.worker = self.worker, self._new_worker()
            self.unnoticed.append(stopped)
            for lease in list(heartbeat._by_id.values()):
                lease.known_end = time.monotonic() - 1
            expire_lease(run)
            advance(run_id=run.id, owner=self.worker)

        held = {run.id: run for run in self._runs()}
        for at_work in held:
            unsubscribe = events.subscribe(stop)
            try:
                advance(run_id=at_work, owner=self.worker)
            finally:
                unsubscribe()

    @rule(hours=st.sampled_from([0.01, 0.5, 30.0]))
    def wait(self, hours: float) -> None:
        """Nobody works for so long; the sweeps do."""
        self._let_pass(hours * 3600)
        self.sweep()

    def sweep(self) -> None:
        approval_sweeps.run_once()
        tell_untold_once()

    # -- People and programs outside -----------------------------------------------

    @rule(place=PLACE, name=st.sampled_from([SIGNAL, SIGNAL, "stop"]), event=st.integers(1, 2))
    def signal(self, place: int, name: str = SIGNAL, event: int = 1) -> None:
        if run := self._at(place):
            with suppress(RunsError):
                commands.signal_run(
                    actor=operator(),
                    run_id=run.id,
                    name=name,
                    event_id=f"{name}-{event}",
                    payload=event,
                )

    @rule(yes=st.booleans())
    def answer(self, yes: bool = True) -> None:
        """Every open question is answered."""
        for question in Question.objects.filter(run__in=self._ids(), status="open"):
            with suppress(ApprovalError):
                asking.say(question, self.person, dict.fromkeys(question.schema["required"], yes))

    @rule(verdict=st.sampled_from(["approve", "deny"]))
    def sign(self, verdict: str = "approve") -> None:
        """Every pending request for a signature is decided."""
        for approval in Approval.objects.filter(run__in=self._ids(), status="pending"):
            with suppress(ApprovalError):
                approving.say(approval, self.person, verdict)

    @rule(place=PLACE, request=st.sampled_from(REQUESTS))
    def request(self, place: int, request: str) -> None:
        """Somebody asks something of a run; whether that is possible is another matter."""
        getattr(self, request)(place)

    def cancel(self, place: int, compensate: bool = False) -> None:
        if run := self._at(place):
            with suppress(RunsError):
                commands.cancel_run(actor=operator(), run_id=run.id, compensate=compensate)

    def cancel_and_correct(self, place: int) -> None:
        self.cancel(place, compensate=True)

    def pause(self, place: int) -> None:
        if run := self._at(place):
            with suppress(RunsError):
                commands.pause_run(actor=operator(), run_id=run.id)

    def resume(self, place: int) -> None:
        if run := self._at(place):
            self._resume(run)

    def retry(self, place: int) -> None:
        if run := self._at(place):
            with suppress(RunsError):
                commands.retry_run(actor=operator(), run_id=run.id)

    def compensate(self, place: int) -> None:
        if run := self._at(place):
            with suppress(RunsError):
                commands.compensate_run(actor=operator(), run_id=run.id)

    @precondition(lambda self: self.forks < MOST_FORKS)
    @rule(place=PLACE, step=st.integers(0, 3))
    def fork(self, place: int, step: int) -> None:
        if run := self._at(place):
            with suppress(InvalidInput):
                commands.fork_run(actor=operator(), run_id=run.id, step=step)
                self.forks += 1

    @rule(word=st.sampled_from(["not_committed", "rejected"]))
    def ask_person(self, word: Literal["not_committed", "rejected"]) -> None:
        """A person looks into the providers' books, and says what is there."""
        for operation in self._operations(status=OperationStatus.UNKNOWN):
            self._resolve(operation, word)

    @rule()
    def correct_by_hand(self) -> None:
        """A person takes back what a run that is stuck, or has ended, did last."""
        for run in self._runs():
            effects = run.operations.filter(status=OperationStatus.COMMITTED, attempts__gt=0)
            newest = effects.filter(compensates=None).exclude(effect_type="READ")
            if run.compensating_since and (one := newest.order_by("-step_number").first()):
                with suppress(RunsError):
                    correct_by_hand(actor=operator(), operation_id=one.id, evidence="seen to it")

    # -- Checking --------------------------------------------------------------------

    @invariant()
    def nothing_is_violated(self) -> None:
        now = self._picture()
        assert violations(now, self.before) == []
        self.before = now

    def teardown(self) -> None:
        """Without further faults, and with people who answer, everything ends."""
        try:
            self._arm()
            self.llm.faults.clear()
            self._come_to_an_end()
            now = self._picture()
            waiting = [run for run in now.runs if run.state not in FINAL_STATES]
            assert waiting == [], [edge for edge in now.journal if edge.run == waiting[0].id][-20:]
            self.taken = [edge.event for edge in now.journal]
        finally:
            self.registry.__exit__(None, None, None)
            forget_agents({agent.name for agent in all_agents()} - self.known)

    def _come_to_an_end(self) -> None:
        for move in range(1, MOVES_TO_THE_END):
            if all(run.state in FINAL_STATES for run in self._runs()):
                return
            was = self._standing()
            self.work()
            self.nothing_is_violated()
            if self._standing() == was or move % PATIENCE == 0:
                self._help()
                self.nothing_is_violated()

    def _help(self) -> None:
        """People do what they are waited for."""
        self._say_who_ended()
        self.sweep()
        self.sign()
        self.answer()
        for wait in Wait.objects.filter(run__in=self._ids(), kind="signal", outcome=""):
            commands.signal_run(
                actor=operator(),
                run_id=wait.run_id,
                name=wait.name,
                event_id=f"at last {wait.step_number}",
            )
        for operation in self._operations(needs_person_since__isnull=False):
            self._resolve(operation, "rejected")
        for run in self._runs():
            if run.paused_at is not None and run.state not in FINAL_STATES:
                self._correct_what_is_named(run)
                self._resume(run)

    def _correct_what_is_named(self, run: AgentRun) -> None:
        if "compensation_handler" not in run.pause_reason:
            return
        for operation in run.operations.all():
            if operation.id in run.pause_reason:
                correct_by_hand(actor=operator(), operation_id=operation.id, evidence="seen to it")

    def _standing(self) -> list[Any]:
        return [(run.id, run.state, run.step_number, run.wake_at) for run in self._runs()]

    # -- Means -----------------------------------------------------------------------

    def _arm(self, answers: Collection[str] = (), look_ups: Collection[str] = ()) -> None:
        for book in self.books.values():
            book.answers, book.look_ups = deque(answers), deque(look_ups)

    def _await_next(self) -> None:
        """Let time pass until the first run is due."""
        seconds = ask(
            "SELECT EXTRACT(EPOCH FROM min(wake_at) - statement_timestamp())::float8"
            " FROM runs_agentrun WHERE id = ANY(%s)",
            self._ids(),
        )
        if seconds is not None and seconds > 0:
            self._let_pass(seconds + A_MOMENT)

    def _let_pass(self, seconds: float) -> None:
        let_pass(seconds=seconds)
        self.passed += seconds
        # What an llm asked for is remembered by the machine's clock, which stands still.
        resting.forget()

    def _resume(self, run: AgentRun) -> None:
        for more in (commands.Raise(steps=ENOUGH), commands.Raise()):
            with suppress(RunsError):
                commands.resume_run(actor=operator(), run_id=run.id, add=more)
                return

    def _resolve(
        self, operation: ToolOperation, word: Literal["not_committed", "rejected"]
    ) -> None:
        book = self.books[operation.tool]
        if not book.is_quiet:
            return
        done = [one for one in book.effects if one.operation == operation.id]
        with suppress(RunsError):
            resolve_operation(
                actor=operator("a person"),
                operation_id=operation.id,
                outcome="committed" if done else word,
                evidence="the provider's books",
                external_ref=done[0].reference if done else "",
            )

    def _say_who_ended(self) -> None:
        """Of the workers whose death nobody saw, an operator says that they are gone."""
        names, self.unnoticed = self.unnoticed, []
        if names:
            end_workers(
                actor=operator(), names=names, evidence="the machine is off", even_if_alive=True
            )

    def _runs(self) -> list[AgentRun]:
        return list(AgentRun.objects.filter(labels__life=self.name).order_by("created_at", "id"))

    def _ids(self) -> list[UUID]:
        return [run.id for run in self._runs()]

    def _at(self, place: int) -> AgentRun | None:
        return dict(enumerate(self._runs())).get(place)

    def _operations(self, **columns: Any) -> list[ToolOperation]:
        return list(ToolOperation.objects.filter(run__in=self._ids(), **columns).order_by("id"))

    def _picture(self) -> Picture:
        effects = [effect for book in self.books.values() for effect in book.effects]
        return replace(take(self._ids(), effects), said=frozenset(self.llm.said))

    def _new_worker(self) -> str:
        name = f"life-worker-{next(_numbers)}"
        Worker.objects.create(name=name, host="life", pid=1)
        return name

"""What may happen to a few runs: faults, deaths, cancels and people, as a state machine.

Guarantees: the kernel, its database and its dates are the real ones, with windows of a
fraction of a second; after every move that Hypothesis makes, and at the end, a picture is
taken and checked.

Does not write the stories: `test_protocol.py` tells some, and lets Hypothesis tell others.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.utils import timezone
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from runs import Agent, CallTools, Context, Decision, Finish, ToolCall, commands, events
from runs.access import operator
from runs.engine import advance
from runs.errors import RunHeld, StillInFlight
from runs.models import AgentRun, ToolOperation, Worker
from runs.resolution import resolve_operation
from runs.state import FINAL_STATES, OperationStatus
from runs.worker_ends import end, end_workers
from tests.database.kit import dies_at, expire_lease
from tests.protocol.invariants import violations
from tests.protocol.picture import Picture, take
from tests.protocol.provider import ANSWERS, LATEST, LOOK_UPS, SimulatedProvider
from tools import Approve, Call, EffectType, Provider, Retry, Timeout, registry, tool

WINDOW = timedelta(seconds=2.5 * LATEST)
OBJECTIVE = timedelta(seconds=1)
MOVES_TO_THE_END = 400
MOST_RUNS = 2
_numbers = itertools.count(1)

KINDS = {
    "keyed": EffectType.IDEMPOTENT_WRITE,
    "unkeyed": EffectType.NON_IDEMPOTENT_WRITE,
    "final": EffectType.IRREVERSIBLE,
}
# The moments at which a dying worker leaves the most open come first.
DEATHS = (
    events.Name.CALL_DONE,
    events.Name.CALL_STARTING,
    events.Name.COMMIT_STARTING,
    events.Name.COMMIT_DONE,
    events.Name.LOOK_UP_STARTING,
    events.Name.LOOK_UP_DONE,
    events.Name.DECIDER_DONE,
    events.Name.RUN_CLAIMED,
)


Steps = list[list[tuple[str, int]]]
CALL = st.tuples(st.sampled_from(sorted(KINDS)), st.integers(1, 2))
STEPS = st.lists(st.lists(CALL, min_size=1, max_size=3), min_size=1, max_size=3)
# What the next requests, and the next look-ups, meet at every provider.
FAULTS = st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=3)
LAGS = st.lists(st.sampled_from(LOOK_UPS), max_size=3)


class Story(RuleBasedStateMachine):
    """What may happen to some runs, in any order. `taken` are the edges, once it has ended."""

    objective = OBJECTIVE

    def __init__(self) -> None:
        super().__init__()
        self.providers = {
            name: SimulatedProvider(honours_keys=effect is EffectType.IDEMPOTENT_WRITE)
            for name, effect in KINDS.items()
        }
        self.registry = registry.isolated_registry()
        self.registry.__enter__()
        for name, effect in KINDS.items():
            register(name, effect, self.providers[name], objective=self.objective)
        self.runs: list[AgentRun] = []
        self.before = Picture()
        self.taken: list[str] = []
        self.unnoticed: list[str] = []
        self.worker = self._new_worker()

    @initialize(steps=STEPS)
    def start_first(self, steps: Steps) -> None:
        self.start(steps)

    @precondition(lambda self: len(self.runs) < MOST_RUNS)
    @rule(steps=STEPS)
    def start(self, steps: Steps) -> None:
        agent = Agent(
            name=f"story{next(_numbers)}", decider=decide_by(steps), tools=tuple(sorted(KINDS))
        )
        self.runs.append(commands.start_run(actor=operator(), agent=agent.name).run)

    @rule(answers=FAULTS, look_ups=LAGS)
    def work(self, answers: list[str], look_ups: list[str]) -> None:
        """Every run is driven on, and the providers have these faults meanwhile."""
        self._arm(answers, look_ups)
        for run in self.runs:
            self._await_date(run)
            advance(run_id=run.id, owner=self.worker)

    def work_unequally(self) -> None:
        """As `work`, where the request to one provider never leaves and the other's answer is
        lost."""
        self._arm([], [])
        self.providers["keyed"].answers = deque(["not_sent"])
        self.providers["unkeyed"].answers = deque(["lost"])
        for run in self.runs:
            advance(run_id=run.id, owner=self.worker)

    @rule(answers=FAULTS, at=st.sampled_from(DEATHS), nth=st.integers(1, 2), is_known=st.booleans())
    def die(self, answers: list[str], at: events.Name, nth: int, is_known: bool) -> None:
        """The worker dies at some event; whether anybody notices is another matter."""
        self._arm(answers, [])
        for run in self.runs:
            self._await_date(run)
            try:
                with dies_at(at, nth=nth):
                    advance(run_id=run.id, owner=self.worker)
            except AssertionError:
                continue  # it never came to that
            expire_lease(run)
            if is_known:
                end(self.worker, by=Worker.EndedBy.SUPERVISOR, evidence="it exited")
            else:
                self.unnoticed.append(self.worker)
            self.worker = self._new_worker()

    @rule(part=st.floats(0.2, 1.5))
    def wait(self, part: float) -> None:
        time.sleep(part * LATEST)

    @rule(place=st.integers(0, MOST_RUNS - 1))
    def cancel(self, place: int) -> None:
        if place < len(self.runs) and not self._is_final(self.runs[place]):
            commands.cancel_run(actor=operator(), run_id=self.runs[place].id)

    @rule(word=st.sampled_from(["not_committed", "rejected"]))
    def ask_person(self, word: str) -> None:
        """A person looks into the provider's books, and says what is there."""
        for operation in ToolOperation.objects.filter(
            run__in=[run.id for run in self.runs], status=OperationStatus.UNKNOWN
        ):
            self._resolve(operation, word)

    @invariant()
    def nothing_is_violated(self) -> None:
        now = self._picture()
        assert violations(now, self.before) == []
        self.before = now

    def teardown(self) -> None:
        """Without further faults everything ends, and says what happened."""
        try:
            for provider in self.providers.values():
                provider.answers.clear()
                provider.look_ups.clear()
            self._come_to_an_end()
            now = self._picture()
            assert violations(now, self.before) == []
            assert [run for run in now.runs if run.state not in FINAL_STATES] == []
            self.taken = [edge.event for edge in now.journal]
        finally:
            self.registry.__exit__(None, None, None)

    def _come_to_an_end(self) -> None:
        for _ in range(MOVES_TO_THE_END):
            if all(self._is_final(run) for run in self.runs):
                return
            self.work([], [])
            self.nothing_is_violated()
            # People who wait for the machine to be done with what it can do.
            for operation in ToolOperation.objects.filter(
                run__in=[run.id for run in self.runs], run__state="WAITING_FOR_RESOLUTION"
            ).filter(status=OperationStatus.UNKNOWN):
                self._say_who_ended()
                self._resolve(operation, "rejected")
            time.sleep(0.01)

    def _say_who_ended(self) -> None:
        """Of the workers whose death nobody saw, an operator says that they are gone."""
        if self.unnoticed:
            end_workers(
                actor=operator(),
                names=self.unnoticed,
                evidence="the machine is off",
                even_if_alive=True,
            )
            self.unnoticed = []

    def _arm(self, answers: list[str], look_ups: list[str]) -> None:
        for provider in self.providers.values():
            provider.answers = deque(answers)
            provider.look_ups = deque(look_ups)

    def _await_date(self, run: AgentRun) -> None:
        """Until the run is due, if that is soon: its dates are fractions of a second."""
        run.refresh_from_db()
        if run.wake_at is not None:
            left = (run.wake_at - timezone.now()).total_seconds()
            time.sleep(min(max(left, 0), LATEST))

    def _resolve(self, operation: ToolOperation, word: str) -> None:
        provider = self.providers[operation.tool]
        if not provider.is_quiet:
            return
        done = [one for one in provider.effects if one.operation == operation.id]
        try:
            resolve_operation(
                actor=operator("a person"),
                operation_id=operation.id,
                outcome="committed" if done else word,  # type: ignore[arg-type]
                evidence="the provider's books",
                external_ref=done[0].reference if done else "",
            )
        except (StillInFlight, RunHeld):
            return

    def _picture(self) -> Picture:
        effects = [effect for one in self.providers.values() for effect in one.effects]
        return take([run.id for run in self.runs], effects)

    def _is_final(self, run: AgentRun) -> bool:
        run.refresh_from_db()
        return run.state in FINAL_STATES

    def _new_worker(self) -> str:
        name = f"story-worker-{next(_numbers)}"
        Worker.objects.create(name=name, host="story", pid=1)
        return name


def register(
    name: str, effect: EffectType, ledger: SimulatedProvider, *, objective: timedelta
) -> None:
    """A tool of one kind over its provider, with windows that fit a test."""
    keyed = effect is EffectType.IDEMPOTENT_WRITE

    def act(call: Call, amount: int) -> Any:
        """Act at the provider."""
        return ledger.act(call)

    tool(
        name=name,
        effect_type=effect,
        provider=Provider(
            name=name,
            idempotency_support="key" if keyed else "none",
            idempotency_retention=timedelta(hours=24) if keyed else None,
            lookup="by_key",
            settle_window=WINDOW,
        ),
        parallel=effect is not EffectType.IRREVERSIBLE,
        reconcile_handler=ledger.look_up,
        reconcile_within=objective,
        timeout_policy=Timeout(seconds=2),
        retry_policy=Retry(max_attempts=4, first_delay=0.01, max_delay=0.04),
        approval_policy=Approve(when="false"),
    )(act)


def decide_by(steps: Steps) -> Callable[[Context], Decision]:
    """A decider that makes these calls, step by step, and finishes."""

    def decide(context: Context) -> Decision:
        if context.step_number > len(steps):
            return Finish(len(context.observations))
        calls = steps[context.step_number - 1]
        return CallTools(*(ToolCall(kind, amount=amount) for kind, amount in calls))

    return decide

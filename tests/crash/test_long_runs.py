"""A worker is killed at every commit while a run waits, delegates, is cancelled, paused or forked.

Each law strikes at the first, second, third … event of every kind, each time in a run of its
own, until a run goes by untouched; others finish it.
"""

import signal
from collections.abc import Callable, Mapping
from typing import Protocol
from uuid import UUID

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.access import operator
from runs.control import cancel_run, pause_run
from runs.delegation import tell_untold_once
from runs.events import Name
from runs.forking import fork_run
from runs.models import AgentRun, Signal, ToolOperation, Wait
from runs.resuming import resume_run
from runs.signals import signal_run
from runs.state import FINAL_STATES, RunState
from tests.crash.conftest import NewLog, Providers, StartRun
from tests.crash.driving import LEFT_TO_A_PERSON, Assignment
from tests.crash.everywhere import fault_at, first, strike_everywhere
from tests.crash.faultapp.agents import ORDER
from tests.crash.forked import fork_worker
from tests.crash.laws import assert_journaled, assert_recovered
from tests.processes import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(200)]


class Crew:
    """Workers, one after the other, of whom the first that comes to `fault` is killed there."""

    def __init__(self, provider: ProviderProcess, fault: str, log: NewLog) -> None:
        self.provider, self.log = provider, log
        self.fault = fault
        self.killed = False

    def work(self, run_id: UUID) -> None:
        """Drive a run until nobody is due for it."""
        while self._was_killed(run_id):
            self.killed = True
            self.fault = ""

    def _was_killed(self, run_id: UUID) -> bool:
        assignment = Assignment(
            run_id=run_id, provider_url=self.provider.url, log=str(self.log()), fault=self.fault
        )
        with fork_worker(assignment) as worker:
            status = worker.wait()
            assert status in (0, LEFT_TO_A_PERSON, -signal.SIGKILL), worker.said
            return status == -signal.SIGKILL


Story = Callable[[Crew], None]


class Strike(Protocol):
    """Kill a worker of the story after each of so many commits, and of so many calls.

    Killed before a commit, a run is where it was after the one before, or after the call.
    """

    def __call__(self, story: Story, *, commits: int, calls: int) -> None: ...


@pytest.fixture
def strike(forks: None, providers: Providers, new_log: NewLog) -> Strike:
    def strike_story(story: Story, *, commits: int, calls: int) -> None:
        def is_killed(moments: Mapping[Name, int]) -> bool:
            with providers.borrowed() as provider:
                crew = Crew(provider, fault_at(moments), new_log)
                story(crew)
                provider.wait_until_landed()
                # Every story makes exactly one effect.
                assert len(provider.effects()) + len(provider.bookings(order_id=ORDER)) == 1
                return crew.killed

        known = {Name.COMMIT_DONE: first(commits), Name.CALL_DONE: first(calls)}
        strike_everywhere(is_killed, known=known)

    return strike_story


def test_sleeping_and_signals_survive_a_kill_at_any_event(
    strike: Strike, start_agent: StartRun
) -> None:
    def story(crew: Crew) -> None:
        run = start_agent("crash_waiter")
        # Early, and twice: it is stored before it is looked for, and handed over once.
        for _ in range(2):
            signal_run(
                actor=operator(), run_id=run.id, name="go", payload={"amount": "7"}, event_id="e1"
            )
        crew.work(run.id)
        assert_recovered(run.id, crew.provider, claims_at_least=2)
        assert [one.kind for one in Wait.objects.filter(run=run).order_by("step_number")] == [
            Wait.Kind.TIMER,
            Wait.Kind.SIGNAL,
        ]
        assert Signal.objects.get(run=run).delivered_step == 3

    strike(story, commits=9, calls=2)


def test_a_delegation_survives_a_kill_at_any_event(strike: Strike, start_agent: StartRun) -> None:
    def story(crew: Crew) -> None:
        run = start_agent("crash_parent")
        crew.work(run.id)
        (child,) = AgentRun.objects.filter(parent=run)
        crew.work(child.id)
        crew.work(run.id)
        run.refresh_from_db()
        if run.state == RunState.WAITING:
            # Its worker died between the child's end and the telling: the sweep's part.
            tell_untold_once()
            crew.work(run.id)
            run.refresh_from_db()
        assert run.state == RunState.COMPLETED, f"{run.state}: {run.error}"
        assert AgentRun.objects.filter(parent=run).count() == 1
        assert_journaled(run)
        assert_recovered(child.id, crew.provider, claims_at_least=1)

    strike(story, commits=4, calls=1)


def test_a_cancel_survives_a_kill_at_any_event(strike: Strike, start_agent: StartRun) -> None:
    def story(crew: Crew) -> None:
        run = start_agent("crash_sleeper")
        fault, crew.fault = crew.fault, ""
        _work_until_asleep(crew, run)
        crew.fault = fault
        cancel_run(actor=operator(), run_id=run.id)
        crew.work(run.id)
        run.refresh_from_db()
        assert run.state == RunState.CANCELLED
        assert Wait.objects.get(run=run).outcome == Wait.Outcome.CANCELLED
        assert_journaled(run)

    strike(story, commits=1, calls=0)


def _work_until_asleep(crew: Crew, run: AgentRun) -> None:
    """A worker leaves a run that is due in an hour only when it is told to."""
    assignment = Assignment(run_id=run.id, provider_url=crew.provider.url, log=str(crew.log()))
    with fork_worker(assignment):
        asleep = AgentRun.objects.filter(id=run.id, state=RunState.WAITING, lease_owner="")
        wait_until(asleep.exists, what="the run sleeps")


def test_a_pause_and_what_follows_survive_a_kill_at_any_event(
    strike: Strike, start_agent: StartRun
) -> None:
    def story(crew: Crew) -> None:
        run = start_agent("crash_pausing")
        pause_run(actor=operator(), run_id=run.id)
        crew.work(run.id)
        run.refresh_from_db()
        assert (run.state, run.step_number, run.wake_at) == (RunState.READY, 0, None)
        resume_run(actor=operator(), run_id=run.id)
        crew.work(run.id)
        assert_recovered(run.id, crew.provider, claims_at_least=2)

    strike(story, commits=6, calls=2)


def test_a_fork_repeats_nothing_whenever_its_worker_is_killed(
    strike: Strike, start_agent: StartRun
) -> None:
    def story(crew: Crew) -> None:
        origin = start_agent("crash_sighted")
        fault, crew.fault = crew.fault, ""
        crew.work(origin.id)
        crew.fault = fault
        fork = fork_run(actor=operator(), run_id=origin.id, step=1).run
        crew.work(fork.id)
        fork.refresh_from_db()
        origin.refresh_from_db()
        assert origin.state in FINAL_STATES
        assert (fork.state, fork.result) == (RunState.COMPLETED, origin.result)
        (repeat,) = ToolOperation.objects.filter(run=fork)
        assert (repeat.status, repeat.attempts) == ("COMMITTED", 0)
        assert repeat.repeats == ToolOperation.objects.get(run=origin, tool="refund")
        assert_journaled(fork)

    strike(story, commits=3, calls=0)

"""One case: a run of the tool, struck by one fault, and taken over until it is settled.

Guarantees: the worker that was struck is really dead or really stopped; its successor is
another process that knows only the database; a late request is made by a third process;
effects are counted when every process of the case has ended.
"""

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from runs.models import AgentRun, StepAttempt, ToolOperation, Transition
from runs.state import OperationStatus, RunEvent, RunState
from tools.testing.bench import Bench, Intended
from tools.testing.between import with_fault
from tools.testing.calls import land
from tools.testing.catalogue import LANDS_LATE, Fault
from tools.testing.children import Child
from tools.testing.diary import Diary
from tools.testing.driving import Assignment, seconds_until_due
from tools.testing.lanes import Case, Condition, within
from tools.testing.promise import A_PERSON, UNSETTLED, Ending, breach
from tools.testing.report import Row
from tools.testing.scale import Scale, at_scale

# One worker is struck, one takes over; the rest are for what nobody thought of.
MOST_WORKERS: Final = 4
# How often a case is run whose late request was later than the declaration says it can be.
MOST_TRIES: Final = 3


def run_case(bench: Bench, fault: Fault, scale: Scale) -> Case[Row]:
    """The row of one fault."""
    why = fault.ruled_out(bench.spec, scale)
    for _ in range(0 if why else MOST_TRIES):
        row = yield from run_noted(bench, fault, scale, bench.new_diary())
        if row is not None:
            return row
        why = "this machine was too busy for a request to land within the scaled settle window"
    return fault.not_run(why)


def run_noted(
    bench: Bench, fault: Fault, scale: Scale, diary: Diary, *, seconds: float | None = None
) -> Case[Row | None]:
    """One run, with what happened left in `diary`; None if it says nothing about the tool."""
    run_id, intended = bench.start()
    bench.require_no_effect(intended)
    case = _Case(
        bench=bench,
        fault=fault,
        scale=scale,
        diary=diary,
        run_id=run_id,
        intended=intended,
        ends=time.monotonic() + (seconds or scale.longest_case),
    )
    try:
        yield from case.run_through()
        return None if case.landed_too_late else case.judge()
    finally:
        case.end()


@dataclass(kw_only=True)
class _Case:
    bench: Bench
    fault: Fault
    scale: Scale
    diary: Diary
    run_id: UUID
    intended: Intended
    ends: float
    workers: list[Child] = field(default_factory=list)
    late: list[Child] = field(default_factory=list)
    gone: list[Child] = field(default_factory=list)

    def run_through(self) -> Case[None]:
        struck = self._fork()
        yield self._until(lambda: struck.has_ended or struck.stands_still)
        if struck.stands_still:
            yield self._end_of(self._fork())
            struck.go_on()
            yield self._end_of(struck)
        while self._needs_a_worker:
            yield self._end_of(self._fork())
        yield self._until(lambda: all(child.has_ended for child in self.late))

    @property
    def landed_too_late(self) -> bool:
        """Whether a late request was later than the settle window that it is to land in."""
        begun, landed = self.diary.entries("under way"), self.diary.entries("landed")
        return bool(begun) and (
            len(landed) < len(begun) or landed[-1]["at"] > begun[0]["at"] + self.scale.settle
        )

    def judge(self) -> Row:
        if self.fault.strike is not None and not self.diary.count("struck"):
            return self.fault.not_run("the moment did not come: the run makes no such commit")
        ending = self._ending()
        broken = breach(self.bench.spec.effect_type, ending)
        return Row(
            fault=self.fault.name,
            says=self.fault.says,
            sends=self.diary.count("send"),
            look_ups=self.diary.count("look-up"),
            effects=ending.effects,
            ended=ending.ended,
            verdict="BROKEN" if broken else "kept",
            why=broken or ending.reason,
        )

    def end(self) -> None:
        for child in (*self.workers, *self.late):
            child.kill()
        self._note_the_dead()

    # -- Processes -------------------------------------------------------------------

    def _fork(self) -> Child:
        """A worker; the first one is struck, and what becomes of look-ups goes on for all."""
        tool = at_scale(self.bench.spec, self.scale)
        child = self.bench.worker(
            Assignment(
                run_id=self.run_id,
                tool=with_fault(tool, fault=self.fault, diary=self.diary, scale=self.scale),
                diary=self.diary,
                lease_seconds=self.scale.lease,
                strike=None if self.workers else self.fault.strike,
            )
        )
        self.workers.append(child)
        return child

    def _end_of(self, child: Child) -> Condition:
        return self._until(lambda: child.has_ended)

    def _until(self, condition: Condition) -> Condition:
        """What the case waits for; meanwhile the dead are reported and late requests land."""

        def is_so() -> bool:
            self._note_the_dead()
            self._fork_late_requests()
            return condition()

        return within(is_so, seconds=self.ends - time.monotonic())

    def _note_the_dead(self) -> None:
        for child in self.workers:
            if child not in self.gone and child.has_ended:
                self.gone.append(child)
                child.tell_its_end()

    def _fork_late_requests(self) -> None:
        """At once, so that it costs no time when they are due."""
        if self.fault.delivery not in LANDS_LATE or self.late:
            return
        for entry in self.diary.entries("under way"):
            sent = self.diary.entries("send")[0]["call"]
            at = entry["at"] + self.scale.late
            self.late.append(
                self.bench.fork(partial(land, self.bench.spec, sent, self.diary, at=at))
            )

    # -- How it ended ----------------------------------------------------------------

    @property
    def _failed(self) -> str:
        return next((child.said for child in self.workers if child.has_failed), "")

    @property
    def _needs_a_worker(self) -> bool:
        if self._failed or len(self.workers) == MOST_WORKERS:
            return False
        return seconds_until_due(self.run_id) is not None

    def _ending(self) -> Ending:
        run = AgentRun.objects.get(id=self.run_id)
        operation = ToolOperation.objects.filter(id=self.intended.operation_id).first()
        effects = self.bench.count(self.intended)
        if self._failed or operation is None or run.error:
            reason = self._failed or run.error or "no operation was recorded"
            return Ending(ended=UNSETTLED, effects=effects, reason=reason)
        if run.state == RunState.WAITING_FOR_RESOLUTION:
            return Ending(ended=A_PERSON, effects=effects, reason=self._why(RunEvent.NEED_PERSON))
        if operation.settled_at is None:
            reason = f"the run is {run.state}, the operation {operation.status}"
            return Ending(ended=UNSETTLED, effects=effects, reason=reason)
        if operation.status == OperationStatus.COMMITTED:
            reason = self._why(RunEvent.COMMIT)
        else:
            reason = operation.error
        return Ending(ended=str(operation.status), effects=effects, reason=reason)

    def _why(self, event: RunEvent) -> str:
        edge = Transition.objects.filter(run=self.run_id, operation=None, event=event).last()
        why = "" if edge is None else edge.why
        # A name of this machine's says less than which one of the workers it was.
        attempts = StepAttempt.objects.filter(step__run=self.run_id).order_by("fence_token")
        names = dict.fromkeys(attempts.values_list("worker", flat=True))
        for number, name in enumerate(names, 1):
            why = why.replace(name, f"worker {number}")
        return why

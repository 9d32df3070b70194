"""The bench: runs of one tool, their workers, and what the provider counts for them.

Guarantees: every run has one operation, whose id is known before a worker is started;
effects are counted in the calling process; all processes of a case end with it.
Does not touch a run's rows: they are the kernel's and its commands'.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from celery import Celery
from celery.app import app_or_default
from django.db import connections

from runs.access import operator
from runs.agents import Agent, forget_agents
from runs.commands import start_run
from runs.context import Context
from runs.decisions import CallTools, Decision, Finish, ToolCall
from runs.planning import operation_id
from tools.redaction import bound_text
from tools.spec import ToolSpec
from tools.testing.children import Child
from tools.testing.diary import Diary
from tools.testing.driving import Assignment, work_on
from tools.testing.errors import EffectsBefore, OpenTransaction

ACTOR: Final = operator("the kit for tool authors")

Arguments = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Intended:
    """One intended effect, as `count_effects` is asked about it."""

    operation_id: str
    idempotency_key: str
    arguments: Mapping[str, Any]


CountEffects = Callable[[Intended], int]


@dataclass
class Bench:
    """What all cases of one check share. Use it inside `bench_for`."""

    spec: ToolSpec
    arguments: Arguments
    count_effects: CountEffects
    directory: Path
    agent: str
    _numbers: Iterator[int] = field(default_factory=partial(itertools.count, 1))
    _files: Iterator[int] = field(default_factory=partial(itertools.count, 1))

    def new_arguments(self) -> dict[str, Any]:
        """Normalised arguments of the next call. Raises InvalidArguments."""
        given = self.arguments
        raw = given(next(self._numbers)) if callable(given) else given
        return self.spec.validate(raw)

    def new_diary(self) -> Diary:
        return Diary(self.directory / f"{next(self._files)}.diary")

    def start(self) -> tuple[UUID, Intended]:
        """A run that is due now, and the one operation that it will have."""
        arguments = self.new_arguments()
        run = start_run(
            actor=ACTOR,
            agent=self.agent,
            objective=f"check {self.spec.name}",
            input={"tool": self.spec.name, "arguments": arguments},
        ).run
        name = operation_id(run_id=run.id, step_number=1, logical_action=f"{self.spec.name}#0")
        return run.id, Intended(operation_id=name, idempotency_key=name, arguments=arguments)

    def intend(self, arguments: Mapping[str, Any] | None = None) -> Intended:
        """An operation of no run, for a call that is made by hand."""
        name = f"op_{uuid4().hex}{uuid4().hex[:8]}"
        given = self.new_arguments() if arguments is None else arguments
        return Intended(operation_id=name, idempotency_key=name, arguments=given)

    def count(self, intended: Intended) -> int:
        return int(self.count_effects(intended))

    def require_no_effect(self, intended: Intended) -> None:
        """Raises EffectsBefore where the counter sees effects of a call not yet made."""
        if counted := self.count(intended):
            raise EffectsBefore(operation_id=intended.operation_id, counted=counted)

    def fork(self, work: Callable[[], None]) -> Child:
        return Child(work, log=self.directory / f"{next(self._files)}.log")

    def worker(self, assignment: Assignment) -> Child:
        return self.fork(partial(work_on, assignment))


@contextmanager
def bench_for(
    spec: ToolSpec, *, arguments: Arguments, count_effects: CountEffects, directory: Path
) -> Iterator[Bench]:
    """A bench whose agent is known, and heard of by no broker, inside the block."""
    if any(connections[alias].in_atomic_block for alias in connections):
        raise OpenTransaction
    agent = Agent(
        name=bound_text(f"check {time.monotonic_ns()} of {spec.name}", 100),
        decider=_call_once,
        tools=(spec.name,),
    )
    try:
        with _quiet_broker():
            yield Bench(
                spec=spec,
                arguments=arguments,
                count_effects=count_effects,
                directory=directory,
                agent=agent.name,
            )
    finally:
        forget_agents([agent.name])


def _call_once(context: Context) -> Decision:
    if context.last is None:
        return CallTools(ToolCall(context.input["tool"], **context.input["arguments"]))
    return Finish(str(context.last.status))


@contextmanager
def _quiet_broker() -> Iterator[None]:
    """Hints go nowhere: the workers here look at the run's row, and no others shall."""
    outside = app_or_default()
    Celery("kit", broker="memory://", set_as_current=False).set_current()
    try:
        yield
    finally:
        outside.set_current()

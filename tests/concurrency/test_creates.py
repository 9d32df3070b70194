"""Many callers start a run under one idempotency key."""

from collections import Counter
from contextlib import ExitStack
from functools import partial

import pytest

from runs.models import AgentRun, Transition
from runs.state import RunEvent
from tests.concurrency.actions import create
from tests.concurrency.gate import gate, go_through_at_once
from tests.crash.conftest import NewLog, StartRun
from tests.crash.forked import Child

pytestmark = pytest.mark.timeout(120)

PROCESSES, THREADS = 5, 10


def test_fifty_concurrent_creates_under_one_key_are_one_run(
    forks: None, start_agent: StartRun, new_log: NewLog
) -> None:
    logs = [new_log() for _ in range(PROCESSES)]
    with ExitStack() as started:
        with gate(expected=PROCESSES * THREADS):
            children = [
                started.enter_context(
                    Child(
                        partial(go_through_at_once, create, threads=THREADS, log=str(log)),
                        log=log,
                    )
                )
                for log in logs
            ]
        assert [child.wait() for child in children] == [0] * PROCESSES
    run = AgentRun.objects.get()
    said = Counter(line for log in logs for line in log.read_text().splitlines())
    assert said == {f"created {run.id}": 1, f"replayed {run.id}": PROCESSES * THREADS - 1}
    assert Transition.objects.filter(event=RunEvent.CREATE).count() == 1

"""DBOS Transact: one workflow of N steps, and workflows of ten steps from its queue.

Everything is left at its default but the log level. The queue's worker is the one that
DBOS starts in the process that launched it.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dbos import DBOS

from tests.bench.sample import Sample

QUEUE = "bench"
STEPS_PER_WORKFLOW = 10


def prepare(dsn: str) -> None:
    with _launched(dsn):
        pass


def measure(dsn: str, steps: int) -> Sample:
    step = DBOS.step(name="step")(_nothing)

    def work(count: int) -> int:
        started = time.perf_counter()
        for number in range(count):
            step(number)
        seconds.append(time.perf_counter() - started)
        return count

    seconds: list[float] = []
    workflow = DBOS.workflow(name="one")(work)
    with _launched(dsn):
        workflow(steps)
    return Sample(steps=steps, seconds=seconds[0])


def measure_many(dsn: str, steps: int) -> Sample:
    """`steps` / 10 workflows; the clock runs from the first enqueue to the last step."""
    workflows = steps // STEPS_PER_WORKFLOW
    done = threading.Event()
    ended: list[float] = []
    step = DBOS.step(name="step")(_nothing)

    def work() -> None:
        for number in range(STEPS_PER_WORKFLOW):
            step(number)
        ended.append(time.perf_counter())
        if len(ended) == workflows:
            done.set()

    workflow = DBOS.workflow(name="many")(work)
    with _launched(dsn):
        DBOS.register_queue(QUEUE)
        started = time.perf_counter()
        handles = [DBOS.enqueue_workflow(QUEUE, workflow) for _ in range(workflows)]
        # Its own handles look once a second, which would be charged to it here.
        done.wait(timeout=300)
        for handle in handles:
            handle.get_result()
    return Sample(steps=workflows * STEPS_PER_WORKFLOW, seconds=max(ended) - started)


@contextmanager
def _launched(dsn: str) -> Iterator[None]:
    DBOS(config={"name": "bench", "system_database_url": dsn, "log_level": "ERROR"})
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy()


def _nothing(number: int) -> int:
    return number

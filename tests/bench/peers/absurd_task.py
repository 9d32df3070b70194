"""Absurd: one task of N steps, claimed and worked by its own worker loop.

The schema comes from `absurdctl`, the package that its authors ship it in, without `psql`.
"""

import time
from typing import Any

import psycopg
from absurd_sdk import Absurd
from absurdctl import BUNDLED_SCHEMA_SQL

from tests.bench.sample import Sample


def prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
        Absurd(connection).create_queue()


def measure(dsn: str, steps: int) -> Sample:
    seconds: list[float] = []

    def work(parameters: dict[str, int], context: Any) -> int:
        started = time.perf_counter()
        for number in range(parameters["steps"]):
            context.step(f"step-{number}", lambda number=number: number)
        seconds.append(time.perf_counter() - started)
        return parameters["steps"]

    app = Absurd(dsn)
    try:
        app.register_task(name="bench")(work)
        app.spawn("bench", {"steps": steps})
        app.work_batch()
    finally:
        app.close()
    return Sample(steps=steps, seconds=seconds[0])

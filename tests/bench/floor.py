"""The floor: the least that recording an intent and its result costs.

Two commits per step on two obvious tables, each one prepared statement in autocommit, so
one round trip each. Guards nothing: no lease, no journal, no decision, no state machine.
"""

import time
from uuid import uuid4

import psycopg
from psycopg.types.json import Jsonb

from tests.bench.sample import Sample

SCHEMA = """
CREATE TABLE floor_run (
    id uuid PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE floor_operation (
    run_id uuid NOT NULL REFERENCES floor_run,
    step_number integer NOT NULL,
    tool text NOT NULL,
    arguments jsonb NOT NULL,
    status text NOT NULL,
    result jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    PRIMARY KEY (run_id, step_number)
);
"""
INTENT = """
INSERT INTO floor_operation (run_id, step_number, tool, arguments, status)
VALUES (%s, %s, %s, %s, 'RUNNING')
"""
RESULT = """
UPDATE floor_operation SET status = 'COMMITTED', result = %s, finished_at = now()
WHERE run_id = %s AND step_number = %s AND status = 'RUNNING'
"""


def prepare(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SCHEMA)


def measure(dsn: str, steps: int) -> Sample:
    with psycopg.connect(dsn, autocommit=True) as connection:
        run = uuid4()
        connection.execute("INSERT INTO floor_run (id) VALUES (%s)", [run])
        cursor = connection.cursor()
        started = time.perf_counter()
        for number in range(steps):
            cursor.execute(INTENT, [run, number, "noop", Jsonb({"n": number})], prepare=True)
            cursor.execute(RESULT, [Jsonb({"n": number}), run, number], prepare=True)
        return Sample(steps=steps, seconds=time.perf_counter() - started)

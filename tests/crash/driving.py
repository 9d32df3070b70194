"""A worker without a broker: drives one run by `engine.advance` until nobody is due.

It has a `Worker` row as any worker process has, looks for neighbours that are gone, and
reports its own end.

This module is loaded by the fork server (`forked.py`), which has Django set up but no
connection open; each child then opens its own. What a child would load on first use is
loaded here, once for all of them.
"""

import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

import django
from django.apps import apps

if not apps.ready:
    django.setup()

import psycopg_pool  # noqa: F401  imported by Django when a connection is opened
from django.conf import settings
from django.db import connection

from runs import workers
from runs.engine import advance
from tests.crash.faultapp import faults
from tests.processes import wait_until
from tools.execution import in_flight

# Children look through what is new alone, and so copy less of what they share.
gc.freeze()

LONGEST_NAP_SECONDS = 0.2
# The exit status of a worker that left the run to a person.
LEFT_TO_A_PERSON = 3
# And of one that somebody said had ended.
DECLARED_ENDED = 4


@dataclass(frozen=True)
class Assignment:
    """What one worker is to do. `fault` is told as `faults.arm` reads it, or empty.

    `stays`: it lives until the run has ended, also while nobody is due. `env` is what else it
    finds in its environment.
    """

    run_id: UUID
    provider_url: str
    log: str
    lease_seconds: float = 1.0
    fault: str = ""
    stays: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


def work_on(assignment: Assignment) -> None:
    """Drive the run to its end: the whole life of a forked worker."""
    become_a_worker(assignment.log)
    for variable in ("SHOP_PAYMENTS_URL", "KEYLESS_PAYMENTS_URL"):
        os.environ[variable] = assignment.provider_url
    os.environ.update(assignment.env)
    settings.AGENTOPS_LEASE_SECONDS = assignment.lease_seconds
    if assignment.fault:
        faults.arm(assignment.fault)
    workers.attend(on_declared_ended=lambda: os._exit(DECLARED_ENDED))
    while True:
        due_in = _due_in(assignment.run_id)
        if due_in is None and assignment.stays and not _is_finished(assignment.run_id):
            due_in = LONGEST_NAP_SECONDS
        if due_in is None:
            break
        if due_in > 0:
            time.sleep(min(due_in, LONGEST_NAP_SECONDS))
            continue
        with workers.at_work() as owner:
            if owner is None:
                break
            print(advance(run_id=assignment.run_id, owner=owner), flush=True)
    # As a worker that lives on would, so that late answers are heard.
    wait_until(lambda: not in_flight(), what="every tool function has come back")
    workers.report_end()
    if not _is_finished(assignment.run_id):
        sys.exit(LEFT_TO_A_PERSON)


def become_a_worker(log: str) -> None:
    """End with the fork server, and say what there is to say in a file of our own."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def _due_in(run_id: UUID) -> float | None:
    """Seconds until somebody may claim the run; None when nobody is due any more.

    While a person is awaited the provider is asked on, a minute apart: not by us.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT EXTRACT(EPOCH FROM GREATEST(
                   wake_at, COALESCE(lease_expires_at, wake_at)) - clock_timestamp())::float8
               FROM runs_agentrun
               WHERE id = %s AND wake_at IS NOT NULL
                 AND NOT (state = 'WAITING_FOR_RESOLUTION' AND wake_at > clock_timestamp())""",
            [run_id],
        )
        found = cursor.fetchone()
    return None if found is None else float(found[0])


def _is_finished(run_id: UUID) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT finished_at IS NOT NULL FROM runs_agentrun WHERE id = %s", [run_id])
        return bool(cursor.fetchone()[0])

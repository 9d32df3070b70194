"""The lease: the right to advance a run until a time, under a token that only grows.

Terms. *Token*: the generation of a lease; every claim makes the next one, and
every write names it. *Lease end*: a time by the database's clock. *Known end*: the
same moment on this process's monotonic clock, taken from before the question was
asked, so it is never later than the real one. *Margin*: the part of a lease in
which nothing is begun any more.

Guarantees: of any number of workers, one claims; a lease is renewed while its
work goes on and no longer than the work said it may take; a renewal that failed
leaves the known end where it was, so the holder counts as *not known to hold*.

Does not stop a process that was paused: after its lease it may wake and act. Its
writes find another token (`commit.py`), and every call asks `left()` first.
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection

from runs import events, flow
from runs.commit import require_no_transaction
from runs.concurrency import FREE, agent_limits, claim_within
from runs.pinning import OURS, ours
from runs.statement import POLICY_GENERATION
from tools.execution import in_flight
from tools.threads import reset_after_fork

log = structlog.get_logger(__name__)

# Of a lease, this part is never used for a call: clocks drift, commits take time.
MARGIN_PART: Final = 0.1
RENEWALS_PER_LEASE: Final = 3


def lease_seconds() -> float:
    return float(settings.AGENTOPS_LEASE_SECONDS)


def margin_seconds() -> float:
    return lease_seconds() * MARGIN_PART


@dataclass
class Lease:
    """One claim of one run by one worker."""

    run_id: UUID
    fence_token: int
    owner: str
    known_end: float
    # Renewed until this monotonic time: work that never comes back must not hold a
    # run for ever.
    renew_until: float = field(default=0.0)

    def left(self) -> float:
        """Seconds for which this lease is known to be held; negative once it is not."""
        return self.known_end - time.monotonic()

    def extend(self, *, asked_at: float, left: float) -> None:
        """Learn the lease's end from an answer to a question asked at `asked_at`."""
        self.known_end = max(self.known_end, asked_at + left)

    def expect(self, seconds: float) -> None:
        """Say how long the work that starts now may take at most."""
        self.renew_until = time.monotonic() + seconds


@dataclass(frozen=True)
class Claimed:
    """A claimed run as the claim found it, and the database's clock at that moment."""

    lease: Lease
    row: dict[str, Any]
    now: datetime
    policy_generation: int


_COLUMNS: Final = (
    "id",
    "agent",
    "agent_version",
    "state",
    "objective",
    "input",
    "version",
    "step_number",
    "failures",
    "setbacks",
    "fence_token",
    "cancel_requested_at",
    "cancel_requested_by",
    "created_at",
    "created_by",
    "created_by_user_id",
    "wake_at",
    "paused_at",
    "cancel_compensates",
    "parent_id",
    "root",
    "depth",
    "priority",
    "forked_from_id",
    "forked_at_step",
    "lineage",
    "inherited_steps",
    "voided_steps",
    "compensating_since",
    "compensation_reason",
    "compensation_ending",
    "spent_steps",
    "spent_tokens",
    "spent_cost_usd",
    "budget",
    "newest_action",
    "repeats",
    "labels",
    "traceparent",
)

# What a statement that claims a run returns.
CLAIMED: Final = f"{', '.join(_COLUMNS)}, statement_timestamp(), {POLICY_GENERATION}"

_CLAIM: Final = f"""
    UPDATE runs_agentrun
    SET fence_token = fence_token + 1, version = version + 1, lease_owner = %(owner)s,
        lease_expires_at = statement_timestamp() + make_interval(secs => %(seconds)s),
        sweep_at = statement_timestamp() + make_interval(secs => %(seconds)s),
        updated_at = statement_timestamp()
    WHERE id = (
        SELECT id FROM runs_agentrun
        WHERE id = %(run)s AND finished_at IS NULL AND {FREE}
          AND (%(anyhow)s OR (wake_at <= statement_timestamp() AND {OURS}))
          AND agent <> ALL (%(limited)s)
        FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING {CLAIMED}
"""


def claim(*, run_id: UUID, owner: str, even_if_not_due: bool = False) -> Claimed | None:
    """Take the lease of a run that is due and not held; None when there is nothing to take.

    Nor is there where the run's agent is at its limit, or the run is left to workers of another
    version (`pinning.py`). A person's word comes when it comes: `even_if_not_due`, and whatever
    the limit or the version.
    """
    require_no_transaction()
    asked_at = time.monotonic()
    seconds = lease_seconds()
    limits = {} if even_if_not_due else agent_limits()
    values = ours() | {
        "owner": owner,
        "seconds": seconds,
        "run": run_id,
        "anyhow": even_if_not_due,
        "limited": list(limits),
    }
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, values)
        found = cursor.fetchone()
    if found is None and limits:
        found = claim_within(_CLAIM, values | {"limited": []}, run_id=run_id, limits=limits)
    return read_claim(found, owner=owner, asked_at=asked_at) if found is not None else None


def read_claim(found: Sequence[Any], *, owner: str, asked_at: float) -> Claimed:
    """What a statement that claimed a run, asked at `asked_at`, returned: `CLAIMED`."""
    row = dict(zip(_COLUMNS, found, strict=False))
    # Django leaves JSON undecoded in a cursor of one's own.
    row["input"] = json.loads(row["input"])
    row["labels"] = json.loads(row["labels"])
    row["budget"] = json.loads(row["budget"]) if row["budget"] is not None else None
    lease = Lease(
        run_id=row["id"],
        fence_token=row["fence_token"],
        owner=owner,
        known_end=asked_at + lease_seconds(),
        renew_until=asked_at + lease_seconds(),
    )
    about = {"run_id": lease.run_id, "agent": row["agent"], "fence_token": lease.fence_token}
    events.emit(events.Name.RUN_CLAIMED, **about)
    return Claimed(lease=lease, row=row, now=found[-2], policy_generation=found[-1])


class Heartbeat:
    """Renews every lease of this process from one thread with one statement.

    A lease is in it only while `keeping` is entered, so renewal dies with the work.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, Lease] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def keeping(self, lease: Lease) -> Iterator[None]:
        """Renew `lease` inside the block."""
        with self._lock:
            self._by_id[id(lease)] = lease
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="lease-heartbeat", daemon=True
                )
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                del self._by_id[id(lease)]

    def _run(self) -> None:
        idle = 0
        while True:
            time.sleep(lease_seconds() / RENEWALS_PER_LEASE)
            try:
                renewed = self.run_once()
            except Exception as error:  # noqa: BLE001  not renewed is not known to be held
                log.warning("lease_renewal_failed", error=type(error).__name__)
                connection.close()
                continue
            # A pooled connection is given back between beats.
            connection.close()
            idle = 0 if renewed else idle + 1
            with self._lock:
                if idle > RENEWALS_PER_LEASE and not self._by_id and not in_flight():
                    self._thread = None
                    return

    def run_once(self) -> int:
        """Renew what may be renewed; returns how many leases were."""
        asked_at = time.monotonic()
        with self._lock:
            leases = [one for one in self._by_id.values() if one.renew_until > asked_at]
        renewed = _renew(leases, asked_at=asked_at) if leases else 0
        if flying := in_flight():
            _keep_in_flight(sorted(flying))
        flow.keep_in_flight(seconds=lease_seconds())
        return renewed


_RENEW: Final = """
    UPDATE runs_agentrun run
    SET lease_expires_at = GREATEST(
            run.lease_expires_at, statement_timestamp() + make_interval(secs => %s)),
        sweep_at = GREATEST(run.sweep_at, statement_timestamp() + make_interval(secs => %s))
    FROM unnest(%s::uuid[], %s::bigint[], %s::text[]) AS held (id, token, owner)
    WHERE run.id = held.id AND run.fence_token = held.token AND run.lease_owner = held.owner
    RETURNING run.id, run.fence_token,
        EXTRACT(EPOCH FROM run.lease_expires_at - statement_timestamp())::float8
"""


def _renew(leases: list[Lease], *, asked_at: float) -> int:
    seconds = lease_seconds()
    with connection.cursor() as cursor:
        cursor.execute(
            _RENEW,
            [
                seconds,
                seconds,
                [one.run_id for one in leases],
                [one.fence_token for one in leases],
                [one.owner for one in leases],
            ],
        )
        left = {(run_id, token): seconds for run_id, token, seconds in cursor.fetchall()}
    for lease in leases:
        # By token too: this process may hold a stale lease of the run beside the current one.
        if (held := (lease.run_id, lease.fence_token)) in left:
            lease.extend(asked_at=asked_at, left=left[held])
    return len(left)


def _keep_in_flight(operation_ids: list[str]) -> None:
    """Push on the end of send windows whose function has not come back in this process."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE runs_tooloperation
            SET in_flight_until = GREATEST(
                in_flight_until, statement_timestamp() + make_interval(secs => %s))
            WHERE id = ANY(%s) AND in_flight_until IS NOT NULL AND settled_at IS NULL
            """,
            [lease_seconds(), operation_ids],
        )


heartbeat: Final = Heartbeat()
# A child has neither the thread nor the leases, and perhaps a lock that nobody will give back.
reset_after_fork(heartbeat.__init__)  # type: ignore[misc]

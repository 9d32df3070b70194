"""How far a sweep that works through time is done: a row, moved on by whoever did the next part.

Guarantees: where the first sweep began is written down before it tries anything, so that nothing
is passed over while it fails. Of two sweeps that did the same part at one time, one moves it.
No lock is held meanwhile, and none of a session: a pooler may stand in between.
"""

from datetime import datetime, timedelta

from django.db import connection
from django.db.models.functions import Now

from runs.models import Sweep


def read_watermark(name: str, *, first: timedelta) -> tuple[datetime, datetime]:
    """The database's time, and until when the sweep is done: at first, until so long ago."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        now: datetime = cursor.fetchone()[0]
    Sweep.objects.get_or_create(name=name)
    Sweep.objects.filter(name=name, done_until=None).update(done_until=now - first)
    done_until = Sweep.objects.values_list("done_until", flat=True).get(name=name)
    assert done_until is not None, "written a line above, and never emptied"
    return now, done_until


def move_if_there(name: str, *, since: datetime, until: datetime, found: int) -> bool:
    """Record that [since, until) is done; False if the sweep is done until somewhere else."""
    there = Sweep.objects.filter(name=name, done_until=since)
    return bool(there.update(done_until=until, last_run_at=Now(), found=found))

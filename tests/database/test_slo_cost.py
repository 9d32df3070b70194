"""What counting costs does not grow faster than what is counted."""

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.engine import Slice, advance
from runs.slo.rolling import roll_up
from runs.slo.slices import ceil, floor
from tests.database.gating import Start
from tests.database.kit import ON_DATABASE, ask
from tools import Call, EffectType, tool

pytestmark = ON_DATABASE
READ = """
    SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables
    WHERE relname = 'runs_transition'
"""


@pytest.fixture
def look() -> None:
    @tool(effect_type=EffectType.READ)
    def look(call: Call, number: int) -> int:
        """Look."""
        return number


def rows_read(start: Start, *, steps: int) -> int:
    """How many rows of the journal are read to count one run of so many steps."""

    def decide(context: Context) -> Decision:
        if context.step_number > steps:
            return Finish()
        return CallTools(ToolCall("look", number=context.step_number))

    run = start(decider=decide, tools=("look",))
    advance(run_id=run.id, owner="worker 1", turn=Slice(steps=steps + 1, seconds=60.0))
    now = timezone.now()
    with transaction.atomic():
        before = ask(READ)
        roll_up(since=floor(now - timedelta(minutes=5)), until=ceil(now))
        read = int(ask(READ)) - int(before)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE runs_agentrun CASCADE")
    return read


def test_a_long_run_costs_as_much_for_each_step_as_a_short_one(look: None, start: Start) -> None:
    short, long = rows_read(start, steps=40), rows_read(start, steps=160)
    assert short > 0
    # Each row is read a few times; once for every other row would be sixteen times as many.
    assert long < 6 * short

"""What is counted of operations, from runs that the engine drove."""

from collections.abc import Callable

import pytest

from runs.models import AgentRun
from tests.database.kit import ON_DATABASE
from tests.database.slo_sums import counts, plain
from tests.database.stories import reconciled_run, repeating_run, taken_over_run, uncertain_run

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


def test_an_outcome_that_a_look_up_settles(start: Start) -> None:
    reconciled_run(start)
    assert counts() == {}

def test_takeover(start: Start) -> None:
    taken_over_run(start)
    assert counts() == {}

@pytest.mark.parametrize("how", ["return_recorded", "refuse", "ask"])
def test_repeat(start: Start, how) -> None:
    repeating_run(start, on_repeated_intent=how)
    assert counts() == {}

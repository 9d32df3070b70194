"""How random lives are searched: few and always the same in CI, many and others by hand."""

import os
from typing import Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

# How many lives somebody searches by hand; 0 in CI.
LIVES: Final = int(os.environ.get("AGENTOPS_LIVES", "0"))
MOVES: Final = 10


def search(lives: type[RuleBasedStateMachine], *, examples: int) -> None:
    """Live so many random lives; raises what breaks in one of them."""
    run_state_machine_as_test(
        lives,
        settings=settings(
            max_examples=LIVES or examples,
            stateful_step_count=MOVES,
            deadline=None,
            derandomize=not LIVES,
            # Shrinking takes many minutes: only who searches for long has them.
            phases=[Phase.generate, Phase.shrink] if LIVES else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )

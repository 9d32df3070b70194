"""How long a test waits for what must come."""

import time
from collections.abc import Callable

# As long as a machine may be busy with something else: nothing that comes waits for it to be over.
SOON = 30.0  # seconds


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether it holds soon."""
    deadline = time.monotonic() + SOON
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True

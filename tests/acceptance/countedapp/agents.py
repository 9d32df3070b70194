"""One agent that calls the tool once.

Where `COUNTS_AT_END` is set, its process writes what it counted at its end alone.
"""

import os

from agentops.metrics import flushing
from runs import Agent, Finish, Script, ToolCall

adder = Agent(
    name="adder",
    decider=Script(ToolCall("add", one=1, other=2), Finish("{last}")),
    tools=("add",),
)

if "COUNTS_AT_END" in os.environ:
    flushing.EVERY_SECONDS = 3600.0  # type: ignore[misc]

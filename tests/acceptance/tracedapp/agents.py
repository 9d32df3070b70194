"""The agent."""

from runs import Agent, Fail, Script, ToolCall

TRACED = Agent(
    name="traced",
    decider=Script(
        ToolCall("book", item="lamp", card="{input.card}"),
        ToolCall("ship", item="lamp"),
        Fail("the parcel came back"),
    ),
    tools=("book", "ship"),
    on_failure="compensate",
)

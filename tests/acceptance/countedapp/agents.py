"""One that calls the tool once."""

from runs import Agent, Finish, Script, ToolCall

adder = Agent(
    name="adder",
    decider=Script(ToolCall("add", one=1, other=2), Finish("{last}")),
    tools=("add",),
)

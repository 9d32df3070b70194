"""An agent that acts by itself, and one that asks people."""

from runs import Agent, Ask, Context, Decision, Finish, Script, ToolCall


def ask_once(context: Context) -> Decision:
    """Ask a person, and end with the answer."""
    if context.last is None:
        return Ask("Which one?", {"type": "object", "properties": {"which": {"type": "string"}}})
    return Finish(context.last.result)


Agent(name="asker", decider=ask_once)
Agent(name="looker", decider=Script(ToolCall("look_up"), Finish("done")), tools=("look_up",))

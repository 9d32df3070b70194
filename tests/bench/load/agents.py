"""Agents that call a tool as often as their input says, decided by a function."""

from runs import Agent, CallTools, Context, Decision, Finish, ToolCall


def decide(context: Context) -> Decision:
    """One call per step; finishes after `input["steps"]` of them."""
    if context.step_number > context.input["steps"]:
        return Finish(context.step_number - 1)
    tool = context.input.get("tool", "bench_noop")
    return CallTools(ToolCall(tool, number=context.step_number))


bench = Agent(
    name="bench", decider=decide, tools=("bench_noop", "bench_write", "bench_transaction")
)

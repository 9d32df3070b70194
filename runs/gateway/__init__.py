"""The gateway: calls of agents that run elsewhere, under the whole protocol.

`accepting` makes a request durable, `driving` has it carried out, `waiting` waits for what came
of it, and `calling` is the three in one, for every door: REST, MCP and commands.
"""

"""The MCP server at `/mcp`: the registered tools, for agents that speak the Model Context Protocol.

`door` lets requests in, `server` answers them by the official SDK, `listing` says which tools
there are, `asking` reads what is asked for, `naming` gives a call its key where its caller gave
none, and `answers` says what came of it. The gateway carries the calls out.
"""

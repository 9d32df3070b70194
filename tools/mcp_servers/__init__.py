"""Tools of MCP servers that the settings name, each with a recovery policy that a person declared.

    shape      what the file says (AGENTOPS_MCP_SERVERS), field by field
    reading    the file's text as that, or what is wrong with it
    declaring  registers each entry as a tool
    live       what a server lists now, beside what is pinned
    writing    puts new tools, and schemas that changed, into the file

A server's words decide nothing: its annotations are shown to whoever declares, and a schema that
differs from the pinned one stops calls until somebody has read it.
"""

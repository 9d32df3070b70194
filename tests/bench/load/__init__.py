"""The load: agents and a tool that do nothing, as a Django app like any user's."""

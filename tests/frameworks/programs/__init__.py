"""Agents as they would be written elsewhere, each a process of its own.

In each of them two agents of one framework work side by side on the same task: one whose tool
calls the provider itself, and one whose tool calls it through the gateway. Both are asked to go
on by the framework's own means when the program is started again.
"""

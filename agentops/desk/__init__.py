"""The desk: the start page of the admin, which says what is uncertain and who has to do what."""

from agentops.desk.page import show_desk

__all__ = ["show_desk"]

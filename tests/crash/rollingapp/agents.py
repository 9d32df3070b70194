"""Agents of one version: of each rule one that enters a name, one that naps, one that is held."""

import os
from datetime import timedelta
from typing import Literal

from runs import Agent, Finish, Script, Sleep, ToolCall

Rule = Literal["next_step", "rebuild_context", "reapprove", "finish_on_old"]
RULES: tuple[Rule, ...] = ("next_step", "rebuild_context", "reapprove", "finish_on_old")


def define(version: str) -> list[Agent]:
    """The agents, which finish with the version that decided it."""
    entries = {
        "enters": (ToolCall("enter", name="{input.name}"),),
        "naps": (ToolCall("enter", name="{input.name}"), Sleep(for_=timedelta(hours=1))),
        "held": (ToolCall("enter_signed", name="{input.name}"),),
    }
    return [
        Agent(
            name=f"{kind}_{rule}",
            decider=Script(*calls, Finish(version)),
            tools=("enter", "enter_signed"),
            on_version_change=rule,
        )
        for kind, calls in entries.items()
        for rule in RULES
    ]


if "ROLLING_VERSION" in os.environ:
    define(os.environ["ROLLING_VERSION"])

"""Secrets of ready-made tools: environment variables, read by name when a call is made.

Guarantees: a declaration holds the name and never the value; a variable that is missing, or
holds what no header may hold, is named, its value is not, and counts as "nothing was sent".
Does not keep a secret from code that runs in the same process.
"""

import os
import re

from tools.errors import NotSent

_VISIBLE = re.compile(r"[\x21-\x7e]+")


class NoSecret(NotSent):
    """The environment has no usable value under this name."""

    def __init__(self, name: str, *, problem: str) -> None:
        self.name = name
        super().__init__(f"the environment variable {name} {problem}")


def read_secret(name: str) -> str:
    """The variable's value without white space around it. Raises NoSecret."""
    value = os.environ.get(name, "").strip()
    if not value:
        raise NoSecret(name, problem="is not set")
    if _VISIBLE.fullmatch(value) is None:
        raise NoSecret(name, problem="holds characters other than visible ASCII")
    return value

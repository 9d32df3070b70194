"""Which metrics an expression of PromQL reads, and how, as far as our own rules need to be read.

Knows names of metrics, the labels that they are selected by, and what stands right around them. It
is no parser: whether an expression is one at all is for `promtool` to say.
"""

import re
from dataclasses import dataclass, field
from typing import Final

# A counter or gauge of ours, or what a rule records.
_SELECTOR: Final = re.compile(r"\b(agentops[_:][a-zA-Z0-9_:]+)\s*(?:\{([^}]*)\})?")
_MATCHER: Final = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_OVER_INSTANCES: Final = re.compile(r"max without \(instance\) \((?:(?:rate|increase)\()?$")


@dataclass(frozen=True)
class Selector:
    """One metric as an expression reads it; `once` if several web processes make one of it."""

    name: str
    once: bool
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def is_recorded(self) -> bool:
        return ":" in self.name


def find_selectors(expression: str) -> list[Selector]:
    """Every metric that the expression reads, in order."""
    plain = " ".join(_GROUPING.sub(_keep_without_instance, expression).split())
    return [
        Selector(
            name=found[1],
            once=bool(_OVER_INSTANCES.search(plain[: found.start()])),
            labels=dict(_MATCHER.findall(found[2] or "")),
        )
        for found in _SELECTOR.finditer(plain)
    ]


def find_groupings(expression: str) -> set[str]:
    """The labels that it groups, joins or aggregates by."""
    listed = ",".join(_GROUPING.findall(expression))
    return {label.strip() for label in listed.split(",")} - {""}


def _keep_without_instance(found: re.Match[str]) -> str:
    # Labels look like names of metrics to nobody, but the one grouping is looked for.
    return found[0] if found[1].strip() == "instance" else ""

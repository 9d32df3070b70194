"""The names of tools that may be label values: those that some code declared.

Guarantees: a name that an llm made up, or that whoever calls through the gateway did, is no label;
what is counted under it is counted under the empty name.
"""

from collections.abc import Set as AbstractSet

from runs.built_in import BUILT_IN
from runs.models import Definition
from tools.registry import all_tools


def find_tools() -> frozenset[str]:
    """The tools of this process, those that a worker ever served, and what the kernel does."""
    served = Definition.objects.filter(kind=Definition.Kind.TOOL).values_list("name", flat=True)
    return BUILT_IN.union((spec.name for spec in all_tools()), served.distinct())


def name_tool(tool: str, declared: AbstractSet[str]) -> str:
    """The tool as a label value."""
    return tool if tool in declared else ""

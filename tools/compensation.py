"""What corrects a tool's committed effect, as the tool declares it.

Guarantees: a `compensation_handler` is read in one way everywhere: it is a tool (the decorated
function, its spec or its name), or a function of the committed operation's call; the arguments
that a compensating tool is given are those of the committed operation that it names, and no
others.
Does not call a handler, and does not know what a compensation is to the kernel.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.core.checks import CheckMessage, Error, Warning

from tools.declarations import EffectType
from tools.errors import UnknownTool
from tools.registry import get_tool
from tools.spec import ToolSpec


def compensating_tool(spec: ToolSpec) -> str | None:
    """The name of the tool that is the handler; None where it is a function, or there is none."""
    match spec.compensation_handler:
        case str(name):
            return name
        case ToolSpec(name=name):
            return name
        case handler:
            declared = getattr(handler, "spec", None)
            return declared.name if isinstance(declared, ToolSpec) else None


def compensating_function(spec: ToolSpec) -> Callable[..., Any] | None:
    """The function `Call -> ToolCall | None` that is the handler; None where it is a tool."""
    handler = spec.compensation_handler
    if handler is None or compensating_tool(spec) is not None:
        return None
    # A text or a spec is a tool: what is left was declared as a function.
    return handler if callable(handler) else None


def pick_arguments(spec: ToolSpec, committed: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a committed operation's arguments that a compensating tool names."""
    return {name: committed[name] for name in spec.argument_names if name in committed}


def check_compensation(spec: ToolSpec) -> Iterator[CheckMessage]:
    """Messages about the handler that one tool declares; `checks.py` asks."""
    name = f"tool {spec.name}"
    if spec.compensation_handler is not None and not spec.effect_type.is_write:
        yield Warning(
            "compensation_handler: a READ has no effect, so it is never asked for.",
            hint="Leave it out, or declare the effect that the tool has.",
            obj=name,
            id="tools.W009",
        )
    corrector = compensating_tool(spec)
    if corrector is None:
        return
    try:
        other = get_tool(corrector)
    except UnknownTool as error:
        yield Error(
            f"compensation_handler names a tool that is not registered: {error}",
            hint="Correct the name, or add the tool's app to AGENTOPS_APPS.",
            obj=name,
            id="tools.E020",
        )
        return
    required = other.arguments_schema().get("required", [])
    if missing := [one for one in required if one not in spec.argument_names]:
        yield Error(
            f"compensation_handler: {other.name} needs {', '.join(missing)}, which {spec.name} "
            "is not called with.",
            hint=(
                f"Give those of {other.name} defaults, or write a function Call -> ToolCall that "
                "takes them from call.compensates."
            ),
            obj=name,
            id="tools.E021",
        )
    if not other.effect_type.is_write:
        yield Error(
            f"compensation_handler: {other.name} is a READ, which corrects nothing.",
            hint="Name the tool that takes the effect back.",
            obj=name,
            id="tools.E022",
        )
    elif weakness := _weakness(other):
        yield Warning(
            f"compensation_handler: {other.name} is {weakness}; a lost answer of it ends "
            "with a person, and the saga waits meanwhile.",
            hint="Compensate with an IDEMPOTENT_WRITE, or with one that can be looked up.",
            obj=name,
            id="tools.W008",
        )


def _weakness(spec: ToolSpec) -> str:
    match spec.effect_type:
        case EffectType.IRREVERSIBLE:
            return "IRREVERSIBLE"
        case EffectType.NON_IDEMPOTENT_WRITE if spec.reconcile_handler is None:
            return "a NON_IDEMPOTENT_WRITE without reconcile_handler"
        case _:
            return ""

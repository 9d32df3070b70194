"""Which tools a token sees, and what is said of them.

Guarantees: nobody is shown a tool that their token may not call; the schema is the one that
arguments are checked against; what the hints claim is what is declared, and the worse of the two
where nothing is.

Does not describe what a call will cost or who has to sign it: that depends on its arguments.
"""

from typing import Any, Final

import mcp_types as types

from runs.access import Actor
from runs.agents import EXTERNAL, get_agent
from runs.state import OperationStatus
from tools import EffectType
from tools.redaction import bound_text
from tools.registry import all_tools, get_tool
from tools.spec import ToolSpec

KEY_ARGUMENT: Final = "idempotency_key"
LONGEST_DESCRIPTION: Final = 8_000
# Below the minute after which many clients give a request up.
LONGEST_WAIT: Final = 45.0

# What a request came to that never became an operation.
REFUSED: Final = "REFUSED"
UNAVAILABLE: Final = "UNAVAILABLE"
STATUSES: Final = (*map(str, OperationStatus), REFUSED, UNAVAILABLE)

_KEY_SCHEMA: Final = {
    "type": ["string", "null"],
    "minLength": 1,
    "maxLength": 255,
    "description": "Optional. Names this call: the same key again returns the recorded result. "
    "Without one, the same call is made once; give a new key to do it again on purpose.",
}
_OUTPUT_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "status": {"enum": [*STATUSES]},
        "operation_id": {"type": "string"},
        "next": {"type": "string", "description": "what to do about it"},
        "replayed": {"type": "boolean", "description": "recorded before; nothing was done now"},
        "error": {"type": "string"},
        "result": {"description": "what the tool returned"},
    },
    "required": ["status"],
}


def list_tools(actor: Actor) -> list[types.Tool]:
    """The tools that the actor may call, by name, and the one that looks at a call."""
    callable_names = get_agent(EXTERNAL).allowed_tools
    found = [get_tool(name) for name in callable_names if actor.may_call(name)]
    return [*map(_describe, found), _describe_look()]


def name_of_look() -> str:
    """What the tool that looks at a call is named: another name where a registered one has it."""
    taken = {spec.name for spec in all_tools()}
    return next(name for name in ("get_operation", "agentops_get_operation") if name not in taken)


def takes_key(spec: ToolSpec) -> bool:
    """Whether `idempotency_key` is ours to read, and no argument of the tool's own."""
    return KEY_ARGUMENT not in spec.argument_names


def _describe(spec: ToolSpec) -> types.Tool:
    return types.Tool(
        name=spec.name,
        title=_title(spec.name),
        description=bound_text(spec.description, LONGEST_DESCRIPTION),
        input_schema=_input_schema(spec),
        output_schema=_OUTPUT_SCHEMA,
        annotations=_hints(spec),
    )


def _input_schema(spec: ToolSpec) -> dict[str, Any]:
    schema = spec.arguments_schema()
    schema.setdefault("type", "object")
    if spec.effect_type.is_write and takes_key(spec):
        schema.setdefault("properties", {})[KEY_ARGUMENT] = _KEY_SCHEMA
    return schema


def _hints(spec: ToolSpec) -> types.ToolAnnotations:
    if not spec.effect_type.is_write:
        return types.ToolAnnotations(
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=True,
        )
    return types.ToolAnnotations(
        read_only_hint=False,
        # No tool declares that it only adds.
        destructive_hint=True,
        # As it is called here: the same call again is answered and not made.
        idempotent_hint=not spec.repeatable,
        # A transactional tool writes to our own database and nowhere else.
        open_world_hint=spec.effect_type is not EffectType.TRANSACTIONAL,
    )


def _describe_look() -> types.Tool:
    name = name_of_look()
    return types.Tool(
        name=name,
        title=_title(name),
        description="Look at a call that was made before: what it came to, or what it waits for. "
        "With wait_seconds, wait for it to be settled. Calls nothing.",
        input_schema={
            "type": "object",
            "properties": {
                "operation_id": {"type": "string", "description": "from the call's answer"},
                "wait_seconds": {
                    "type": "number",
                    "minimum": 0,
                    "maximum": LONGEST_WAIT,
                    "default": 0,
                },
            },
            "required": ["operation_id"],
            "additionalProperties": False,
        },
        output_schema=_OUTPUT_SCHEMA,
        annotations=types.ToolAnnotations(
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )


def _title(name: str) -> str:
    return name.replace("_", " ").replace("-", " ").strip().capitalize() or name

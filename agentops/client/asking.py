"""One guarded call: at its place, once, and what came of it in words for whoever decides.

Guarantees: a decision that was made anew and differs from the one that was carried out is told
what that one did; it is not carried out beside it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from agentops.client.clients import AsyncClient, Client
from agentops.client.errors import ActionReused, Refused
from agentops.client.places import Place
from agentops.client.results import Operation
from agentops.client.telling import tell, tell_refused, tell_reused

# What becomes of a call that is pending or uncertain: its llm is told, or it is raised.
Held: TypeAlias = Literal["tell", "raise"]


def ask(
    client: Client,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    place: Place,
    wait: float | None,
    rationale: str = "",
    held: Held = "tell",
) -> Any:
    """The tool's result, or what an llm is to be told. Raises one of `errors`."""
    try:
        operation = client.operation(
            tool,
            arguments,
            key=place.key(arguments),
            thread=place.thread,
            step=place.step,
            action=place.action,
            rationale=rationale,
            wait=wait,
        )
    except ActionReused as reused:
        return tell_reused(client.look(reused.operation_id))
    except Refused as refusal:
        return tell_refused(refusal)
    return _tell(operation, held)


async def ask_async(
    client: AsyncClient | Client,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    place: Place,
    wait: float | None,
    rationale: str = "",
    held: Held = "tell",
) -> Any:
    """`ask`, without keeping the event loop from its work."""
    if isinstance(client, Client):
        return await asyncio.to_thread(
            ask,
            client,
            tool,
            arguments,
            place=place,
            wait=wait,
            rationale=rationale,
            held=held,
        )
    try:
        operation = await client.operation(
            tool,
            arguments,
            key=place.key(arguments),
            thread=place.thread,
            step=place.step,
            action=place.action,
            rationale=rationale,
            wait=wait,
        )
    except ActionReused as reused:
        return tell_reused(await client.look(reused.operation_id))
    except Refused as refusal:
        return tell_refused(refusal)
    return _tell(operation, held)


def _tell(operation: Operation, held: Held) -> Any:
    if held == "raise" and not operation.is_settled:
        operation.value()
    return tell(operation)

"""What a `tools/call` asks for: the tool's arguments, and what names the call.

Guarantees: a key comes from `_meta.idempotencyKey` or from the argument `idempotency_key`, and
two different ones are refused; what else names a call stands in `_meta` alone, where the host
writes and its llm does not.

Does not check what the gateway checks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from agentops.mcp.listing import KEY_ARGUMENT, LONGEST_WAIT, takes_key
from runs.decisions import LONGEST_RATIONALE
from runs.errors import InvalidInput
from runs.gateway.accepting import Asked
from runs.queries import parse_run_id
from runs.requests import read_body
from tools.spec import ToolSpec


class Meta(BaseModel):
    """What is ours of a request's `_meta`; the rest is the protocol's, or somebody else's."""

    model_config = ConfigDict(extra="ignore", strict=True)

    idempotency_key: str | None = Field(default=None, alias="idempotencyKey")
    run: str | None = None
    thread: str | None = None
    step: int | None = None
    action: str | None = None
    agent: str | None = Field(default=None, max_length=100)
    rationale: str = Field(default="", max_length=LONGEST_RATIONALE)
    wait_seconds: float | None = Field(
        default=None, alias="waitSeconds", ge=0, le=LONGEST_WAIT, allow_inf_nan=False
    )


class _Params(BaseModel):
    meta: Meta = Field(alias="_meta")


class Look(BaseModel):
    """The arguments of `get_operation`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    operation_id: str
    wait_seconds: float = Field(default=0.0, ge=0, le=LONGEST_WAIT, allow_inf_nan=False)


@dataclass(frozen=True)
class Request:
    """A call as it was asked for. `asked.key` is empty where its caller gave none."""

    asked: Asked
    wait_seconds: float | None


def read_call(*, spec: ToolSpec, arguments: Mapping[str, Any], meta: Any) -> Request:
    """Raises InvalidRequest or InvalidInput."""
    said = read_body({"_meta": meta or {}}, _Params).meta
    given = dict(arguments)
    key = said.idempotency_key
    if takes_key(spec) and (argument := given.pop(KEY_ARGUMENT, None)) is not None:
        if not isinstance(argument, str) or not argument:
            raise InvalidInput(
                field=KEY_ARGUMENT, value=ascii(argument)[:80], fix="Give a text, or leave it out."
            )
        if key is not None and key != argument:
            raise InvalidInput(
                field=KEY_ARGUMENT,
                value="another one than _meta.idempotencyKey",
                fix="Give the key once.",
            )
        key = argument
    if key == "":
        raise InvalidInput(
            field="_meta.idempotencyKey", value="an empty text", fix="Give a key, or leave it out."
        )
    asked = Asked(
        tool=spec.name,
        arguments=given,
        key=key or "",
        run=parse_run_id(said.run) if said.run is not None else None,
        thread=said.thread,
        step=said.step,
        action=said.action,
        agent=said.agent,
        rationale=said.rationale,
    )
    return Request(asked=asked, wait_seconds=said.wait_seconds)

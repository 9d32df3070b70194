"""One request of an MCP client, from what it says to what it is answered.

Guarantees: whatever is wrong with a request is said in its result, where the llm that made it
can read it and mend it, and is noted in the audit; an accepted call is noted with its own commit.

Does not decide anything: the gateway does.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mcp_types as types
import structlog
from django.db import DatabaseError
from mcp import MCPError
from mcp_types import INVALID_PARAMS

from agentops import audit
from agentops.mcp.answers import (
    LATER,
    answer_call,
    answer_look,
    answer_other_arguments,
    answer_problem,
)
from agentops.mcp.asking import Look, read_call
from agentops.mcp.listing import name_of_look
from agentops.mcp.naming import find_named, means_the_same, name_call
from agentops.problems import describe
from runs.access import CALL_PREFIX, Actor
from runs.errors import KeyReused
from runs.gateway.accepting import Asked
from runs.gateway.calling import call_operation, look_at_call
from runs.requests import read_body
from runs.shapes import Problem
from tools.errors import UnknownTool
from tools.registry import get_tool
from tools.spec import ToolSpec

log = structlog.get_logger(__name__)


def call_tool(
    *, actor: Actor, name: str, arguments: Mapping[str, Any], meta: Any
) -> types.CallToolResult:
    """Have a tool called once, or look at a call. Raises MCPError for a tool that is not there."""
    try:
        if name == name_of_look():
            return _look(actor, arguments)
        return _call(actor, name, arguments, meta)
    except Exception as error:
        described = describe(error)
        if described is None:
            raise
        problem, _ = described
        if name != name_of_look() and problem.status < LATER:
            _note_refused(actor, name, problem)
        if isinstance(error, UnknownTool):
            raise MCPError(code=INVALID_PARAMS, message=problem.detail) from error
        return answer_problem(problem)


def _call(actor: Actor, name: str, arguments: Mapping[str, Any], meta: Any) -> types.CallToolResult:
    actor.require(f"{CALL_PREFIX}{name}")
    spec = get_tool(name)
    request = read_call(spec=spec, arguments=arguments, meta=meta)
    if not request.asked.key:
        return _call_without_key(actor, spec, request.asked, request.wait_seconds)
    called = call_operation(actor=actor, asked=request.asked, wait_seconds=request.wait_seconds)
    return answer_call(called)


def _call_without_key(
    actor: Actor, spec: ToolSpec, asked: Asked, wait_seconds: float | None
) -> types.CallToolResult:
    named = name_call(actor=actor, spec=spec, asked=asked)
    try:
        called = call_operation(actor=actor, asked=named, wait_seconds=wait_seconds)
    except KeyReused:
        if named.step is not None or named.action is not None:
            raise
        known = replace(find_named(actor=actor, key=named.key), replayed=True)
        if means_the_same(known, spec, named.arguments):
            return answer_call(known, was_named=False)
        return answer_other_arguments(known, spec=spec)
    return answer_call(called, was_named=False)


def _look(actor: Actor, arguments: Mapping[str, Any]) -> types.CallToolResult:
    wanted = read_body(dict(arguments), Look)
    found = look_at_call(
        actor=actor, operation_id=wanted.operation_id, wait_seconds=wanted.wait_seconds
    )
    return answer_look(found)


def _note_refused(actor: Actor, name: str, problem: Problem) -> None:
    reason = problem.type.rpartition(":")[2]
    try:
        audit.note(actor, action=f"call {name}", status=problem.status, reason=reason)
    except DatabaseError:
        # Nothing was written, and the caller is told so either way.
        log.warning("audit_refusal_not_kept", status=problem.status, exc_info=True)

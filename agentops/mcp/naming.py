"""Calls without a key: what is to be done names them.

An llm repeats itself: after a lost answer, after its memory was cut, or because it forgot. So the
key of a write is made of what it intends (the tool, its `intent_key` arguments, the run or
thread), and the same intent is the same call, now and next week. Where the runtime itself watches
over the intent (in a run or thread, and where it is declared global), the key is made of all the
arguments: another call with the same intent is then held, refused or answered there, as its tool
declares.

Guarantees: one token's keyless write is carried out once for one intent. One that came to nothing
may be asked for anew, with one exception: what a person refused is not asked again with the same
arguments. Reads and `repeatable` tools get a new key each time.

Does not know of calls of other tokens, unless the tool declares its intent global.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from runs.access import Actor
from runs.errors import UnknownOperation
from runs.gateway.accepting import Asked
from runs.gateway.calling import Called, look_at_call
from runs.gateway.errors import KeyForgotten
from runs.models import GatewayCall, NeverSent
from runs.state import OperationStatus
from tools.canonical import digest
from tools.errors import InvalidArguments
from tools.spec import ToolSpec

# Keys of one intent that are looked for at once; more than one only after it came to nothing.
BLOCK: Final = 16


def name_call(*, actor: Actor, spec: ToolSpec, asked: Asked) -> Asked:
    """The call with a key, and with its arguments in their normal form.

    Raises InvalidArguments, or KeyForgotten where the same was asked for and is purged.
    """
    asked = replace(asked, arguments=spec.validate(asked.arguments))
    if not spec.effect_type.is_write or spec.repeatable:
        return replace(asked, key=f"new:{uuid4().hex}")
    is_in_run = asked.run is not None or asked.thread is not None
    where = [str(asked.run or ""), asked.thread, asked.agent]
    if is_in_run and (asked.step is not None or asked.action is not None):
        # The host has named it: whatever else is asked under that name is a mistake.
        return replace(asked, key=f"action:{digest([spec.name, *where, asked.step, asked.action])}")
    is_watched = is_in_run or spec.intent_scope == "global"
    intent = asked.arguments if is_watched else spec.intent_values(asked.arguments)
    name = digest([spec.name, *where, is_watched, intent])
    number, newest = _find_newest(actor, name)
    if newest is not None and _may_be_asked_anew(newest, spec, asked.arguments):
        number += 1
    return replace(asked, key=_key(name, number))


def find_named(*, actor: Actor, key: str) -> Called:
    """The call that the key names, as it stands. Raises KeyForgotten."""
    call = GatewayCall.objects.get(scope=actor.keys, key=key)
    return _look(actor, call)


def means_the_same(called: Called, spec: ToolSpec, arguments: Mapping[str, Any]) -> bool:
    """Whether the call was asked for with these arguments, however their amounts are spelled."""
    known = called.operation.arguments if called.operation is not None else called.call.arguments
    try:
        return spec.means_the_same(known or {}, arguments)
    except InvalidArguments:
        # They were recorded for another schema of the tool.
        return False


def _find_newest(actor: Actor, name: str) -> tuple[int, Called | None]:
    number, newest = 0, None
    for numbers in _blocks():
        keys = {_key(name, one): one for one in numbers}
        found = GatewayCall.objects.filter(scope=actor.keys, key__in=list(keys))
        calls = {keys[call.key or ""]: call for call in found}
        if calls:
            number = max(calls)
            newest = calls[number]
        if len(calls) < len(numbers):
            break
    return number, _look(actor, newest) if newest is not None else None


def _blocks() -> Iterator[range]:
    start, size = 0, BLOCK
    while True:
        yield range(start, start + size)
        start, size = start + size, size * 4


def _look(actor: Actor, call: GatewayCall) -> Called:
    if call.run_id is None:
        raise KeyForgotten
    try:
        found = look_at_call(actor=actor, operation_id=str(call.operation_id))
    except UnknownOperation as error:
        # Its run was purged since: that it was asked for is known, and nothing else.
        raise KeyForgotten from error
    assert isinstance(found, Called), "it was asked for by a call"
    return found


def _may_be_asked_anew(called: Called, spec: ToolSpec, arguments: Mapping[str, Any]) -> bool:
    operation = called.operation
    if operation is None:
        # It waits for its run, or that ended before.
        return called.is_settled
    match OperationStatus(operation.status):
        case OperationStatus.REJECTED:
            return True
        case OperationStatus.CANCELLED if operation.never_sent == NeverSent.DENIED:
            return not means_the_same(called, spec, arguments)
        case OperationStatus.CANCELLED:
            return True
    return False


def _key(name: str, number: int) -> str:
    return f"intent:{name}:{number}"

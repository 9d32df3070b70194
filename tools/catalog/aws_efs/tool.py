"""Creates a file system in Amazon EFS.

Guarantees: one operation creates at most one file system, because its id is the creation
token; one that exists under the token is this operation's answer if it was made as asked.
Does not wait until the file system can be used: it is "creating" for a while. Does not
notice one that was deleted before the look-up: it would be created again.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal, Unpack

from pydantic import BaseModel

from tools.call import Call
from tools.catalog.aws import AlreadyThere, ask, client_error, error_code, send_once
from tools.catalog.aws_efs.provider import AWS_EFS
from tools.catalog.declared import Declared
from tools.catalog.sending import UnreadableAnswer
from tools.declarations import EffectType
from tools.errors import ToolError
from tools.reconciled import Reconciled
from tools.spec import tool

ALREADY_EXISTS: Final = "FileSystemAlreadyExists"
NOT_FOUND: Final = "FileSystemNotFound"


class FileSystem(BaseModel):
    """A file system of this operation; `state` is EFS's life cycle state ("creating", …)."""

    file_system_id: str
    state: str
    external_ref: str


class OtherParameters(ToolError):
    """A file system exists under this operation's token and is not what was asked for."""

    def __init__(self, file_system_id: str, differences: str) -> None:
        super().__init__(f"{file_system_id} has this operation's token and differs: {differences}")


class Vanished(ToolError):
    """EFS said that a file system exists under the token, and then that there is none."""

    def __init__(self) -> None:
        super().__init__("EFS said that the file system exists, and does not list it")


def create_file_system_tool(
    *, name: str = "create_file_system", account: str = "", **declared: Unpack[Declared]
) -> Callable[..., FileSystem]:
    """Register a tool `name(label, encrypted, performance_mode, throughput_mode)`.

    `account` tells apart several AWS accounts; `declared` goes to `tools.tool` as it is.
    """

    def create_file_system(
        call: Call,
        label: str,
        encrypted: bool = True,
        performance_mode: Literal["generalPurpose", "maxIO"] = "generalPurpose",
        throughput_mode: Literal["bursting", "elastic"] = "elastic",
    ) -> FileSystem:
        """Create an empty network file system in Amazon EFS; `label` is its name tag."""
        return _create(call, label=label)

    return tool(
        name=name,
        provider=replace(AWS_EFS, account=account),
        effect_type=EffectType.IDEMPOTENT_WRITE,
        reconcile_handler=_look_up,
        **declared,
    )(create_file_system)


def _create(call: Call, *, label: str) -> FileSystem:
    try:
        answer = send_once(
            call=call,
            service="efs",
            operation="create_file_system",
            parameters={
                "CreationToken": call.idempotency_key,
                "Tags": [{"Key": "Name", "Value": label}],
                "ThroughputMode": call.arguments["throughput_mode"],
                **_fixed(call),
            },
            already_there={ALREADY_EXISTS},
        )
    except AlreadyThere as error:
        found = _find(call)
        if found is None:
            raise Vanished from error
        return found
    return _described(answer)


def _look_up(call: Call) -> Reconciled[FileSystem]:
    try:
        found = _find(call)
    except OtherParameters as error:
        return Reconciled.indeterminate(str(error))
    if found is None:
        return Reconciled.not_found()
    return Reconciled.committed(found, external_ref=found.external_ref)


def _find(call: Call) -> FileSystem | None:
    """This operation's file system, or None. Raises OtherParameters or what botocore raises."""
    try:
        answer = ask(
            call=call,
            service="efs",
            operation="describe_file_systems",
            parameters={"CreationToken": call.idempotency_key},
        )
    except client_error() as error:
        if error_code(error) != NOT_FOUND:
            raise
        return None
    for one in answer["FileSystems"]:
        if one["CreationToken"] != call.idempotency_key:
            continue
        if differing := [name for name, value in _fixed(call).items() if one[name] != value]:
            raise OtherParameters(one["FileSystemId"], ", ".join(differing))
        return _described(one)
    return None


def _fixed(call: Call) -> dict[str, Any]:
    """What nobody can change later, as EFS names it: the part that can be compared."""
    return {
        "Encrypted": call.arguments["encrypted"],
        "PerformanceMode": call.arguments["performance_mode"],
    }


def _described(one: Any) -> FileSystem:
    identity = str(one.get("FileSystemId", ""))
    if not identity:
        raise UnreadableAnswer("there is no FileSystemId in it")
    state = str(one.get("LifeCycleState", "unknown"))
    return FileSystem(file_system_id=identity, state=state, external_ref=identity)

"""Creates an object in S3 under a name that nobody has yet.

Guarantees: one operation creates at most one object and overwrites none, whatever was lost
on the way; an object counts as this operation's only if its metadata carry the operation's
id and the body's digest.
Does not notice an object of its own that somebody deleted or replaced before the look-up:
the first is created again, the second goes to a person.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Unpack

from pydantic import BaseModel

from tools.call import Call
from tools.catalog.aws import (
    AlreadyThere,
    ask,
    client_error,
    error_code,
    error_status,
    send_once,
)
from tools.catalog.aws_s3.provider import AWS_S3
from tools.catalog.declared import Declared
from tools.catalog.sending import UnreadableAnswer
from tools.declarations import EffectType
from tools.errors import NotSent, Rejected, ToolError
from tools.reconciled import Reconciled
from tools.spec import tool

# S3 sends metadata names back in lower case.
OPERATION: Final = "agentops-operation"
DIGEST: Final = "agentops-sha256"
PRECONDITION_FAILED: Final = "PreconditionFailed"


class StoredObject(BaseModel):
    """An object of this operation. `external_ref` is its version, or without versions its ETag."""

    bucket: str
    key: str
    etag: str
    version_id: str | None
    external_ref: str


class NotOurs(ToolError):
    """An object of this name exists and does not carry this operation's marks."""

    def __init__(self, bucket: str, key: str) -> None:
        super().__init__(f"s3://{bucket}/{key} exists and was not written by this operation")


class DeleteMarker(ToolError):
    """The object's newest version is its deletion: whose it was is not known."""

    def __init__(self, bucket: str, key: str) -> None:
        super().__init__(f"s3://{bucket}/{key} was deleted; what was there is not known")


def put_object_tool(
    *, bucket: str, name: str = "put_object", account: str = "", **declared: Unpack[Declared]
) -> Callable[..., StoredObject]:
    """Register a tool `name(key, body, content_type)` that creates objects in `bucket`.

    `account` tells apart several AWS accounts; `declared` goes to `tools.tool` as it is.
    """

    def find_object(call: Call) -> Reconciled[StoredObject]:
        return _look_up(call, bucket)

    def put_object(
        call: Call, key: str, body: str, content_type: str = "text/plain; charset=utf-8"
    ) -> StoredObject:
        """Create an object in S3 from text. Fails if an object of this key exists."""
        return _put(call, bucket, key=key, body=body, content_type=content_type)

    return tool(
        name=name,
        provider=replace(AWS_S3, account=account),
        effect_type=EffectType.IDEMPOTENT_WRITE,
        reconcile_handler=find_object,
        **declared,
    )(put_object)


def _put(call: Call, bucket: str, *, key: str, body: str, content_type: str) -> StoredObject:
    content = body.encode()
    try:
        answer = send_once(
            call=call,
            service="s3",
            operation="put_object",
            parameters={
                "Bucket": bucket,
                "Key": key,
                "Body": content,
                "ContentType": content_type,
                "IfNoneMatch": "*",
                "Metadata": {OPERATION: call.operation_id, DIGEST: _digest(content)},
            },
            already_there={PRECONDITION_FAILED},
        )
    except AlreadyThere as error:
        return _adopt(call, bucket, key, error)
    return _stored(bucket, key, answer)


def _adopt(call: Call, bucket: str, key: str, error: AlreadyThere) -> StoredObject:
    """The object that kept this write out, if an earlier send of this operation made it.

    A refusal is only this send's: the kernel keeps an operation with an earlier unknown send
    unknown, whatever is raised here.
    """
    try:
        found = _find(call, bucket, key)
    except (NotOurs, DeleteMarker) as reason:
        raise Rejected(str(reason)) from error
    if found is None:
        raise NotSent(f"refused for s3://{bucket}/{key}, which exists no longer") from error
    return found


def _look_up(call: Call, bucket: str) -> Reconciled[StoredObject]:
    try:
        found = _find(call, bucket, str(call.arguments["key"]))
    except (NotOurs, DeleteMarker) as error:
        return Reconciled.indeterminate(str(error))
    if found is None:
        return Reconciled.not_found()
    return Reconciled.committed(found, external_ref=found.external_ref)


def _find(call: Call, bucket: str, key: str) -> StoredObject | None:
    """This operation's object, or None. Raises NotOurs, DeleteMarker, or what botocore raises."""
    try:
        head = ask(
            call=call,
            service="s3",
            operation="head_object",
            parameters={"Bucket": bucket, "Key": key},
        )
    except client_error() as error:
        if error_status(error) != 404 or error_code(error) not in {"404", "NoSuchKey"}:
            raise
        if _says_deleted(error):
            raise DeleteMarker(bucket, key) from error
        return None
    marks = head.get("Metadata", {})
    expected = _digest(str(call.arguments["body"]).encode())
    if (marks.get(OPERATION), marks.get(DIGEST)) != (call.operation_id, expected):
        raise NotOurs(bucket, key)
    return _stored(bucket, key, head)


def _says_deleted(error: Any) -> bool:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return bool(headers.get("x-amz-delete-marker") == "true")


def _stored(bucket: str, key: str, answer: Any) -> StoredObject:
    etag = str(answer.get("ETag", "")).strip('"')
    if not etag:
        raise UnreadableAnswer("there is no ETag in it")
    version = answer.get("VersionId")
    return StoredObject(
        bucket=bucket, key=key, etag=etag, version_id=version, external_ref=version or etag
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

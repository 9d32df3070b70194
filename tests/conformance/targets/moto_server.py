"""AWS's S3 and EFS as moto plays them, in a process of its own.

Guarantees: S3 honours `If-None-Match: *` and keeps versions, EFS honours creation tokens; effects
are counted by asking moto past every proxy.
Does not stand for EC2: moto ignores its client tokens. Accepts any credentials.
"""

import os
import re
from functools import cache
from pathlib import Path
from typing import Any, Self

import boto3

from tests.conformance.targets.loopback import wait_until_listening
from tests.processes import Program, wait_until

REGION = "us-east-1"
# What a tool finds in its environment; moto takes any credentials.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
}


class MotoServer:
    """Starts with a `with` block; from the main thread, like every program."""

    def __init__(self, *, log_dir: Path) -> None:
        arguments = ("-m", "moto.server", "-H", "127.0.0.1", "-p", "0")
        self._program = Program(*arguments, env=os.environ, log=log_dir / "moto.log", name="moto")
        self._port: int | None = None

    def __enter__(self) -> Self:
        wait_until(lambda: self._find_port() or not self._program.lives, what="moto has a port")
        assert self._port, self._program.said
        wait_until_listening(self._program, self._port)
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @cache  # noqa: B019  lives no longer than the server
    def client(self, service: str) -> Any:
        """boto3's own client of the server itself."""
        options = {"region_name": REGION, "endpoint_url": self.url}
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return boto3.client(service, **options, **keys)  # type: ignore[call-overload]

    def create_bucket(self, name: str) -> str:
        """A bucket that keeps every version, so that an overwritten object can be counted."""
        s3 = self.client("s3")
        s3.create_bucket(Bucket=name)
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return name

    def versions(self, bucket: str, key: str) -> int:
        """How often an object of this name was written."""
        listed = self.client("s3").list_object_versions(Bucket=bucket, Prefix=key)
        return sum(one["Key"] == key for one in listed.get("Versions", []))

    def file_systems(self) -> list[Any]:
        pages = self.client("efs").get_paginator("describe_file_systems").paginate()
        return [one for page in pages for one in page["FileSystems"]]

    def _find_port(self) -> bool:
        found = re.search(r"Running on http://127\.0\.0\.1:(\d+)", self._program.said)
        self._port = int(found.group(1)) if found else None
        return self._port is not None

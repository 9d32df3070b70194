"""The author's kit finds the tools for S3, EFS, CalDAV and MCP sound, over the real targets."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.conformance.calls import new_call
from tests.conformance.side_by_side import AGAIN, WHOLE, Check, Reports, reports_of
from tests.conformance.targets.mcp_servers import Notes
from tests.conformance.targets.moto_server import ENVIRONMENT, MotoServer
from tests.conformance.targets.radicale_server import PASSWORD, USER, Radicale
from tools import Call, EffectType, Reconciled
from tools.catalog import aws
from tools.catalog.aws_efs import create_file_system_tool
from tools.catalog.aws_s3 import put_object_tool
from tools.catalog.caldav import create_event_tool
from tools.catalog.mcp_call import HttpServer, ask_server, honouring_keys, mcp_tool
from tools.testing import Report, assert_sound, check

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600), pytest.mark.django_db]

NOTES = HttpServer(url_env="NOTES_URL")


class Note(BaseModel):
    """Write a note down."""

    text: str


def an_object_in_s3(folder: Path) -> Report:
    with moto(folder) as server:
        bucket = server.create_bucket("reports")
        read_descriptions("s3", "list_buckets")
        return check(
            put_object_tool(bucket=bucket),
            arguments=lambda number: {"key": f"report {number}", "body": "all is well"},
            count_effects=lambda intended: server.versions(bucket, intended.arguments["key"]),
            **WHOLE,
        )


def a_file_system_in_efs(folder: Path) -> Report:
    with moto(folder) as server:
        read_descriptions("efs", "describe_file_systems")
        return check(
            create_file_system_tool(),
            arguments=lambda number: {"label": f"scratch {number}"},
            count_effects=lambda intended: sum(
                one["CreationToken"] == intended.idempotency_key for one in server.file_systems()
            ),
            **WHOLE,
        )


def an_event_in_a_calendar(folder: Path) -> Report:
    with Radicale(folder=folder) as radicale:
        os.environ["CALDAV_URL"] = radicale.url + radicale.create_calendar("work")
        os.environ |= {"CALDAV_USER": USER, "CALDAV_PASSWORD": PASSWORD}
        return check(
            create_event_tool(),
            arguments=lambda number: {
                "summary": f"Meeting {number}",
                "start": "2026-12-01T09:00:00Z",
                "end": "2026-12-01T10:00:00Z",
            },
            count_effects=lambda intended: sum(
                f"UID:{intended.operation_id}" in text for text in radicale.events("work")
            ),
            **WHOLE,
        )


def a_tool_of_an_mcp_server(folder: Path, *, honours_keys: bool, looks_up: bool) -> Report:
    keys = honouring_keys("notes", kept_for=timedelta(days=1), scope="server", lookup="by_key")
    declared: dict[str, Any] = {"effect_type": EffectType.NON_IDEMPOTENT_WRITE}
    if honours_keys:
        declared = {"effect_type": EffectType.IDEMPOTENT_WRITE, "provider": keys}
    with Notes(folder=folder, honour=honours_keys) as notes:
        os.environ["NOTES_URL"] = f"{notes.url}/mcp"
        return check(
            mcp_tool(
                name="note",
                server=NOTES,
                tool="add_note",
                arguments=Note,
                external_ref="id",
                reconcile_handler=find_note if looks_up else None,
                **declared,
            ),
            arguments=lambda number: {"text": f"note {number}"},
            count_effects=lambda intended: sum(
                one["key"] == intended.idempotency_key for one in notes.effects
            ),
            **(WHOLE if honours_keys and looks_up else AGAIN),
        )


MCP = {
    f"mcp {'with' if honours_keys else 'without'} keys, "
    f"{'with' if looks_up else 'without'} look-up": partial(
        a_tool_of_an_mcp_server, honours_keys=honours_keys, looks_up=looks_up
    )
    for honours_keys in (True, False)
    for looks_up in (True, False)
}
CHECKS: dict[str, Check] = {
    "s3": an_object_in_s3,
    "efs": a_file_system_in_efs,
    "caldav": an_event_in_a_calendar,
    **MCP,
}
reports = reports_of(CHECKS, are_sound=True)


@pytest.mark.parametrize("checked", CHECKS)
def test_a_tool_for_a_cloud_is_sound(checked: str, reports: Reports) -> None:
    print(reports[checked])
    assert_sound(reports[checked])


@contextmanager
def moto(folder: Path) -> Iterator[MotoServer]:
    os.environ |= ENVIRONMENT
    with MotoServer(log_dir=folder) as server:
        os.environ["AWS_ENDPOINT_URL"] = server.url
        yield server


def read_descriptions(service: str, operation: str) -> None:
    """Megabytes, read here once, and not by every process that is forked."""
    aws.ask(call=new_call("op_0"), service=service, operation=operation, parameters={})


async def find_note(call: Call) -> Reconciled[Any]:
    answer: Any = await ask_server(
        call, server=NOTES, tool="find_note", arguments={"key": call.idempotency_key}
    )
    found = answer["structured"]["found"]
    if found is None:
        return Reconciled.not_found()
    result = {"text": "", "structured": {"id": found["id"]}, "left_out": []}
    return Reconciled.committed(result, external_ref=found["id"])

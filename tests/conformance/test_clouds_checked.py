"""The author's kit finds the tools for S3, EFS, CalDAV and MCP sound, over the real targets."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.conformance.targets.mcp_servers import Notes
from tests.conformance.targets.moto_server import ENVIRONMENT, MotoServer
from tests.conformance.targets.radicale_server import PASSWORD, USER, Radicale
from tools import Call, EffectType, Reconciled
from tools.catalog.aws_efs import create_file_system_tool
from tools.catalog.aws_s3 import put_object_tool
from tools.catalog.caldav import create_event_tool
from tools.catalog.mcp_call import HttpServer, ask_server, honouring_keys, mcp_tool
from tools.testing import Intended, Report, assert_sound, check

pytestmark = [pytest.mark.crash, pytest.mark.django_db(transaction=True)]

NOTES = HttpServer(url_env="NOTES_URL")


class Note(BaseModel):
    """Write a note down."""

    text: str


@pytest.fixture
def moto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MotoServer]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with MotoServer(log_dir=tmp_path) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        yield server


def test_an_object_in_s3(moto: MotoServer) -> None:
    bucket = moto.create_bucket("reports")
    checked(
        put_object_tool(bucket=bucket),
        arguments=lambda number: {"key": f"report {number}", "body": "all is well"},
        count_effects=lambda intended: moto.versions(bucket, intended.arguments["key"]),
    )


def test_a_file_system_in_efs(moto: MotoServer) -> None:
    checked(
        create_file_system_tool(),
        arguments=lambda number: {"label": f"scratch {number}"},
        count_effects=lambda intended: sum(
            one["CreationToken"] == intended.idempotency_key for one in moto.file_systems()
        ),
    )


def test_an_event_in_a_calendar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Radicale(folder=tmp_path) as radicale:
        monkeypatch.setenv("CALDAV_URL", radicale.url + radicale.create_calendar("work"))
        monkeypatch.setenv("CALDAV_USER", USER)
        monkeypatch.setenv("CALDAV_PASSWORD", PASSWORD)
        checked(
            create_event_tool(),
            arguments=lambda number: {
                "summary": f"Meeting {number}",
                "start": "2026-12-01T09:00:00Z",
                "end": "2026-12-01T10:00:00Z",
            },
            count_effects=lambda intended: sum(
                f"UID:{intended.operation_id}" in text for text in radicale.events("work")
            ),
        )


@pytest.mark.parametrize("honours_keys", [True, False])
@pytest.mark.parametrize("looks_up", [True, False])
def test_a_tool_of_an_mcp_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, honours_keys: bool, looks_up: bool
) -> None:
    keys = honouring_keys("notes", kept_for=timedelta(days=1), scope="server", lookup="by_key")
    declared: dict[str, Any] = {"effect_type": EffectType.NON_IDEMPOTENT_WRITE}
    if honours_keys:
        declared = {"effect_type": EffectType.IDEMPOTENT_WRITE, "provider": keys}
    with Notes(folder=tmp_path, honour=honours_keys) as notes:
        monkeypatch.setenv("NOTES_URL", f"{notes.url}/mcp")
        checked(
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
        )


async def find_note(call: Call) -> Reconciled[Any]:
    answer: Any = await ask_server(
        call, server=NOTES, tool="find_note", arguments={"key": call.idempotency_key}
    )
    found = answer["structured"]["found"]
    if found is None:
        return Reconciled.not_found()
    result = {"text": "", "structured": {"id": found["id"]}, "left_out": []}
    return Reconciled.committed(result, external_ref=found["id"])


def checked(
    tool: Any,
    *,
    arguments: Callable[[int], Mapping[str, Any]],
    count_effects: Callable[[Intended], int],
) -> Report:
    report = check(tool, arguments=arguments, count_effects=count_effects)
    print(report)
    assert_sound(report)
    return report

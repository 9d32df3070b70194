"""A tool of an MCP server is called once; a lost answer ends where the declaration says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.conformance.calls import Operation
from tests.conformance.targets.mcp_servers import FOLDER, Notes
from tools import EffectType
from tools.catalog.mcp_call import HttpServer, StdioServer, mcp_tool
from tools.outcome import Committed


class Note(BaseModel):
    """Write a note down."""

    text: str


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notes]:
    with Notes(folder=tmp_path) as server:
        yield server


def test_a_call_over_http(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_URL", f"{notes.url}/mcp")
    mcp_tool(name="note", server=HttpServer(url_env="MCP_URL"), tool="add_note", effect_type=EffectType.NON_IDEMPOTENT_WRITE, arguments=Note, external_ref="id")
    operation = Operation("note", {"text": "hello"})
    outcome = operation.send()
    print(outcome)
    assert isinstance(outcome, Committed)
    print(notes.effects)
    assert 0


def test_a_call_over_stdio(tmp_path: Path) -> None:
    notes = Notes(folder=tmp_path)
    mcp_tool(name="note", server=StdioServer(command=notes.command(), folder=FOLDER), tool="add_note", effect_type=EffectType.NON_IDEMPOTENT_WRITE, arguments=Note, external_ref="id")
    operation = Operation("note", {"text": "hello"})
    outcome = operation.send()
    print(outcome)
    assert isinstance(outcome, Committed)
    print(notes.effects)
    assert 0

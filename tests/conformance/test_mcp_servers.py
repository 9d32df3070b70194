"""MCP servers that others wrote, and what the kernel makes of a call that was lost."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from runs import ToolCall
from runs.models import AgentRun
from tests.conformance.calls import Operation
from tests.conformance.targets.fault_proxy import (
    FaultProxy,
    HalfBody,
    HoldAnswer,
    LoseAnswer,
)
from tests.conformance.targets.mcp_servers import (
    FOLDER,
    Everything,
    StdioFault,
    everything_command,
    filesystem,
)
from tests.database.kit import ON_DATABASE, call_once, drive, drive_when_due, operation_of
from tests.processes import wait_until
from tools import EffectType
from tools.catalog.mcp_call import HttpServer, StdioServer, mcp_tool
from tools.outcome import Committed, Refused, Unknown

# It does not know the newest revision: server/discover, initialize, initialized, tools/list.
BEFORE_THE_CALL = 4


class Echo(BaseModel):
    """Say it again."""

    message: str


class Write(BaseModel):
    """Write a file."""

    path: str
    content: str


class Edit(BaseModel):
    """Replace parts of a file."""

    path: str
    edits: list[dict[str, str]]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everything]:
    with Everything(folder=tmp_path_factory.mktemp("everything")) as server:
        yield server


@pytest.fixture
def proxy(everything: Everything, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    with FaultProxy(everything.url) as fault_proxy:
        monkeypatch.setenv("EVERYTHING_URL", f"{fault_proxy.url}/mcp")
        yield fault_proxy


@pytest.fixture
def echo(proxy: FaultProxy) -> Operation:
    """A write, for all that the kernel knows; the server counts nothing, so the proxy does."""
    mcp_tool(
        name="echo",
        server=HttpServer(url_env="EVERYTHING_URL"),
        tool="echo",
        effect_type=EffectType.NON_IDEMPOTENT_WRITE,
        arguments=Echo,
    )
    return Operation("echo", {"message": "hello"})


def calls(proxy: FaultProxy) -> int:
    return sum(b'"tools/call"' in one.body for one in proxy.seen(method="POST"))


def files_tool(tool: str, arguments: type[BaseModel], command: tuple[str, ...]) -> None:
    mcp_tool(
        name=tool,
        server=StdioServer(command=command, folder=FOLDER),
        tool=tool,
        effect_type=EffectType.NON_IDEMPOTENT_WRITE,
        arguments=arguments,
    )


def appending(file: Path) -> dict[str, Any]:
    """Arguments of an edit that adds one more line each time it is made."""
    return {"path": str(file), "edits": [{"oldText": "end", "newText": "more\nend"}]}


# -- server-everything --------------------------------------------------------------------------


def test_a_call_over_http_ends_its_session(echo: Operation, proxy: FaultProxy) -> None:
    outcome = echo.send()
    assert isinstance(outcome, Committed)
    assert outcome.result == {"text": "Echo: hello", "structured": None, "left_out": []}
    assert proxy.forwarded(method="DELETE") == 1


def test_an_answer_is_kept_although_the_farewell_outlives_the_deadline(
    echo: Operation, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.catalog.mcp_call.gate.FAREWELL_SECONDS", 60.0)
    proxy.next(HoldAnswer(), method="DELETE")
    said = [echo.send(seconds=6.0)]
    if isinstance(said[0], Unknown):
        # The deadline and the function's own end come at the same moment.
        wait_until(lambda: bool(echo.late), what="the function comes back")
        said = echo.late
    assert isinstance(said[0], Committed)
    proxy.release()


@pytest.mark.parametrize("fault", [LoseAnswer(), HalfBody()], ids=["lost", "half"])
def test_a_stream_that_can_be_resumed_is_not_and_the_call_is_not_sent_again(
    echo: Operation, proxy: FaultProxy, fault: LoseAnswer | HalfBody
) -> None:
    proxy.next(HoldAnswer(seconds=0), method="POST", times=BEFORE_THE_CALL)
    proxy.next(fault, method="POST")
    assert isinstance(echo.send(), Unknown)
    assert calls(proxy) == 1
    assert proxy.forwarded(method="GET") == 0


def test_a_call_over_standard_streams() -> None:
    mcp_tool(
        name="echo",
        server=StdioServer(command=everything_command()),
        tool="echo",
        effect_type=EffectType.READ,
        arguments=Echo,
    )
    outcome = Operation("echo", {"message": "hello"}).send()
    assert isinstance(outcome, Committed)
    assert isinstance(outcome.result, dict)
    assert outcome.result["text"] == "Echo: hello"


def test_pictures_are_named_and_not_kept() -> None:
    mcp_tool(
        name="picture",
        server=StdioServer(command=everything_command()),
        tool="get-tiny-image",
        effect_type=EffectType.READ,
        arguments=BaseModel,
    )
    outcome = Operation("picture", {}).send()
    assert isinstance(outcome, Committed)
    assert isinstance(outcome.result, dict)
    assert outcome.result["left_out"] == ["image image/png"]


# -- server-filesystem --------------------------------------------------------------------------


def test_a_file_is_written(tmp_path: Path) -> None:
    files_tool("write_file", Write, filesystem(tmp_path))
    file = tmp_path / "a.txt"
    outcome = Operation("write_file", {"path": str(file), "content": "hello"}).send()
    assert isinstance(outcome, Committed)
    assert file.read_text() == "hello"


def test_a_file_outside_the_folder_is_an_error_that_proves_nothing(tmp_path: Path) -> None:
    files_tool("write_file", Write, filesystem(tmp_path))
    outcome = Operation("write_file", {"path": "/a.txt", "content": "hello"}).send()
    assert isinstance(outcome, Unknown)


def test_an_error_that_the_operator_calls_final_is_a_refusal(tmp_path: Path) -> None:
    mcp_tool(
        name="write_file",
        server=StdioServer(command=filesystem(tmp_path)),
        tool="write_file",
        effect_type=EffectType.NON_IDEMPOTENT_WRITE,
        arguments=Write,
        errors_are_final=True,
    )
    outcome = Operation("write_file", {"path": "/a.txt", "content": "hello"}).send()
    assert isinstance(outcome, Refused)
    assert "denied" in outcome.reason


@pytest.mark.parametrize(("fault", "effects"), [("lose", 1), ("drop", 0)])
def test_an_edit_whose_answer_is_lost_is_unknown_and_made_once(
    tmp_path: Path, fault: StdioFault, effects: int
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("end")
    files_tool("edit_file", Edit, filesystem(tmp_path, fault=fault))
    assert isinstance(Operation("edit_file", appending(file)).send(), Unknown)
    assert file.read_text().count("more") == effects


# -- In front of a person -----------------------------------------------------------------------


@ON_DATABASE
@pytest.mark.parametrize(("fault", "effects"), [("lose", 1), ("drop", 0)])
def test_a_lost_write_without_look_up_ends_in_front_of_a_person(
    start: Callable[..., AgentRun], tmp_path: Path, fault: StdioFault, effects: int
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("end")
    files_tool("edit_file", Edit, filesystem(tmp_path, fault=fault))
    decider = call_once(ToolCall("edit_file", **appending(file)))
    run = start(decider=decider, tools=("edit_file",))
    drive(run)
    drive_when_due(run)
    assert run.state == "WAITING_FOR_RESOLUTION"
    assert operation_of(run).status == "UNKNOWN"
    assert operation_of(run).attempts == 1
    assert file.read_text().count("more") == effects

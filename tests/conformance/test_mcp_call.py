"""A tool of an MCP server is called once; what is lost on the way is unknown and never resent."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.conformance.calls import Operation
from tests.conformance.targets.fault_proxy import (
    AnswerInstead,
    Fault,
    FaultProxy,
    HalfBody,
    HoldAnswer,
    LandLate,
    LoseAnswer,
    ResetBefore,
)
from tests.conformance.targets.loopback import free_port
from tests.conformance.targets.mcp_servers import FOLDER, Notes, StdioFault
from tests.processes import wait_until
from tools import Call, EffectType, Reconciled
from tools.catalog.mcp_call import HttpServer, StdioServer, ask_server, mcp_tool
from tools.errors import InvalidTool
from tools.outcome import Committed, Unknown, Unsent
from tools.registry import get_tool

WRITE = EffectType.NON_IDEMPOTENT_WRITE
OVER_HTTP = HttpServer(url_env="NOTES_URL")
# A session with a server of the SDK begins with two requests, and the third is the call.
BEFORE_THE_CALL = 2


class Note(BaseModel):
    """Write a note down."""

    text: str


@pytest.fixture
def note(notes_proxy: FaultProxy) -> Operation:
    """One operation that writes a note, over HTTP."""
    mcp_tool(
        name="note",
        server=OVER_HTTP,
        tool="add_note",
        effect_type=WRITE,
        arguments=Note,
        external_ref="id",
        reconcile_handler=find_note,
    )
    return Operation("note", {"text": "hello"})


async def find_note(call: Call) -> Reconciled[Any]:
    answer = await ask_server(
        call, server=OVER_HTTP, tool="find_note", arguments={"key": call.idempotency_key}
    )
    found: Any = answer["structured"]
    if found["found"] is None:
        return Reconciled.not_found()
    return Reconciled.committed({"structured": found["found"]}, external_ref=found["found"]["id"])


def spoil_the_call(proxy: FaultProxy, fault: Fault) -> None:
    proxy.next(HoldAnswer(seconds=0), method="POST", times=BEFORE_THE_CALL)
    proxy.next(fault, method="POST")


def calls(proxy: FaultProxy) -> int:
    """How many tool calls reached the server."""
    return sum(b'"tools/call"' in one.body for one in proxy.seen(method="POST"))


def over_stdio(command: tuple[str, ...], **options: Any) -> Operation:
    mcp_tool(
        name="note",
        server=StdioServer(command=command, folder=FOLDER),
        tool="add_note",
        effect_type=WRITE,
        arguments=Note,
        **options,
    )
    return Operation("note", {"text": "hello"})


# -- A call that goes well ----------------------------------------------------------------------


def test_a_call_over_http_is_one_effect_with_its_key_in_meta(note: Operation, notes: Notes) -> None:
    outcome = note.send()
    assert isinstance(outcome, Committed)
    assert outcome.result == {"text": "", "structured": {"id": "note-1"}, "left_out": []}
    assert outcome.external_ref == "note-1"
    assert [one["key"] for one in notes.effects] == [note.id]
    assert note.look_up().external_ref == "note-1"


def test_a_call_over_standard_streams_is_one_effect(tmp_path: Path) -> None:
    notes = Notes(folder=tmp_path)
    outcome = over_stdio(notes.command(), external_ref="id").send()
    assert isinstance(outcome, Committed)
    assert outcome.external_ref == "note-1"
    assert len(notes.effects) == 1


def test_the_key_may_be_an_argument_of_the_server(note: Operation, notes: Notes) -> None:
    mcp_tool(
        name="keyed_note",
        server=OVER_HTTP,
        tool="add_keyed_note",
        effect_type=WRITE,
        arguments=Note,
        key_argument="idempotency_key",
    )
    keyed = Operation("keyed_note", {"text": "hello"})
    assert isinstance(keyed.send(), Committed)
    assert [one["key"] for one in notes.effects] == [keyed.id]


def test_a_key_that_is_an_argument_too_is_no_tool() -> None:
    with pytest.raises(InvalidTool, match="text is an argument and the key"):
        mcp_tool(
            name="note",
            server=OVER_HTTP,
            tool="add_note",
            effect_type=WRITE,
            arguments=Note,
            key_argument="text",
        )


def test_the_fencing_token_is_sent_where_it_is_wanted(note: Operation, notes: Notes) -> None:
    mcp_tool(
        name="fenced",
        server=OVER_HTTP,
        tool="add_note",
        effect_type=WRITE,
        arguments=Note,
        fence_meta="fencingToken",
    )
    Operation("fenced", {"text": "hello"}).send()
    assert "fencingToken" in notes.effects[0]["meta"]


# -- What is lost on the way --------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        LoseAnswer(),
        LoseAnswer(reset=True),
        HalfBody(),
        AnswerInstead(status=500),
        AnswerInstead(status=202),
        AnswerInstead(status=404),
        AnswerInstead(status=200, body=b"not json"),
        AnswerInstead(status=200, body=b'{"jsonrpc": "2.0", "id": 3, "result": {"x": 1}}'),
    ],
    ids=lambda fault: f"{type(fault).__name__}-{getattr(fault, 'status', '')}",
)
def test_an_answer_lost_after_the_commit_is_unknown_sent_once_and_found(
    note: Operation, notes: Notes, notes_proxy: FaultProxy, fault: Fault
) -> None:
    spoil_the_call(notes_proxy, fault)
    outcome = note.send()
    assert isinstance(outcome, Unknown), outcome
    assert calls(notes_proxy) == 1
    assert len(notes.effects) == 1
    assert note.look_up().verdict == "committed"


def test_a_call_that_lands_after_the_look_up_is_found_later(
    note: Operation, notes: Notes, notes_proxy: FaultProxy
) -> None:
    spoil_the_call(notes_proxy, LandLate())
    assert isinstance(note.send(), Unknown)
    assert note.look_up().verdict == "not_found"
    notes_proxy.release()
    wait_until(lambda: bool(notes.effects), what="the call lands")
    assert note.look_up().verdict == "committed"


def test_an_answer_after_the_deadline_is_unknown(
    note: Operation, notes: Notes, notes_proxy: FaultProxy
) -> None:
    spoil_the_call(notes_proxy, HoldAnswer())
    outcome = note.send(seconds=2.0)
    assert isinstance(outcome, Unknown)
    assert len(notes.effects) == 1
    notes_proxy.release()


def test_a_reset_before_the_call_was_read_is_unknown(
    note: Operation, notes: Notes, notes_proxy: FaultProxy
) -> None:
    spoil_the_call(notes_proxy, ResetBefore())
    assert isinstance(note.send(), Unknown)
    assert notes.effects == []


def test_a_server_that_honours_the_key_makes_one_effect_of_two_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mcp_tool(name="note", server=OVER_HTTP, tool="add_note", effect_type=WRITE, arguments=Note)
    with (
        Notes(folder=tmp_path, honour=True) as honouring,
        FaultProxy(honouring.url) as proxy,
    ):
        monkeypatch.setenv("NOTES_URL", f"{proxy.url}/mcp")
        operation = Operation("note", {"text": "hello"})
        spoil_the_call(proxy, LoseAnswer())
        assert isinstance(operation.send(), Unknown)
        assert isinstance(operation.send(), Committed)
        assert calls(proxy) == 2
        assert len(honouring.effects) == 1


@pytest.mark.parametrize(("fault", "effects"), [("lose", 1), ("garble", 1), ("drop", 0)])
def test_streams_that_end_at_the_call_leave_it_unknown(
    tmp_path: Path, fault: StdioFault, effects: int
) -> None:
    notes = Notes(folder=tmp_path)
    assert isinstance(over_stdio(notes.command(fault=fault)).send(), Unknown)
    assert len(notes.effects) == effects


def test_a_program_that_does_not_answer_is_ended_after_the_deadline(tmp_path: Path) -> None:
    notes = Notes(folder=tmp_path)
    operation = over_stdio(notes.command(fault="hang"))
    assert isinstance(operation.send(seconds=8.0), Unknown)
    wait_until(lambda: bool(operation.late), what="the function comes back")
    # A busy machine may not even have come to the call.
    assert isinstance(operation.late[0], Unknown if notes.effects else Unknown | Unsent)


# -- What never left ----------------------------------------------------------------------------


def test_a_refused_connection_is_not_sent(note: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES_URL", f"http://127.0.0.1:{free_port()}/mcp")
    assert isinstance(note.send(), Unsent)
    assert note.look_up().failed


@pytest.mark.parametrize("request_number", range(BEFORE_THE_CALL))
@pytest.mark.parametrize("fault", [ResetBefore(), LoseAnswer()], ids=["reset", "lost"])
def test_a_session_that_breaks_before_the_call_is_not_sent(
    note: Operation, notes: Notes, notes_proxy: FaultProxy, fault: Fault, request_number: int
) -> None:
    if request_number:
        notes_proxy.next(HoldAnswer(seconds=0), method="POST", times=request_number)
    notes_proxy.next(fault, method="POST")
    assert isinstance(note.send(), Unsent)
    assert notes.effects == []


def test_a_session_that_is_not_ready_by_the_deadline_was_not_sent(
    note: Operation, notes: Notes, notes_proxy: FaultProxy
) -> None:
    notes_proxy.next(HoldAnswer(), method="POST")
    said = [note.send(seconds=1.0)]
    if isinstance(said[0], Unknown):
        # The deadline and the function's own end come at the same moment.
        wait_until(lambda: bool(note.late), what="the function comes back")
        said = note.late
    assert isinstance(said[0], Unsent)
    notes_proxy.release()
    assert calls(notes_proxy) == 0
    assert notes.effects == []


@pytest.mark.parametrize("command", [("/no/such/program",), ("/bin/false",)])
def test_a_program_that_cannot_be_started_is_not_sent(command: tuple[str, ...]) -> None:
    assert isinstance(over_stdio(command).send(), Unsent)


def test_a_tool_that_the_server_does_not_have_is_not_sent(notes_proxy: FaultProxy) -> None:
    mcp_tool(name="note", server=OVER_HTTP, tool="no_such", effect_type=WRITE, arguments=Note)
    outcome = Operation("note", {"text": "hello"}).send()
    assert isinstance(outcome, Unsent)
    assert "no_such" in outcome.reason
    assert calls(notes_proxy) == 0


def test_a_redirect_is_not_followed_and_names_the_address(
    note: Operation, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Redirecting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(307)
            # The same place, which the client library alone would follow.
            self.send_header("Location", "/mcp/")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """What it was asked is the log."""

    with HTTPServer(("127.0.0.1", 0), Redirecting) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.setenv("NOTES_URL", f"http://127.0.0.1:{elsewhere.server_port}/mcp")
        outcome = note.send()
        elsewhere.shutdown()
    assert isinstance(outcome, Unsent)
    assert "/mcp/ not followed" in outcome.reason
    assert set(asked) == {"/mcp"}


def test_a_missing_variable_is_named_and_nothing_is_sent(
    note: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTES_URL")
    outcome = note.send()
    assert isinstance(outcome, Unsent)
    assert "NOTES_URL" in outcome.reason


def test_the_token_is_sent_and_shown_nowhere(
    notes_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES_TOKEN", "secret-token")
    server = HttpServer(url_env="NOTES_URL", token_env="NOTES_TOKEN")
    mcp_tool(name="note", server=server, tool="add_note", effect_type=WRITE, arguments=Note)
    outcome = Operation("note", {"text": "hello"}).send()
    sent = {one.headers.get("Authorization") for one in notes_proxy.seen(method="POST")}
    assert sent == {"Bearer secret-token"}
    assert "secret-token" not in repr((server, outcome))


def test_the_moments_of_the_send_are_noted(note: Operation) -> None:
    call = note.call(seconds=10)
    asyncio.run(get_tool("note").function(call, **get_tool("note").bind(note.arguments)))
    assert set(call.window.marks) == {"first_byte", "last_byte", "closed"}

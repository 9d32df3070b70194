"""Tools that a file declares, of real MCP servers: called once, by the schema that was pinned."""

import json
import re
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.conf import LazySettings
from django.core.management import call_command
from django.core.management.base import CommandError

from agentops.management.commands.doctor import examine_mcp_servers
from runs import ToolCall
from runs.access import operator
from runs.commands import start_run
from runs.models import AgentRun
from tests.conformance.calls import Operation
from tests.conformance.targets.fault_proxy import FaultProxy, HoldAnswer, LoseAnswer
from tests.conformance.targets.mcp_servers import FOLDER, Notes
from tests.database.kit import ON_DATABASE, call_once, drive, drive_when_due, operation_of
from tools.checks import check_tools
from tools.management.commands.describe_mcp import Command
from tools.mcp_servers.declaring import declare_servers
from tools.outcome import Committed, Unknown, Unsent
from tools.registry import get_tool, isolated_registry

TEXT = '{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}'
BOTH = json.dumps(
    {
        "type": "object",
        "properties": {"text": {"type": "string"}, "idempotency_key": {"type": "string"}},
        "required": ["text", "idempotency_key"],
    }
)
LOOK_UP = """
        look_up:
          tool: find_note
          arguments: {key: "{idempotency_key}"}
          found: found
          external_ref: id
"""
# A session with a server of the SDK begins with two requests, and the third is the call.
BEFORE_THE_CALL = 2


@pytest.fixture
def path(tmp_path: Path, settings: LazySettings) -> Iterator[Path]:
    settings.AGENTOPS_MCP_SERVERS = tmp_path / "servers.yaml"
    yield tmp_path / "servers.yaml"
    declare_servers(None)


def declare(path: Path, tools: str, *, place: str = "url_env: NOTES_URL") -> None:
    path.write_text(f"servers:\n  notes:\n    {place}\n    tools:\n{tools}")
    assert declare_servers(path).problems == ()


def add_note(schema: str = TEXT, more: str = "") -> str:
    return (
        "      add_note:\n        effect_type: NON_IDEMPOTENT_WRITE\n"
        f"        external_ref: id\n        input_schema: {schema}{more}\n"
    )


def calls(proxy: FaultProxy) -> int:
    return sum(b'"tools/call"' in one.body for one in proxy.seen(method="POST"))


def describe(*arguments: str) -> tuple[int, str]:
    said = StringIO()
    try:
        call_command(Command(), "notes", *arguments, stdout=said)
    except SystemExit as end:
        return int(str(end.code)), said.getvalue()
    except CommandError as error:
        return error.returncode, f"{said.getvalue()}{error}"
    return 0, said.getvalue()


# -- Calls --------------------------------------------------------------------------------------


def test_a_declared_tool_is_one_effect_over_http(
    path: Path, notes: Notes, notes_proxy: FaultProxy
) -> None:
    declare(path, add_note())
    note = Operation("notes_add_note", {"text": "hello"})
    outcome = note.send()
    assert isinstance(outcome, Committed)
    assert outcome.external_ref == "note-1"
    assert [one["key"] for one in notes.effects] == [note.id]


def test_a_declared_tool_is_one_effect_over_standard_streams(path: Path, tmp_path: Path) -> None:
    notes = Notes(folder=tmp_path)
    place = f"command: {json.dumps(notes.command())}\n    folder: {json.dumps(FOLDER)}"
    declare(path, add_note(), place=place)
    assert isinstance(Operation("notes_add_note", {"text": "hello"}).send(), Committed)
    assert [one["text"] for one in notes.effects] == ["hello"]


def test_headers_come_from_the_environment_and_a_missing_one_sends_nothing(
    path: Path, notes_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "url_env: NOTES_URL\n    headers_env: {X-Tenant: NOTES_TENANT}"
    declare(path, add_note(), place=place)
    note = Operation("notes_add_note", {"text": "hello"})
    outcome = note.send()
    assert isinstance(outcome, Unsent)
    assert "NOTES_TENANT is not set" in outcome.reason
    monkeypatch.setenv("NOTES_TENANT", "acme corp")
    assert isinstance(note.send(), Committed)
    sent = [one for one in notes_proxy.seen(method="POST") if b'"tools/call"' in one.body]
    given = [{name.lower(): value for name, value in one.headers.items()} for one in sent]
    assert [headers["x-tenant"] for headers in given] == ["acme corp"]


def test_the_key_is_filled_in_where_the_server_takes_it_as_an_argument(
    path: Path, notes: Notes, notes_proxy: FaultProxy
) -> None:
    tool = f"""\
      add_keyed_note:
        effect_type: NON_IDEMPOTENT_WRITE
        key_argument: idempotency_key
        input_schema: {BOTH}
"""
    declare(path, tool)
    assert get_tool("notes_add_keyed_note").argument_names == ("text",)
    keyed = Operation("notes_add_keyed_note", {"text": "hello"})
    assert isinstance(keyed.send(), Committed)
    assert [one["key"] for one in notes.effects] == [keyed.id]


def test_an_argument_that_was_left_out_does_not_leave_as_null(
    path: Path, notes: Notes, notes_proxy: FaultProxy
) -> None:
    path.write_text("servers:\n  notes:\n    url_env: NOTES_URL\n")
    assert describe("--write")[0] == 0
    assert declare_servers(path).problems == ()
    note = Operation("notes_add_titled_note", {"text": "hello"})
    assert note.arguments == {"text": "hello", "title": None, "weight": 1}
    assert isinstance(note.send(), Committed)
    [sent] = [one for one in notes_proxy.seen(method="POST") if b'"tools/call"' in one.body]
    assert json.loads(sent.body)["params"]["arguments"] == {"text": "hello", "weight": 1}
    assert [one["text"] for one in notes.effects] == ["None: hello (1)"]


def test_nothing_is_sent_to_a_server_whose_schema_is_not_the_pinned_one(
    path: Path, notes: Notes, notes_proxy: FaultProxy
) -> None:
    pinned = TEXT.replace('"string"', '"string", "maxLength": 40')
    declare(path, add_note(pinned))
    outcome = Operation("notes_add_note", {"text": "hello"}).send()
    assert isinstance(outcome, Unsent)
    assert "now lists other arguments of add_note" in outcome.reason
    assert (calls(notes_proxy), notes.effects) == (0, [])


def test_words_for_readers_may_differ(path: Path, notes: Notes, notes_proxy: FaultProxy) -> None:
    declare(path, add_note(TEXT.replace('"string"', '"string", "description": "Ours."')))
    assert isinstance(Operation("notes_add_note", {"text": "hello"}).send(), Committed)


def test_a_lost_answer_is_looked_up_as_the_file_says(
    path: Path, notes: Notes, notes_proxy: FaultProxy
) -> None:
    declare(path, add_note(more=LOOK_UP))
    note = Operation("notes_add_note", {"text": "hello"})
    assert note.look_up().verdict == "not_found"
    notes_proxy.next(HoldAnswer(seconds=0), method="POST", times=BEFORE_THE_CALL)
    notes_proxy.next(LoseAnswer(), method="POST")
    assert isinstance(note.send(), Unknown)
    found = note.look_up()
    assert (found.verdict, found.external_ref) == ("committed", "note-1")


def test_a_look_up_by_an_argument_that_the_server_does_not_list_has_not_happened(
    path: Path, notes: Notes, notes_proxy: FaultProxy
) -> None:
    declare(path, add_note(more=LOOK_UP.replace("{key:", '{ref: "{text}", key:')))
    found = Operation("notes_add_note", {"text": "hello"}).look_up()
    assert found.failed
    assert "the server lists no argument ref of find_note" in found.why
    assert calls(notes_proxy) == 0


# -- In a run -----------------------------------------------------------------------------------


@ON_DATABASE
def test_a_run_whose_answer_was_lost_records_the_one_effect_there_is(
    path: Path, notes: Notes, notes_proxy: FaultProxy, start: Callable[..., AgentRun]
) -> None:
    declare(path, add_note(more=LOOK_UP))
    notes_proxy.next(HoldAnswer(seconds=0), method="POST", times=BEFORE_THE_CALL)
    notes_proxy.next(LoseAnswer(), method="POST")
    decider = call_once(ToolCall("notes_add_note", text="hello"))
    run = start(decider=decider, tools=("notes_add_note",))
    drive(run)
    drive_when_due(run)
    assert run.state == "COMPLETED"
    assert operation_of(run).external_ref == "note-1"
    assert len(notes.effects) == 1


@ON_DATABASE
def test_a_call_that_was_planned_under_another_schema_is_held_for_a_person(
    path: Path, notes: Notes, notes_proxy: FaultProxy, start: Callable[..., AgentRun]
) -> None:
    declare(path, add_note(TEXT.replace('"string"', '"string", "minLength": 1')))
    decider = call_once(ToolCall("notes_add_note", text="hello"))
    run = start(decider=decider, tools=("notes_add_note",))
    drive(run)
    assert operation_of(run).status == "PREPARED"
    code, said = describe("--pin", "add_note")
    assert (code, said.splitlines()[0]) == (0, "same      add_note")
    with isolated_registry():
        declare_servers(path)
        drive_when_due(run)
    assert run.state == "WAITING_FOR_APPROVAL"
    assert operation_of(run).status == "AWAITING_APPROVAL"
    assert notes.effects == []


@ON_DATABASE
def test_a_call_is_given_up_unsent_while_the_server_lists_another_schema(
    path: Path, notes: Notes, notes_proxy: FaultProxy, start: Callable[..., AgentRun]
) -> None:
    pinned = TEXT.replace('"string"', '"string", "minLength": 1')
    declare(path, add_note(pinned, "\n        retry_policy: {max_attempts: 2}"))
    decider = call_once(ToolCall("notes_add_note", text="hello"))
    run = start(decider=decider, tools=("notes_add_note",))
    drive(run)
    drive_when_due(run)
    operation = operation_of(run)
    assert (operation.status, operation.attempts) == ("CANCELLED", 2)
    assert "never sent in 2 tries" in operation.error
    assert "now lists other arguments" in operation.error
    assert notes.effects == []


@ON_DATABASE
def test_the_how_to_page_works_as_it_stands_there(
    path: Path, notes: Notes, notes_proxy: FaultProxy
) -> None:
    text = (Path(FOLDER) / "docs" / "how-to" / "call-mcp-servers.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)
    path.write_text(blocks[0])
    assert describe("--write")[0] == 0
    path.write_text(blocks[1])
    assert declare_servers(path).problems == ()
    assert check_tools() == []
    # Its schemas are the server's, or the call would not leave.
    assert "changed" not in describe()[1]
    [agents] = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    exec(compile(agents, "agents.py", "exec"), {"__name__": "agents"})
    notes_proxy.next(HoldAnswer(seconds=0), method="POST", times=BEFORE_THE_CALL)
    notes_proxy.next(LoseAnswer(), method="POST")
    run = start_run(actor=operator(), agent="scribe", input={"text": "hello"}).run
    drive(run)
    drive_when_due(run)
    assert (run.state, operation_of(run).external_ref) == ("COMPLETED", "note-1")
    assert [one["text"] for one in notes.effects] == ["hello"]


# -- Looking at a server ------------------------------------------------------------------------


def test_describe_mcp_shows_writes_and_pins(
    path: Path, notes_proxy: FaultProxy, settings: LazySettings
) -> None:
    path.write_text("servers:\n  notes:\n    url_env: NOTES_URL # where it is\n")
    code, said = describe()
    assert code == 0
    assert "new       add_note" in said
    assert "readOnlyHint: false, idempotentHint: false" in said
    assert path.read_text().endswith("# where it is\n")

    assert describe("--write")[0] == 0
    assert path.read_text().startswith("servers:\n  notes:\n    url_env: NOTES_URL # where it is\n")
    assert declare_servers(path).problems == ()
    assert get_tool("notes_add_note").effect_type == "IRREVERSIBLE"

    pinned = path.read_text()
    path.write_text(pinned.replace('["long", "deep"', '["deep"').replace("find_note:", "lost:"))
    path.write_text(path.read_text().replace('"find_note":', '"lost":'))
    code, said = describe("--json")
    found = json.loads(said)
    assert code == 1
    assert (found["changed"], found["gone"], found["new"]) == (["show"], ["lost"], ["find_note"])
    code, said = describe("--pin", "show")
    assert code == 1
    assert path.read_text() == pinned.replace('"find_note":', '"lost":')
    assert calls(notes_proxy) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--pin", "nothing"), "--pin 'nothing': not a tool of the file that the server lists"),
        (("--seconds", "0"), ""),
    ],
)
def test_describe_mcp_says_what_it_could_not_do(
    path: Path, notes_proxy: FaultProxy, arguments: tuple[str, ...], says: str
) -> None:
    declare(path, add_note())
    code, said = describe(*arguments)
    assert code == 2
    assert says in said


def test_describe_mcp_says_that_a_server_is_away_or_not_known(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(path, add_note())
    assert describe() == (2, "the environment variable NOTES_URL is not set")
    monkeypatch.setenv("NOTES_URL", "http://127.0.0.1:1/mcp")
    assert "ConnectError" in describe()[1]
    path.write_text("servers: {}")
    assert "it has no server 'notes'; there are: none" in describe()[1]


@pytest.mark.parametrize(
    ("schema", "level", "says"),
    [
        (TEXT, "ok", "as pinned: notes"),
        (TEXT.replace('"string"', '"integer"'), "error", "now lists other arguments of add_note"),
    ],
)
def test_the_doctor_says_whether_servers_are_as_pinned(
    path: Path, notes_proxy: FaultProxy, schema: str, level: str, says: str
) -> None:
    declare(path, add_note(schema))
    found = examine_mcp_servers()
    assert found is not None
    assert (found.name, found.level) == ("mcp servers", level)
    assert says in found.detail


def test_the_doctor_says_nothing_of_servers_where_none_are_named() -> None:
    assert examine_mcp_servers() is None

"""The file of MCP servers: every fault of it is said, and nothing that people wrote is lost."""

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tools.checks import check_tools
from tools.management.commands.describe_mcp import Command
from tools.mcp_servers.checks import check_mcp_servers
from tools.mcp_servers.declaring import declare_servers, our_name
from tools.mcp_servers.live import Listed, compare
from tools.mcp_servers.reading import UnreadableFile, parse, read_file
from tools.mcp_servers.writing import CannotWrite, add_tools, pin_schemas
from tools.registry import all_tools, get_tool

FILE = """\
# Whom our agents may call.
servers:
  tracker:  # theirs
    url_env: TRACKER_URL
    headers_env: {X-Key: TRACKER_KEY}
    provider:
      account: acme
      # their manual, page 4
      idempotency_support: key
      idempotency_scope: account
      idempotency_retention: P1D
    tools:
      open:
        effect_type: IDEMPOTENT_WRITE
        description: Open a ticket.
        intent_key: [title]
        retry_policy: {max_attempts: 2}
        approval_policy: {when: "size(title) > 9", groups: [desk]}
        input_schema: {"type": "object", "properties": {"title": {"type": "string"}}}
  files:
    command: [files-server, /srv]
"""
URL = "servers: {s: {url: 'http://127.0.0.1:1/mcp', %s}}"
TOOL = URL % "tools: {t: {effect_type: READ, input_schema: {}, %s}}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "servers.yaml"


@pytest.fixture(autouse=True)
def _forget() -> Any:
    yield
    declare_servers(None)


def problems(path: Path, text: str) -> str:
    path.write_text(text)
    return "\n".join(declare_servers(path).problems)


def listed(name: str, **schema: Any) -> Listed:
    return Listed(name=name, description=f"What {name}\ndoes: 'this'.", input_schema=schema)


# -- Reading ------------------------------------------------------------------------------------


def test_each_tool_is_registered_with_what_was_declared(path: Path) -> None:
    assert problems(path, FILE) == ""
    spec = get_tool("tracker_open")
    assert spec.provider is not None
    assert (spec.provider.name, spec.provider.account) == ("mcp:tracker", "acme")
    assert spec.idempotency_retention is not None
    assert spec.idempotency_retention.days == 1
    assert (spec.intent_key, spec.retry_policy.max_attempts) == (("title",), 2)
    assert spec.approval_policy is not None
    assert spec.approval_policy.groups == ("desk",)
    assert check_tools() == []
    assert check_mcp_servers() == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (URL % "tols: {}", "servers.s.tols: there is no such word here"),
        (URL % "command: [x]", "give one of url, url_env and command"),
        ("servers: {s: {}}", "give one of url, url_env and command"),
        ("servers: {s: {url: ftp://x}}", "servers.s"),
        ("servers: {s: {url_env: 'http://me:hunter2@x'}}", "servers.s.url_env (given: [redacted])"),
        ("servers: {s: {url: 'http://me:hunter2@x'}}", "without user or password"),
        (URL % "headers_env: {Authorization: 'Bearer hunter2'}", "given: [redacted]"),
        (
            URL % "tools: {t: {effect_type: WRITE, input_schema: {}}}",
            "effect_type (given: 'WRITE')",
        ),
        (TOOL % "retry_policy: {attempts: 3}", "it knows no 'attempts'; there are: max_attempts"),
        (TOOL % "approval_policy: {groups: finance}", "approval_policy.groups"),
        (TOOL % "resource_version: no_path", "resource_version (given: 'no_path')"),
        (TOOL % "resource_version: 'nowhere:f'", "tools.t: nowhere:f cannot be used"),
        (TOOL % "key_argument: key", "the server knows no argument key"),
        (TOOL % "name: 'a b'", "name (given: 'a b')"),
        ("servers: {s: {url: 'http://h', url: 'http://i'}}", "'url' stands here twice"),
        ("servers: {yes: {url: 'http://h'}}", 'write it in quotes: "True"'),
        ("servers: [", "it is no YAML"),
        ("[]", "the file"),
        ("\t", "it is no YAML"),
    ],
)
def test_a_fault_is_said_with_its_place_and_the_fix(path: Path, text: str, says: str) -> None:
    said = problems(path, text)
    assert says in said
    assert "hunter2" not in said
    assert [message.id for message in check_mcp_servers()] == ["tools.E025"] * len(said.split("\n"))


def test_a_file_that_is_not_there_is_a_fault_and_not_a_crash(path: Path) -> None:
    assert "No such file" in "".join(declare_servers(path).problems)
    path.write_bytes(b"\xff\xfe")
    assert "no UTF-8" in "".join(declare_servers(path).problems)


def test_a_faulty_tool_does_not_take_the_others_with_it(path: Path) -> None:
    schema = '"properties": {"a": {"$ref": "https://example.com/"}}'
    text = FILE.replace(
        "    tools:\n",
        f"    tools:\n      far: {{effect_type: READ, input_schema: {{{schema}}}}}\n",
    )
    assert "servers.tracker.tools.far" in problems(path, text)
    assert [spec.name for spec in all_tools() if spec.name.startswith("tracker")] == [
        "tracker_open"
    ]


def test_a_name_that_an_app_has_taken_is_a_fault_of_the_file(path: Path) -> None:
    path.write_text(FILE)
    assert declare_servers(path).problems == ()
    assert "both a tool named 'tracker_open'" in "".join(declare_servers(path).problems)


def test_json_is_read_too_and_yaml_reads_numbers_as_json_does(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text('{"servers": {\t"s": {"url": "http://h"}}}')
    assert read_file(file).servers["s"].url == "http://h"
    file.write_text('{"servers": {"s": {"url": "http://h"}, "s": {}}}')
    with pytest.raises(UnreadableFile, match="'s' stands twice"):
        read_file(file)
    assert parse("[1e5, 2E-3, 2020-01-01, -1.5e+16]", Path("a.yaml")) == [
        1e5,
        2e-3,
        "2020-01-01",
        -1.5e16,
    ]


def test_our_names_are_names_that_llms_can_say() -> None:
    assert our_name("s", "repo/create.issue") == "s_repo_create_issue"
    assert len(our_name("s", "x" * 128)) == 64


def test_what_a_server_says_commands_no_terminal(path: Path) -> None:
    path.write_text(FILE)
    sly = "\x1b]0;evil\x07\u202e\nsame"
    entry = read_file(path).servers["files"]
    found = compare(entry, [replace(listed(sly), problem=f"no {sly}")])
    said = StringIO()
    Command(stdout=said)._print("files", found, as_json=False)
    [line] = said.getvalue().splitlines()
    assert "".join(one for one in line if one.isprintable()) == line
    assert "evil" in line


# -- Writing ------------------------------------------------------------------------------------


def test_new_tools_are_the_worst_case_and_every_other_line_stays(path: Path) -> None:
    path.write_text(FILE)
    hard = {"pattern": "a\x7fb\u2028c\ud7ff\U0001f600", "maximum": 1e16, "default": "no"}
    add_tools(path, "tracker", [listed("on", type="object", properties={"yes": hard})])
    add_tools(path, "files", [listed("read", type="object"), listed("write", type="object")])
    lines = path.read_text().splitlines()
    assert [line for line in FILE.splitlines() if line not in lines] == []
    servers = read_file(path).servers
    assert list(servers["tracker"].tools) == ["on", "open"]
    assert servers["tracker"].tools["on"].input_schema["properties"] == {"yes": hard}
    assert servers["tracker"].tools["on"].description == "What on\ndoes: 'this'."
    assert list(servers["files"].tools) == ["read", "write"]
    assert {one.effect_type.value for one in servers["files"].tools.values()} == {"IRREVERSIBLE"}


def test_a_hostile_description_stays_a_description(path: Path) -> None:
    path.write_text(FILE)
    sly = '"\n        effect_type: READ\n# \x85 *a &b !!python/object:os.system {x'
    add_tools(path, "files", [Listed(name="a: b", description=sly, input_schema={})])
    entry = read_file(path).servers["files"].tools["a: b"]
    assert (entry.description, entry.effect_type.value) == (sly, "IRREVERSIBLE")


def test_a_schema_is_pinned_anew_in_its_place(path: Path) -> None:
    path.write_text(FILE)
    new = {"type": "object", "properties": {"title": {"type": "integer"}}}
    pin_schemas(path, "tracker", [listed("open", **new)])
    assert read_file(path).servers["tracker"].tools["open"].input_schema == new
    changed = [
        line
        for line, old in zip(path.read_text().splitlines(), FILE.splitlines(), strict=True)
        if line != old
    ]
    assert len(changed) == 1
    assert "Open a ticket." in path.read_text()


def test_ends_of_lines_stay_and_so_does_a_link(path: Path) -> None:
    before = FILE.replace("\n", "\r\n").encode()
    path.write_bytes(before)
    link = path.with_name("linked.yaml")
    link.symlink_to(path.name)
    add_tools(link, "files", [listed("read", type="object")])
    pin_schemas(link, "tracker", [listed("open", type="object")])
    assert link.is_symlink()
    after = path.read_bytes()
    assert after.count(b"\r\n") == after.count(b"\n") > before.count(b"\n")
    assert list(read_file(path).servers["files"].tools) == ["read"]


@pytest.mark.parametrize(
    "text",
    [
        "servers: {tracker: {url: 'http://h'}}",
        "servers:\n  tracker:\n    url: http://h\n    tools: {}\n",
        re.sub(r"input_schema: .*", "input_schema:\n          type: object", FILE),
    ],
)
def test_a_file_that_cannot_be_written_into_stays_as_it_is(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(CannotWrite):
        pin_schemas(path, "tracker", [listed("open", type="object")])
    if "open:" not in text:
        with pytest.raises(CannotWrite):
            add_tools(path, "tracker", [listed("new", type="object")])
    assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]


def test_what_another_server_shares_is_not_changed_with_it(path: Path) -> None:
    text = "servers:\n  tracker: &one\n    url: http://h\n  other: *one\n"
    path.write_text(text)
    with pytest.raises(CannotWrite, match="would not say the same"):
        add_tools(path, "tracker", [listed("new", type="object")])
    assert path.read_text() == text

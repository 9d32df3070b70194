"""What an MCP server answers: errors, hints, and results of any size."""

import logging
from typing import Any

import pytest
from pydantic import BaseModel

from tests.conformance.calls import Operation
from tests.conformance.targets.fault_proxy import FaultProxy
from tests.conformance.targets.mcp_servers import Notes
from tools import EffectType
from tools.catalog.mcp_call import HttpServer, mcp_tool
from tools.outcome import Committed, Refused, Unknown

WRITE = EffectType.NON_IDEMPOTENT_WRITE
OVER_HTTP = HttpServer(url_env="NOTES_URL")


class Note(BaseModel):
    """Write a note down."""

    text: str


class Show(BaseModel):
    """An answer that is hard to keep."""

    what: str


def failing(**options: Any) -> Operation:
    options = {"effect_type": WRITE} | options
    mcp_tool(name="failing", server=OVER_HTTP, tool="add_and_fail", arguments=Note, **options)
    return Operation("failing", {"text": "hello"})


def test_an_error_result_of_a_write_is_unknown(notes_proxy: FaultProxy, notes: Notes) -> None:
    outcome = failing().send()
    assert isinstance(outcome, Unknown)
    assert "the tool reported an error" in outcome.reason
    assert len(notes.effects) == 1


def test_an_error_result_is_a_refusal_where_it_was_declared_final(notes_proxy: FaultProxy) -> None:
    assert isinstance(failing(errors_are_final=True).send(), Refused)


def test_an_error_result_of_a_read_is_a_refusal(notes_proxy: FaultProxy) -> None:
    assert isinstance(failing(effect_type=EffectType.READ).send(), Refused)


def showing(what: str) -> Operation:
    mcp_tool(
        name="show", server=OVER_HTTP, tool="show", effect_type=EffectType.READ, arguments=Show
    )
    return Operation("show", {"what": what})


def test_arguments_that_the_server_refuses_are_a_refusal_of_a_read(notes_proxy: FaultProxy) -> None:
    assert isinstance(showing("something else").send(), Refused)


@pytest.mark.parametrize("what", ["long", "deep", "odd", "plain"])
def test_an_answer_that_cannot_be_kept_is_cut_and_still_an_answer(
    notes_proxy: FaultProxy, what: str
) -> None:
    outcome = showing(what).send()
    assert isinstance(outcome, Committed)
    result: Any = outcome.result
    assert len(result["text"]) <= 20_000
    assert bool(result["left_out"]) == (what in ("long", "deep", "odd"))


def test_a_read_carries_no_key(notes_proxy: FaultProxy) -> None:
    showing("plain").send()
    assert not any(b"idempotencyKey" in one.body for one in notes_proxy.seen(method="POST"))


@pytest.mark.parametrize(
    ("tool", "declared", "told"),
    [
        ("add_note", {"effect_type": EffectType.READ}, 1),
        (
            "add_note",
            {"effect_type": EffectType.IDEMPOTENT_WRITE, "idempotency_support": "natural_id"},
            1,
        ),
        ("add_note", {"effect_type": WRITE}, 0),
        ("show", {"effect_type": EffectType.READ}, 0),
    ],
)
def test_a_hint_of_more_danger_than_was_declared_is_logged_once(
    notes_proxy: FaultProxy,
    caplog: pytest.LogCaptureFixture,
    tool: str,
    declared: dict[str, Any],
    told: int,
) -> None:
    name = f"hinted_{tool}_{declared['effect_type'].lower()}"
    arguments: Any = Note if tool == "add_note" else Show
    mcp_tool(name=name, server=OVER_HTTP, tool=tool, arguments=arguments, **declared)
    given = {"text": "hello"} if tool == "add_note" else {"what": "plain"}
    with caplog.at_level(logging.WARNING, logger="tools.catalog.mcp_call.hints"):
        for _ in range(2):
            assert isinstance(Operation(name, given).send(), Committed)
    assert len([one for one in caplog.records if "is declared" in one.message]) == told

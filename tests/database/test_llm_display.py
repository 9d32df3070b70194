"""What the timeline, the commands and the API say of llms: requests, handoffs and versions."""

import json
from decimal import Decimal
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pydantic import BaseModel

from runs import Agent, Llm
from runs.models import (
    AgentRun,
    Handoff,
    LlmRequest,
    ModelDecision,
    ToolOperation,
)
from runs.presenting_llm import say_cost, say_tokens
from runs.shapes import TimelineEntry
from runs.timeline import read_newest, read_timeline
from tests.database.admin_pages import (
    CARD,
    define_tools,
    finished_run,
)
from tests.database.callers import caller
from tests.database.gating import Start
from tests.database.kit import drive, scripted_tool
from tests.database.llm_rows import BAD, DOWN, USED, alter, asking_run, handed_off
from tests.llms.scripted import ScriptedLlm, calls, say

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)


def whole(run: AgentRun) -> list[TimelineEntry]:
    return list(read_timeline(run_id=run.id).items)


def the(run: AgentRun, kind: str) -> TimelineEntry:
    (found,) = [entry for entry in whole(run) if entry.kind == kind]
    return found


def told(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def test_every_request_stands_in_the_order_it_was_made_before_what_it_led_to(
    start: Start,
) -> None:
    # More than nine, so that an order of texts would not do.
    run = asking_run(start, *[DOWN, BAD] * 6, USED, steps=0)
    kinds = [entry.kind for entry in whole(run)]
    asked = [kind for kind in kinds if kind.startswith("llm.")]
    assert asked == [*["llm.failed", "llm.unusable"] * 6, "llm.used"]
    assert kinds[kinds.index("llm.used") + 1] == "run.record_decision"


def test_a_request_says_what_it_took_and_what_came_of_it(start: Start) -> None:
    run = asking_run(start, DOWN, BAD, USED, steps=0)
    failed, bad, used = (the(run, f"llm.{what}") for what in ("failed", "unusable", "used"))
    assert used.reason == (
        "The next decision, from openai:gpt-5-mini. Its answer was used; "
        "1,200 tokens in (800 cached), 80 out (64 reasoning), 0.0012 USD, 830 ms"
    )
    assert "Two calls under one id; 1,200 tokens" in bad.reason
    assert "no price known" in bad.reason
    assert bad.reason.endswith("830 ms: call_1 twice")
    assert "tokens not known, no price known, 12 ms: 503" in failed.reason
    assert (used.step_number, used.attempt, used.fence_token) == (1, 1, 1)
    assert (used.prompt_version, used.llm_version) == ("p1", "gpt-5-mini-2026-08-07")
    assert failed.llm_version is None
    assert used.evidence is not None
    assert bad.evidence is not None
    assert (used.evidence["cost_usd"], bad.evidence["cost_usd"]) == ("0.0012", None)
    assert used.evidence["finish_reason"] == "tool_call"


def test_a_decision_carries_the_versions_that_it_was_made_with(start: Start) -> None:
    run = asking_run(start, USED, steps=0)
    decision = ModelDecision.objects.get(run=run)
    version = {"prompt_version": "p1", "llm_version": "gpt-5", "policy_version": "7"}
    alter(decision, **version)
    entry = the(run, "run.record_decision")
    assert {name: getattr(entry, name) for name in version} == version


def test_a_handoff_says_who_wrote_it_and_why(start: Start) -> None:
    run = asking_run(start)
    handed_off(run)
    handed_off(run, number=2, written_by="rows", repairs=0)
    first, second = [entry for entry in whole(run) if entry.kind == "handoff.written"]
    assert first.reason == (
        "Handoff 1 through step 1: The window of recent events was full; written by "
        "openai:gpt-5-mini, sent back 1 time, and checked against the database"
    )
    assert (first.actor, second.actor) == ("openai:gpt-5-mini", "kernel")
    assert "without an llm" in second.reason
    assert first.evidence is not None
    assert first.evidence["artifact"] == {"schema_version": 1, "done": ["paid"]}


@pytest.mark.parametrize("size", [2, 1000])
def test_pages_lead_through_requests_and_handoffs_both_ways(start: Start, size: int) -> None:
    run = asking_run(start, DOWN, BAD, USED, steps=2)
    for number in (1, 2, 3):
        handed_off(run, number=number)
    entries = whole(run)
    assert sum(entry.kind.startswith("llm.") for entry in entries) == 9
    page = read_timeline(run_id=run.id, size=size)
    forwards = list(page.items)
    while page.next is not None and len(forwards) < len(entries):
        page = read_timeline(run_id=run.id, cursor=page.next, size=size)
        forwards += page.items
    assert forwards == entries
    page = read_newest(run_id=run.id, size=size)
    backwards = list(page.items)
    while page.previous is not None and len(backwards) < len(entries):
        page = read_timeline(run_id=run.id, cursor=page.previous, size=size)
        backwards = [*page.items, *backwards]
    assert backwards == entries


def test_it_costs_the_same_however_much_was_asked(start: Start) -> None:
    def queries(run: AgentRun) -> int:
        with CaptureQueriesContext(connection) as captured:
            read_timeline(run_id=run.id)
        return len(captured)

    one, many = asking_run(start, USED), asking_run(start, DOWN, BAD, USED, steps=6)
    for run in (one, many):
        handed_off(run)
    assert queries(one) == queries(many)


def test_a_secret_that_an_llm_repeats_is_in_no_timeline(start: Start) -> None:
    define_tools()
    run = finished_run(start)
    assert any(CARD in asked.said for asked in LlmRequest.objects.all())
    assert CARD in str(Handoff.objects.get().body)
    assert CARD not in str(whole(run))
    assert CARD not in str(caller().get(f"runs/{run.id}/timeline/").json())


def test_a_secret_that_only_its_own_call_holds_is_hidden_in_what_it_said(start: Start) -> None:
    run = asking_run(start, {**USED, "said": "with 5555-4444, as asked"})
    operation = ToolOperation.objects.get(run=run)
    assert "5555-4444" in str(whole(run))
    alter(operation, arguments='{"amount": 1, "card": "5555-4444"}')
    assert "with [redacted], as asked" in str(whole(run))


def test_a_secret_of_an_earlier_call_is_hidden_in_what_is_said_later(start: Start) -> None:
    scripted_tool(1, sensitive=("amount",), name="charge")
    first = calls(("charge", {"amount": 55554444}))
    scripted = ScriptedLlm(first, say("I charged 55554444."))
    run = start(decider=scripted.llm, tools=("charge",))
    drive(run)
    assert any("55554444" in asked.said for asked in LlmRequest.objects.all())
    shown = [entry.evidence["said"] for entry in whole(run) if entry.kind == "llm.used"]
    assert "I charged [redacted]." in shown


# -- Command line and API ----------------------------------------------------------


def test_inspect_run_says_what_was_asked_and_for_how_much(start: Start) -> None:
    run = asking_run(start, DOWN, BAD, USED)
    handed_off(run)
    text = " ".join(told("inspect_run", str(run.id)).split())
    assert "openai:gpt-5-mini: 4 requests, 2 unusable; 4,800 tokens in, 320 out; " in text
    assert "0.0024 USD and 2 without a known price" in text
    assert "anthropic:claude-sonnet-4-5: 2 requests, 2 failed; 0 tokens" in text
    assert "Handoff 1 through step 1" in text


def test_agents_say_whom_they_ask_what_they_yield_and_what_a_new_version_does() -> None:
    class Refund(BaseModel):
        amount: int

    Agent(
        name="shop",
        decider=Llm("openai:gpt-5-mini", fallback=("anthropic:claude-sonnet-4-5",)),
        output=Refund,
        on_version_change="rebuild_context",
    )
    (shown,) = [one for one in caller().get("agents/").json()["results"] if one["name"] == "shop"]
    assert shown["decider"] == "llm openai:gpt-5-mini"
    assert shown["fallback"] == ["anthropic:claude-sonnet-4-5"]
    assert shown["output"]["properties"].keys() == {"amount"}
    assert shown["on_version_change"] == "rebuild_context"
    assert shown in json.loads(told("list_agents", "--json"))
    text = " ".join(told("list_agents").split())
    for part in ("Refund", "rebuild context", "else"):
        assert part in text


def test_a_price_that_is_not_known_is_no_price() -> None:
    assert say_cost(None) == "no price known"
    assert say_cost(Decimal("0.000000")) == "0 USD"
    assert say_tokens(LlmRequest(input_tokens=None, output_tokens=None)) == "tokens not known"
    assert say_tokens(LlmRequest(input_tokens=7)) == "7 tokens in, ? out"

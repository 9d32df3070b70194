"""What the admin shows of llms: what they wrote is labelled, closed, escaped and bounded."""

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs import CallTools, Context, Decision, ToolCall
from runs.models import (
    AgentRun,
    Definition,
    LlmRequest,
    Release,
    ToolOperation,
    Transition,
    Worker,
)
from runs.state import RunEvent
from tests.database.admin_pages import (
    HOSTILE,
    browser_of,
    define_tools,
    finished_run,
    page_of,
    person,
)
from tests.database.gating import Start
from tests.database.kit import drive, scripted_tool
from tests.database.llm_rows import BAD, DOWN, USED, asking_run, handed_off
from tools import Approve

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)


def opened(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return answer.content.decode()


@pytest.fixture
def root() -> Client:
    return browser_of(person(superuser=True))


def test_what_an_llm_said_is_labelled_closed_and_escaped(root: Client, start: Start) -> None:
    define_tools()
    run = finished_run(start)
    step = reverse("admin:runs_step_change", args=[run.steps.get(number=1).pk])
    decision = reverse("admin:runs_modeldecision_change", args=[run.steps.get(number=1).pk])
    for address in (page_of(run), step, decision):
        page = opened(root, address)
        (said, *_) = _cells(page, "written by the llm: not checked")
        assert "<details" in said
        assert "<script>alert" not in page
        assert "I pay with [redacted]. &lt;script&gt;alert(1)&lt;/script&gt; \\u202e" in said
        assert "no JSON: [redacted] &lt;script&gt;" in _cells(page, "answer")[0]


def test_a_request_has_its_figures_on_the_pages(root: Client, start: Start) -> None:
    run = asking_run(start, BAD, {**USED, "said": "I look first."}, steps=0)
    page = opened(root, page_of(run))
    used, bad = _cells(page, "took")
    assert "1,200 tokens in (800 cached), 80 out (64 reasoning)" in used
    assert "0.0012 USD · 830 ms" in used
    assert "no price known · 830 ms" in bad
    assert "tool_call" in _cells(page, "answer")[0]
    assert _cells(page, "written by the llm: not checked") == ["I look first.", "–"]
    asked = LlmRequest.objects.get(outcome="used")
    own = opened(root, reverse("admin:runs_llmrequest_change", args=[asked.pk]))
    for shown in ("gpt-5-mini-2026-08-07", "tool_call", "830 ms", "I look first.", "p1"):
        assert shown in own


def test_a_run_without_an_llm_shows_nothing_of_llms(root: Client, start: Start) -> None:
    page = opened(root, page_of(asking_run(start)))
    assert "What llms were asked" not in page
    assert "what the next decision starts from" not in page


def test_a_run_page_costs_the_same_however_much_was_asked(root: Client, start: Start) -> None:
    def queries(run: AgentRun) -> int:
        with CaptureQueriesContext(connection) as captured:
            opened(root, page_of(run))
        return len(captured)

    one, many = asking_run(start, USED), asking_run(start, DOWN, BAD, USED, steps=8)
    for run in (one, many):
        handed_off(run)
    queries(one)
    assert queries(one) == queries(many) <= 18
    assert "The newest 20 are shown; see all" in opened(root, page_of(many))


def test_a_handoff_is_readable_and_leads_to_its_evidence(root: Client, start: Start) -> None:
    run = asking_run(start, USED)
    operation = ToolOperation.objects.get(run=run)
    seen = operation.observations.get().pk
    body = {
        "schema_version": 1,
        "facts": [{"text": f"paid {HOSTILE}", "operation": operation.pk, "observation": seen}],
        "open_items": [],
        "next_steps": [f"step {n}" for n in range(60)],
    }
    handed_off(run, body={"done": ["an older one"]})
    handoff = handed_off(run, number=2, body=body)
    own = reverse("admin:runs_handoff_change", args=[handoff.pk])
    for page in (opened(root, page_of(run)), opened(root, own)):
        assert "its words are not" in page
        assert "paid &lt;script&gt;alert(1)&lt;/script&gt; \\u202e" in page
        assert reverse("admin:runs_tooloperation_change", args=[operation.pk]) in page
        assert reverse("admin:runs_toolobservation_change", args=[seen]) in page
        assert "<li>step 49</li><li>and 10 more</li>" in page
        assert "Open items" not in page.split("As it is stored")[0]
        assert "an older one" not in page


def test_a_run_says_which_version_it_adopted_and_since_when(root: Client, start: Start) -> None:
    run = asking_run(start)
    assert "adopted" not in opened(root, page_of(run))
    for version, why in ((98, "a → b"), (99, "b → c, next_step")):
        Transition.objects.create(
            run=run,
            version=version,
            event=RunEvent.MIGRATE,
            from_state="READY",
            to_state="READY",
            reason=why,
            actor="worker 2",
            fence_token=1,
            step_number=1,
            attempt=1,
        )
    (adopted,) = re.findall(r"<small>adopted .*?: ([^<]*)</small>", opened(root, page_of(run)))
    assert adopted == "b → c, next_step"


def test_a_version_leads_to_what_it_was_and_a_worker_to_its_release(
    root: Client, start: Start
) -> None:
    run = asking_run(start)
    prompt = Definition.objects.create(
        kind=Definition.Kind.PROMPT, name="shop", version="p1", body={"text": f"Be kind {HOSTILE}"}
    )
    agent = Definition.objects.create(
        kind=Definition.Kind.AGENT, name="shop", version=run.agent_version, body={"tools": []}
    )
    (found,) = re.findall(
        r'href="([^"]*/definition/[^"]*)">' + run.agent_version, opened(root, page_of(run))
    )
    listed = opened(root, found)
    assert reverse("admin:runs_definition_change", args=[agent.pk]) in listed
    own = reverse("admin:runs_definition_change", args=[prompt.pk])
    assert own not in listed
    assert "Be kind &lt;script&gt;" in opened(root, own)
    assert own not in opened(root, f"{reverse('admin:runs_definition_changelist')}?kind=agent")
    release = Release.objects.create(id="r1", agents={"shop": {"version": "v1"}}, tools={})
    Worker.objects.create(name="worker 9", host="here", pid=1, release=release)
    page = opened(root, reverse("admin:runs_worker_change", args=["worker 9"]))
    address = reverse("admin:runs_release_change", args=["r1"])
    assert address in page
    assert "worker 9" in opened(root, address)
    assert address in opened(root, reverse("admin:runs_release_changelist"))


def test_an_approver_reads_what_was_said_of_the_call_apart_from_what_was_said_of_all(
    root: Client, start: Start
) -> None:
    scripted_tool(approval_policy=Approve(when="true"), sensitive=("amount",))

    def decide(context: Context) -> Decision:
        first = ToolCall("pay", amount=123_456)
        second = ToolCall("pay", amount=98_765).because(f"98765 is owed {HOSTILE}", confidence=0.4)
        return CallTools(first, second, rationale="123456 and 98765 are due", confidence=0.9)

    run = start(decider=decide, tools=("pay",))
    drive(run)
    asked = {one.operation.ordinal: one for one in run.approvals.select_related("operation")}
    boxes = [
        opened(root, reverse("admin:runs_approval_change", args=[asked[ordinal].pk]))
        .split('<section class="ao-words"')[1]
        .split("</section>")[0]
        for ordinal in (0, 1)
    ]
    assert "<blockquote" in boxes[0]
    assert "[redacted] and [redacted] are due" in boxes[0]
    assert "90% sure" in boxes[0]
    assert "of all the calls" not in boxes[0]
    assert "[redacted] is owed &lt;script&gt;" in boxes[1].split("of all the calls")[0]
    assert "[redacted] and [redacted] are due" in boxes[1].split("of all the calls")[1]
    assert "40% sure" in boxes[1]


def _cells(page: str, label: str) -> list[str]:
    """What stands in the cells under a heading, as HTML."""
    found = re.findall(
        rf'<td data-label="{label}"><div class="ao-cell">(.*?)</div></td>', page, re.DOTALL
    )
    return [cell.strip() for cell in found]

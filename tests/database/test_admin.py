"""The operator's pages: complete, linked, read-only, and safe to look at."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.apps import apps
from django.test import Client
from django.urls import reverse

from runs import Finish
from runs.admin.runs import MEANINGS
from runs.admin.show import OPERATION_TONES, RUN_TONES, line, relative, visible
from runs.engine import advance
from runs.models import AgentRun, ModelDecision, Step, ToolObservation, ToolOperation, Transition
from runs.state import OperationStatus, RunState
from tests.database.admin_pages import (
    CARD,
    HOSTILE,
    KINDS,
    Start,
    browser_of,
    define_tools,
    finished_run,
    fresh_run,
    links_in,
    list_of,
    page_of,
    person,
    uncertain_run,
    walk,
)
from tools import registry

pytestmark = pytest.mark.django_db


# The engine commits for real.
DRIVEN = pytest.mark.django_db(transaction=True)
RUNS = apps.get_app_config("runs")


@pytest.fixture
def root() -> Client:
    define_tools()
    return browser_of(person(superuser=True))


def change_url(kind: str, pk: object) -> str:
    return reverse(f"admin:runs_{kind}_change", args=[pk])


@DRIVEN
def test_a_run_leads_to_everything_below_it_and_all_of_it_leads_back(
    root: Client, start: Start
) -> None:
    run = finished_run(start)
    pages = walk(root, page_of(run))
    for kind in KINDS:
        assert any(address.startswith(list_of(kind)) for address in pages), kind
    below = [
        *(change_url("step", step.pk) for step in Step.objects.filter(run=run)),
        *(change_url("modeldecision", d.pk) for d in ModelDecision.objects.filter(run=run)),
        *(change_url("tooloperation", op.pk) for op in ToolOperation.objects.filter(run=run)),
        *(change_url("toolobservation", o.pk) for o in ToolObservation.objects.filter(run=run)),
        *(change_url("transition", edge.pk) for edge in Transition.objects.filter(run=run)),
    ]
    assert len(below) > 20
    for address in below:
        assert page_of(run) in links_in(pages[address]), address


@DRIVEN
def test_an_operation_is_linked_with_step_decision_observation_and_journal(
    root: Client, start: Start
) -> None:
    run = finished_run(start)
    operation = ToolOperation.objects.get(run=run, tool="pay")
    observation = operation.observations.get()
    here = change_url("tooloperation", operation.pk)
    links = links_in(root.get(here).content.decode())
    assert {
        page_of(run),
        change_url("step", operation.step_id),
        change_url("modeldecision", operation.step_id),
        change_url("toolobservation", observation.pk),
        f"{list_of('transition')}?operation={operation.pk}",
    } <= links
    for edge in operation.journal.all():
        assert change_url("transition", edge.pk) in links
        assert here in links_in(root.get(change_url("transition", edge.pk)).content.decode())
    back = root.get(change_url("toolobservation", observation.pk)).content.decode()
    assert here in links_in(back)


@DRIVEN
def test_an_uncertain_run_says_so_before_anything_else(root: Client, start: Start) -> None:
    run = uncertain_run(start)
    page = root.get(page_of(run)).content.decode()
    operation = ToolOperation.objects.get(run=run, status=OperationStatus.UNKNOWN)
    notice = page.index("may or may not have happened")
    assert "effect uncertain" in page
    assert change_url("tooloperation", operation.pk) in page[: page.index("Held by")]
    assert notice < page.index("Held by") < page.index("Journal</h3>")
    listed = root.get(list_of("agentrun")).content.decode()
    assert "effect uncertain" in listed


@DRIVEN
def test_the_sidebar_counts_uncertain_runs_while_there_are_any(root: Client, start: Start) -> None:
    address = f"{list_of('agentrun')}?effect=uncertain"
    entry = re.compile(re.escape(address) + r".*?</a>", re.DOTALL)
    calm = entry.search(root.get(list_of("step")).content.decode())
    uncertain_run(start)
    told = entry.search(root.get(list_of("step")).content.decode())
    assert calm is not None
    assert told is not None
    assert not re.search(r">\s*\d+\s*<", calm[0])
    assert re.search(r">\s*1\s*<", told[0])


def test_a_run_page_says_who_holds_it_and_until_when(root: Client, start: Start) -> None:
    run = fresh_run(start)
    assert "nobody" in root.get(page_of(run)).content.decode()
    held_until = datetime.now(UTC) + timedelta(minutes=5)
    AgentRun.objects.filter(pk=run.pk).update(
        lease_owner="worker 7", lease_expires_at=held_until, fence_token=3
    )
    page = root.get(page_of(run)).content.decode()
    assert "worker 7" in page
    assert f"{held_until:%Y-%m-%d %H:%M:%S} UTC" in page
    assert "its holder is at work" in page


@DRIVEN
def test_on_every_page_hostile_text_is_escaped_and_declared_secrets_are_hidden(
    root: Client, start: Start
) -> None:
    for run in (uncertain_run(start), finished_run(start)):
        pages = walk(root, page_of(run))
        assert any("&lt;script&gt;" in page for page in pages.values())
        assert sum("[redacted]" in page for page in pages.values()) >= 3
        for address, page in pages.items():
            assert "<script>alert" not in page, address
            assert "<b>" not in page, address
            assert not {"\u202e", "\u0007"} & set(page), address
            assert CARD not in page, address
    assert "\\u202e" in root.get(page_of(run)).content.decode()


def test_a_tool_name_made_up_by_an_llm_cannot_mislead() -> None:
    operation = ToolOperation(pk="op_1", tool="rm\u202e<b>")
    assert line(str(operation)) == "rm\\u202e<b> op_1"


@DRIVEN
def test_secrets_stay_hidden_where_the_agent_and_its_tools_are_no_longer_known(
    root: Client, start: Start
) -> None:
    run = finished_run(start)
    AgentRun.objects.filter(pk=run.pk).update(agent="gone")
    with registry.isolated_registry():
        pages = walk(root, page_of(run))
    assert sum("[redacted]" in page for page in pages.values()) >= 3
    for address, page in pages.items():
        assert CARD not in page, address


@DRIVEN
def test_an_error_that_repeats_a_secret_is_shown_without_it(root: Client, start: Start) -> None:
    operation = ToolOperation.objects.get(run=finished_run(start), tool="pay")
    ToolOperation.objects.filter(pk=operation.pk).update(error=f"no funds on {CARD}")
    page = root.get(change_url("tooloperation", operation.pk)).content.decode()
    assert "no funds on [redacted]" in page


@DRIVEN
def test_a_long_value_is_closed_and_a_very_long_one_is_cut(root: Client, start: Start) -> None:
    long = start(decider=lambda context: Finish(["x" * 5_000]))
    longer = start(decider=lambda context: Finish(["x" * 100_000]))
    for run in (long, longer):
        advance(run_id=run.pk, owner="test")
    page = root.get(page_of(long)).content.decode()
    assert "<details" in page
    assert "x" * 5_000 in page
    assert "Cut:" not in page
    page = root.get(page_of(longer)).content.decode()
    assert "Cut: the first 65,536 of 100,0" in page
    assert "x" * 65_537 not in page


@DRIVEN
def test_nobody_adds_changes_or_deletes(root: Client, start: Start) -> None:
    finished_run(start)
    models = {str(model._meta.model_name): model for model in RUNS.get_models()}
    before = {kind: list(models[kind]._default_manager.values()) for kind in KINDS}
    for kind in KINDS:
        pk = models[kind]._default_manager.values_list("pk", flat=True)[0]
        for method in (root.get, root.post):
            assert method(f"{list_of(kind)}add/").status_code == 403
            assert method(f"{list_of(kind)}{pk}/delete/").status_code == 403
        assert root.post(change_url(kind, pk), {"state": "FAILED"}).status_code == 405
        assert root.post(list_of(kind), {"action": "delete_selected"}).status_code == 405
        page = root.get(change_url(kind, pk)).content.decode()
        assert 'name="_save"' not in page
        assert "deletelink" not in page
    assert before == {kind: list(models[kind]._default_manager.values()) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["0", "none", "%00", "9" * 30, "op_%00", "<script>"])
def test_an_address_of_nothing_leads_back_to_the_list(root: Client, kind: str, key: str) -> None:
    answer = root.get(f"{list_of(kind)}{key}/change/", follow=True)
    assert answer.redirect_chain[-1][0] == list_of(kind)
    assert "There is no" in answer.content.decode()


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_list_says_what_to_do_next(root: Client, kind: str) -> None:
    page = root.get(list_of(kind)).content.decode()
    found = re.search(r'<p class="ao-empty">(.*?)</p>', page)
    assert found is not None
    assert len(found[1]) > 30


@DRIVEN
def test_pages_load_nothing_from_elsewhere(root: Client, start: Start) -> None:
    for address in (list_of("agentrun"), page_of(finished_run(start))):
        page = root.get(address).content.decode()
        assert not re.findall(r'(?:src|href|action)="(?:https?:)?//[^"]*"', page)


@DRIVEN
def test_strangers_see_nothing_and_each_kind_needs_its_own_permission(start: Start) -> None:
    define_tools()
    run = finished_run(start)
    assert reverse("admin:login") in Client().get(page_of(run)).headers["Location"]
    assert browser_of(person()).get(page_of(run)).status_code == 403
    viewer = browser_of(person("view_agentrun"))
    page = viewer.get(page_of(run)).content.decode()
    assert "Held by" in page
    assert "Operations</h3>" not in page
    assert "Journal</h3>" not in page
    assert viewer.get(list_of("tooloperation")).status_code == 403


def test_every_state_has_a_colour_and_every_run_state_a_sentence() -> None:
    assert set(RUN_TONES) == set(MEANINGS) == set(RunState)
    assert set(OPERATION_TONES) == set(OperationStatus)


def test_unseen_characters_are_written_out() -> None:
    assert visible(HOSTILE) == "<script>alert(1)</script> \\u202egnp.exe\\u202c \\u0007"
    assert visible("a\r\nb\tc é 漢") == "a\nb\tc é 漢"
    assert visible("\U000e0041\u200b\ufeff") == "\\U000e0041\\u200b\\ufeff"
    assert line("a\n b\n" + "c" * 500, 10) == "a b cccccc"[:9] + "…"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "now"),
        (-59, "59 s ago"),
        (-61, "1 min ago"),
        (7_300, "in 2 h"),
        (-200_000, "2 d ago"),
    ],
)
def test_a_time_is_told_in_one_unit(seconds: int, words: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert relative(now + timedelta(seconds=seconds), now=now) == words

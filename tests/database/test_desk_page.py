"""The desk says what is uncertain and who has to do what, to those who may see it, for the price
of a few queries."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agentops.desk.people import GROUPS
from agentops.desk.shapes import ROWS
from agentops.desk.uncertain import MOST
from agentops.sweeping import SWEEPS
from runs import Finish
from runs.access import operator
from runs.commands import pause_run
from runs.models import AgentRun, Sweep, ToolOperation
from tests.database.admin_pages import HOSTILE, browser_of, person
from tests.database.approving import ask, held_run
from tests.database.asking import asked
from tests.database.deploying import serve
from tests.database.desk_rows import copy_unknown, fill
from tests.database.gating import tamper
from tests.database.kit import change
from tests.database.stories import parked_run, uncertain_run

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., AgentRun]
MOST_QUERIES = 20


@pytest.fixture
def root() -> Client:
    return browser_of(person(superuser=True))


def desk_of(client: Client) -> str:
    answer = client.get("/admin/")
    assert answer.status_code == 200
    return answer.content.decode()


def section(page: str, anchor: str) -> str:
    """The part of the page under this anchor."""
    begins = page.index(f'id="{anchor}"')
    return page[begins : page.index("</section>", page.index("</section>", begins) + 1)]


def test_the_headline_is_said_also_where_it_is_0_and_leads_to_settling(
    root: Client, start: Start
) -> None:
    assert "<strong>0</strong> <span>runs have an uncertain effect" in desk_of(root)
    operation = ToolOperation.objects.get(run=parked_run(start))
    page = desk_of(root)
    assert "<strong>1</strong> <span>run has an uncertain effect" in page
    assert "1 for a person to settle" in page
    settle = f"/admin/runs/tooloperation/{operation.pk}/resolve/"
    assert page.count(f'href="{settle}"') == 2
    assert root.get(settle).status_code == 200


def test_every_link_of_a_full_desk_opens(root: Client, start: Start) -> None:
    fill(start)
    page = desk_of(root)
    body = page[page.index("ao-desk") :]
    links = {part.split('"')[0].replace("&amp;", "&") for part in body.split('href="')[1:]}
    assert len(links) > 20
    for link in sorted(links):
        if link.startswith("#"):
            assert f'id="{link[1:]}"' in page, link
        elif link.startswith("/"):
            assert root.get(link).status_code == 200, link


def test_each_section_shows_its_rows(root: Client, start: Start) -> None:
    fill(start)
    page = desk_of(root)
    assert "over its 1 h" in section(page, "unknown")
    assert "finance" in section(page, "people")
    assert "Resume" in section(page, "paused")
    assert "nobody is asked for" in section(page, "stuck")
    assert "a worker of this version" in section(page, "unserved")
    assert "due runs" in section(page, "workers")
    assert "23% of 99: 9 refused, 14 without an answer" in section(page, "tools")
    assert "Late commit" in section(page, "incidents")
    assert "$4.17" in section(page, "spend")


def test_text_of_strangers_is_shown_and_never_run(root: Client, start: Start) -> None:
    fill(start, words=HOSTILE)
    page = desk_of(root)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in section(page, "people")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in section(page, "paused")
    assert "\u202e" not in page


def test_a_long_night_costs_no_more_queries_than_a_short_one(root: Client, start: Start) -> None:
    fill(start)
    with CaptureQueriesContext(connection) as few:
        desk_of(root)
    copy_unknown(AgentRun.objects.filter(operations__status="UNKNOWN")[0], 200)
    with CaptureQueriesContext(connection) as many:
        page = desk_of(root)
    assert len(many) == len(few) <= MOST_QUERIES
    assert "more are unknown; see all" in page
    assert page.count("/resolve/") < 30


@pytest.mark.parametrize(
    ("permission", "sees", "misses"),
    [
        ("view_tooloperation", {"unknown", "people", "tools"}, {"stuck", "workers", "spend"}),
        ("view_agentrun", {"paused", "stuck", "unserved", "spend"}, {"unknown", "tools"}),
        ("decide_approval", {"people"}, {"unknown", "stuck", "workers", "incidents"}),
        ("view_worker", {"workers"}, {"unknown", "people", "stuck", "incidents"}),
        ("view_incident", {"incidents"}, {"unknown", "people", "spend"}),
    ],
)
def test_everybody_sees_what_their_permissions_let_them(
    start: Start, permission: str, sees: set[str], misses: set[str]
) -> None:
    fill(start)
    page = desk_of(browser_of(person(permission)))
    assert {name for name in sees | misses if f'id="{name}"' in page} == sees
    assert "/resolve/" not in page
    assert "/resume/" not in page
    assert ("uncertain effect" in page) is (permission in ("view_agentrun", "view_tooloperation"))


@pytest.fixture
def all_fresh() -> None:
    serve("worker 1")
    for name in SWEEPS:
        Sweep.objects.create(name=name)


def test_the_headline_promises_nothing_while_nobody_could_find_out(
    root: Client, all_fresh: None
) -> None:
    well = "Of every call that was sent it is known whether it happened."
    assert well in desk_of(root)
    Sweep.objects.filter(name="due runs").update(last_run_at=Now() - timedelta(minutes=2))
    page = desk_of(root)
    assert "The sweep for due runs stands still" in page
    assert well not in page
    change("UPDATE runs_worker SET last_seen_at = now() - interval '1 hour'")
    for viewer in (root, browser_of(person("view_agentrun"))):
        page = desk_of(viewer)
        assert "No worker is alive" in page
        assert "ao-headline ao-danger" in page
        assert well not in page


def test_who_is_not_asked_about_is_not_said_to_be(
    root: Client, start: Start, all_fresh: None
) -> None:
    run = uncertain_run(start)
    asked_in = "UPDATE runs_tooloperation SET next_reconcile_at = now() + %s WHERE run_id = %s"
    tamper(asked_in, timedelta(seconds=50), run.id)
    page = desk_of(root)
    assert "the provider is asked <time" in section(page, "unknown")
    assert "not asked about in time" not in page
    tamper(asked_in, -timedelta(minutes=10), run.id)
    page = desk_of(root)
    assert "the provider should have been asked 10 min ago<" in section(page, "unknown")
    assert "1 not asked about in time" in page
    change("UPDATE runs_worker SET last_seen_at = now() - interval '1 hour'")
    assert "asked 10 min ago: no worker is alive" in section(desk_of(root), "unknown")
    tamper(asked_in, timedelta(seconds=50), run.id)
    assert "nobody asks the provider: no worker is alive" in section(desk_of(root), "unknown")


def test_a_sweep_that_is_late_is_marked_whichever_it_is(root: Client, all_fresh: None) -> None:
    assert "ao-danger" not in section(desk_of(root), "workers")
    Sweep.objects.create(name="rollups", last_run_at=Now() - timedelta(hours=3))
    part = section(desk_of(root), "workers")
    assert part.index("sweep: rollups") < part.index("ran 3 h ago") < part.index("sweep: due runs")
    assert part.count("ao-danger") == 1


def test_headline_and_figures_agree_for_who_sees_runs_alone(start: Start) -> None:
    parked_run(start)
    page = desk_of(browser_of(person("view_agentrun")))
    assert "1 for a person to settle" in page
    assert "<strong>1</strong> <span>waits for a person" in page
    assert "effect=uncertain" in section(page, "people")


def test_who_sees_a_part_of_what_waits_is_not_told_that_nothing_does(
    root: Client, start: Start
) -> None:
    assert "Nobody is waited for." in desk_of(root)
    ask(held_run(start))
    asked_alone = browser_of(person("view_question"))
    assert "Nobody is waited for with what you may see." in desk_of(asked_alone)


def test_one_is_said_as_one(root: Client, start: Start) -> None:
    copy_unknown(uncertain_run(start), MOST)
    for number in range(GROUPS + 1):
        asked(start, groups=[f"group {number}"])
    for _ in range(ROWS + 1):
        paused = start(decider=lambda context: Finish(1))
        pause_run(actor=operator(), run_id=paused.id)
    change("UPDATE runs_agentrun SET wake_at = now() + interval '1 h' WHERE id <> %s", paused.id)
    page = desk_of(root)
    for said in ("more is unknown", "more group is asked", "more is paused", "waits for a worker"):
        assert f"1 {said}" in page
    assert "?pause=paused" in section(page, "paused")


def test_who_has_rights_elsewhere_alone_is_sent_to_the_menu() -> None:
    page = desk_of(browser_of(person("view_rollup")))
    assert "You may see nothing here yet" not in page
    assert "the menu has what you may see" in page


def test_who_may_see_nothing_is_told_what_to_do(start: Start) -> None:
    fill(start)
    page = desk_of(browser_of(person()))
    assert "You may see nothing here yet" in page
    assert 'class="ao-panel' not in page


def test_a_new_installation_is_told_how_to_begin(root: Client, start: Start) -> None:
    assert "docs/how-to/write-a-tool.md" in desk_of(root)
    start(decider=lambda context: Finish(1))
    assert "docs/how-to/write-a-tool.md" not in desk_of(root)


def test_the_part_that_is_renewed_is_marked(root: Client) -> None:
    page = desk_of(root)
    assert 'data-live="10"' in page
    assert "runs/live.js" in page

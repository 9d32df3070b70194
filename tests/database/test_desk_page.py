"""The desk says what is uncertain and who has to do what, to those who may see it, for the price
of a few queries."""

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runs import Finish
from runs.models import AgentRun, ToolOperation
from tests.database.admin_pages import HOSTILE, browser_of, person
from tests.database.desk_rows import copy_unknown, fill
from tests.database.stories import parked_run

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

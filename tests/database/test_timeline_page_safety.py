"""What strangers write misleads nobody, secrets are nowhere, and a file has the whole timeline."""

import json
from io import BytesIO

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.test import Client, RequestFactory

from runs.admin.timeline_export import export_timeline
from runs.admin.timeline_sight import Sight
from runs.timeline import read_timeline
from tests.database.admin_pages import CARD, browser_of, person
from tests.database.callers import caller
from tests.database.eventful import eventful_run, operation
from tests.database.gating import Start
from tests.database.kit import scripted_tool
from tests.database.llm_rows import asking_run
from tests.database.stories import uncertain_run
from tests.database.timeline_pages import address_of, exported, opened

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def root(transactional_db: None) -> Client:
    return browser_of(person(superuser=True))


def test_what_an_llm_a_tool_and_a_person_wrote_is_escaped_and_closed(
    root: Client, start: Start
) -> None:
    run = eventful_run(start)
    for row in (run, operation(run, "pay"), operation(run, "wire")):
        page = opened(root, address_of(row))
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
        assert "<script>alert" not in page
        for unseen in ("\u202e", "\u202c", "\u0007"):
            assert unseen not in page
        assert "\\u202egnp.exe\\u202c" in page
    page = opened(root, address_of(run))
    said = page[page.index("Written by the llm: not checked") :]
    assert "I take [redacted]. &lt;script&gt;" in said.split("</details>")[0]
    assert "<details open" not in page


def test_a_sensitive_argument_is_on_no_page_and_in_no_file(root: Client, start: Start) -> None:
    run = eventful_run(start)
    for row in (run, operation(run, "pay"), operation(run, "wire"), uncertain_run(start)):
        assert CARD not in opened(root, address_of(row))
        assert CARD not in json.dumps(exported(root, row))


def test_a_value_that_is_too_long_for_a_page_is_cut_there_and_says_so(
    root: Client, start: Start
) -> None:
    scripted_tool({"rows": "x" * 50_000 + "THE END"})
    run = asking_run(start)
    page = opened(root, address_of(run))
    assert "The first 6,000 of 50," in page
    assert "THE END" not in page
    (seen,) = [one for one in exported(root, run)["entries"] if one["kind"] == "observation.worker"]
    assert seen["evidence"]["result"]["rows"].endswith("THE END")


def test_a_file_has_the_run_and_every_entry_as_the_api_has_them(root: Client, start: Start) -> None:
    run = eventful_run(start)
    api = caller("read")
    whole = exported(root, run)
    assert whole["run"] == api.get(f"/api/v1/runs/{run.pk}/").json()
    assert whole["operation"] is None
    assert whole["entries"] == api.get(f"/api/v1/runs/{run.pk}/timeline/").json()["results"]


def test_a_file_of_an_operation_has_its_entries_alone(root: Client, start: Start) -> None:
    run = eventful_run(start)
    pay = operation(run, "pay")
    whole = exported(root, pay)
    assert whole["operation"]["operation_id"] == pay.pk
    assert {one["operation_id"] for one in whole["entries"]} == {pay.pk, None}
    assert {one["step_number"] for one in whole["entries"]} == {2}
    everything = exported(root, run)["entries"]
    of_it = [one["kind"] for one in everything if one["operation_id"] == pay.pk]
    assert [one["kind"] for one in whole["entries"] if one["operation_id"]] == of_it


def test_a_file_is_put_together_from_every_page(
    root: Client, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.admin.timeline_export.PAGE", 7)
    run = eventful_run(start)
    entries = exported(root, run)["entries"]
    assert len(entries) > 70
    assert [one["seq"] for one in entries] == list(range(1, len(entries) + 1))


def test_each_kind_of_server_is_given_a_stream_that_it_need_not_gather_first(start: Start) -> None:
    run = uncertain_run(start)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
    for request in (ASGIRequest(scope, BytesIO()), RequestFactory().get("/")):
        answer = export_timeline(request, run, None, sight=Sight(frozenset()))
        assert answer.is_async == isinstance(request, ASGIRequest)


def test_an_operation_s_timeline_has_pages_too(start: Start) -> None:
    pay = operation(eventful_run(start), "pay")
    whole = list(read_timeline(run_id=pay.run_id, operation=pay).items)
    for size in (1, 3, len(whole)):
        page = read_timeline(run_id=pay.run_id, operation=pay, size=size)
        found = list(page.items)
        while page.next is not None:
            page = read_timeline(run_id=pay.run_id, operation=pay, size=size, cursor=page.next)
            found += page.items
        assert found == whole

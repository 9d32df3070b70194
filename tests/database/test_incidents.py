"""No duplicate is hidden: incidents and repeats are shown wherever their run or operation is."""

import json
from html import unescape
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from runs import Context, Decision, Finish
from runs.admin.incidents import MEANINGS, TOLD
from runs.models import AgentRun, Incident, ToolObservation, ToolOperation
from runs.queries import duplicate_counts
from tests.database.admin_pages import HOSTILE, browser_of, list_of, person
from tests.database.callers import caller
from tests.database.stories import (
    SECRET,
    Start,
    parked_run,
    reconciled_run,
    repeating_run,
    uncertain_run,
)
from tests.database.test_plans import scans

# The engine commits for real.
pytestmark = pytest.mark.django_db(transaction=True)

Kind = Incident.Kind


@pytest.fixture
def root() -> Client:
    return browser_of(person(superuser=True))


def open_incident(run: AgentRun, kind: str = Kind.LATE_COMMIT, ref: str = "re_2") -> Incident:
    return Incident.objects.create(
        run=run,
        operation=run.operations.get(),
        kind=kind,
        external_ref=ref,
        detail=f"found for {SECRET}: {HOSTILE}",
    )


def told(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


# -- Over the API ------------------------------------------------------------------------


def test_an_operation_shows_its_incidents_without_secrets(start: Start) -> None:
    run = reconciled_run(start)
    open_incident(run)
    open_incident(run, Kind.DUPLICATE, "re_3")
    answer = caller().get("operations/", status="committed")
    (shown,) = answer.json()["results"]
    assert [(one["kind"], one["external_ref"]) for one in shown["incidents"]] == [
        ("LATE_COMMIT", "re_2"),
        ("DUPLICATE", "re_3"),
    ]
    assert set(shown["incidents"][0]) == {"kind", "external_ref", "detail", "at"}
    assert shown["incidents"][0]["detail"].startswith("found for [redacted]: ")
    assert SECRET not in answer.content.decode()


def test_an_operation_says_whether_a_send_may_still_be_in_flight(start: Start) -> None:
    run = uncertain_run(start)
    (shown,) = caller().get("operations/").json()["results"]
    assert shown["may_be_in_flight"] is True
    assert shown["settles_at"] > timezone.now().isoformat()
    (seen,) = shown["observations"]
    assert seen["window"]["opened_at"] <= seen["window"]["returned_at"] <= seen["at"]
    assert seen["window"]["deadline"] is not None
    assert seen["window"]["first_byte_at"] is None
    ToolOperation.objects.filter(run=run).update(settles_at=timezone.now())
    (shown,) = caller().get("operations/").json()["results"]
    assert shown["may_be_in_flight"] is False


def test_further_effects_that_a_look_up_saw_are_shown_everywhere(start: Start) -> None:
    run = reconciled_run(start)
    seen = ToolObservation.objects.create(
        run=run,
        operation=run.operations.get(),
        source=ToolObservation.Source.LOOK_UP,
        verdict=ToolObservation.Verdict.COMMITTED,
        external_ref="re_1",
        also=["re_2", "re_3"],
        attempt=1,
        fence_token=2,
    )
    (shown,) = caller().get("operations/").json()["results"]
    assert [one["also"] for one in shown["observations"]] == [[], [], ["re_2", "re_3"]]
    newest = caller().get(f"runs/{run.id}/timeline/").json()["results"][-1]
    assert newest["evidence"]["also"] == ["re_2", "re_3"]
    assert "(and besides: re_2, re_3)" in " ".join(told("inspect_run", str(run.id)).split())
    root = browser_of(person(superuser=True))
    assert "re_1, re_2, re_3" in page_of("toolobservation", seen.pk, root)


def test_a_repeat_names_what_it_repeats(start: Start) -> None:
    run = repeating_run(start, on_repeated_intent="return_recorded")
    assert run.state == "COMPLETED"
    repeat, first = caller().get("operations/").json()["results"]
    assert repeat["repeats"] == first["operation_id"]
    assert first["repeats"] is None
    assert (repeat["status"], repeat["attempts"]) == ("COMMITTED", 0)
    assert repeat["result"] == first["result"]


# -- Counting ------------------------------------------------------------------------------


def test_every_repeat_and_every_incident_is_counted_once(start: Start) -> None:
    repeating_run(start, on_repeated_intent="return_recorded")
    repeating_run(start, on_repeated_intent="refuse")
    run = reconciled_run(start)
    open_incident(run)
    open_incident(run, ref="re_3")
    open_incident(run, Kind.DUPLICATE)
    counts = duplicate_counts().model_dump()
    assert counts == {
        "replays": 1,
        "refused_repeats": 1,
        "late_commits": 2,
        "duplicates": 1,
        "overdue": 0,
        "unapproved": 0,
    }


def test_counting_and_listing_scan_nothing(start: Start) -> None:
    run = reconciled_run(start)
    open_incident(run)
    with CaptureQueriesContext(connection) as captured:
        duplicate_counts()
        told("list_incidents", "--kind", "late_commit")
        told("list_incidents", "--run", str(run.id))
    assert len([one for one in captured if "runs_" in one["sql"]]) == 8
    assert scans(captured) == []


# -- By commands ---------------------------------------------------------------------------


def test_list_incidents_tells_the_newest_first_and_counts_all(start: Start) -> None:
    run = reconciled_run(start)
    operation = run.operations.get()
    for number in range(3):
        open_incident(run, ref=f"re_{number}")
    open_incident(run, Kind.OVERDUE, "")
    text = told("list_incidents")
    for word in ("LATE_COMMIT", "OVERDUE", operation.id, "re_2", "[redacted]", str(run.id)):
        assert word in text
    assert SECRET not in text
    assert not {"\u202e", "\u0007"} & set(text)
    counts = "Replays: 0. Refused repeats: 0. Late commits: 3. Duplicates: 0. Overdue: 1."
    assert f"{counts} Unapproved: 0." in text
    document = json.loads(told("list_incidents", "--kind", "late_commit", "--json"))
    assert [one["external_ref"] for one in document["incidents"]] == ["re_2", "re_1", "re_0"]
    assert document["counts"]["late_commits"] == 3
    assert document["incidents"][0]["operation_id"] == operation.id
    assert "There are more; these are the newest 2." in told("list_incidents", "--limit", "2")
    assert json.loads(told("list_incidents", "--kind", "DUPLICATE", "--json"))["incidents"] == []
    assert "No incident matches." in told("list_incidents", "--kind", "DUPLICATE")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kind", "late_comit"], ["kind", "'late_comit'", "Did you mean LATE_COMMIT?"]),
        (["--run", "nonsense"], ["run", "'nonsense'"]),
        (["--limit", "0"], ["--limit"]),
    ],
)
def test_list_incidents_names_what_does_not_fit(arguments: list[str], words: list[str]) -> None:
    with pytest.raises(CommandError) as caught:
        told("list_incidents", *arguments)
    assert all(word in str(caught.value) for word in words)


def test_list_operations_notes_what_is_special_about_one(start: Start) -> None:
    repeating_run(start, on_repeated_intent="return_recorded")
    run = uncertain_run(start)
    open_incident(run, Kind.OVERDUE, "")
    first = ToolOperation.objects.filter(repeats__isnull=True).earliest("created_at")
    text = " ".join(told("list_operations").split())
    assert f"repeats {first.id}" in text
    assert "OVERDUE; may still be in flight until 20" in text


def test_inspect_run_says_what_is_unknown_and_what_went_wrong(start: Start) -> None:
    run = uncertain_run(start)
    operation = run.operations.get()
    open_incident(run, Kind.OVERDUE, "")
    text = told("inspect_run", str(run.id))
    assert f"{operation.id} · refund · may still be in flight until" in text
    assert "OVERDUE · refund · found for [redacted]" in text
    assert "(send 1: opened " in text
    document = json.loads(told("inspect_run", str(run.id), "--json"))
    assert [one["kind"] for one in document["incidents"]] == ["OVERDUE"]
    assert SECRET not in json.dumps(document)


# -- In the admin ----------------------------------------------------------------------------


def page_of(kind: str, key: object, client: Client) -> str:
    answer = client.get(reverse(f"admin:runs_{kind}_change", args=[key]))
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_run_and_its_operation_tell_their_incidents_first(root: Client, start: Start) -> None:
    run = reconciled_run(start)
    incident = open_incident(run)
    here = reverse("admin:runs_incident_change", args=[incident.pk])
    for kind, key in (("agentrun", run.pk), ("tooloperation", run.operations.get().pk)):
        page = page_of(kind, key, root)
        notice = page.index('<section class="ao-notice ao-danger"')
        assert here in page[notice : page.index('<dl class="ao-facts">')], kind
        assert "An effect appeared after its operation was closed" in page
        assert "found for [redacted]: &lt;script&gt;" in page
        assert "<script>alert" not in page


def test_a_run_without_incidents_has_no_banner(root: Client, start: Start) -> None:
    run = reconciled_run(start)
    assert '<section class="ao-notice' not in page_of("agentrun", run.pk, root)


def test_many_incidents_are_bounded_and_lead_to_all(root: Client, start: Start) -> None:
    run = reconciled_run(start)
    for number in range(TOLD + 3):
        open_incident(run, ref=f"re_{number:03}")
    page = page_of("agentrun", run.pk, root)
    assert page.count("An effect appeared after") == TOLD
    assert f"re_{TOLD + 2:03}" in page
    assert "re_000" not in page
    assert f"{list_of('incident')}?run={run.pk}" in page


def test_incidents_are_listed_by_kind_newest_first(root: Client, start: Start) -> None:
    run, other = reconciled_run(start), parked_run(start)
    made = [open_incident(run), open_incident(run, Kind.DUPLICATE), open_incident(other)]
    assert listed(root, "") == [one.pk for one in reversed(made)]
    assert listed(root, "?kind=LATE_COMMIT") == [made[2].pk, made[0].pk]
    assert listed(root, f"?run={run.pk}") == [made[1].pk, made[0].pk]
    assert listed(root, f"?run={run.pk}&kind=DUPLICATE") == [made[1].pk]
    assert listed(root, f"?operation={other.operations.get().pk}") == [made[2].pk]
    assert listed(root, "?kind=NONE") == []


def listed(client: Client, query: str) -> list[int]:
    page = client.get(list_of("incident") + query)
    assert page.status_code == 200
    return [row.pk for row in page.context["cl"].result_list]


def test_every_kind_of_incident_says_what_to_do(root: Client, start: Start) -> None:
    run = reconciled_run(start)
    assert set(MEANINGS) == set(Kind)
    for kind in Kind:
        page = unescape(page_of("incident", open_incident(run, kind).pk, root))
        assert MEANINGS[kind] in page
        assert kind.label in page


def test_a_repeat_is_marked_and_links_to_what_it_repeats(root: Client, start: Start) -> None:
    repeating_run(start, on_repeated_intent="return_recorded")
    repeat = ToolOperation.objects.get(repeats__isnull=False)
    page = page_of("tooloperation", repeat.pk, root)
    assert "Nothing was sent: it was answered with the result" in page
    assert reverse("admin:runs_tooloperation_change", args=[repeat.repeats_id]) in page
    rows = root.get(f"{list_of('tooloperation')}?intent=repeated")
    assert [row.pk for row in rows.context["cl"].result_list] == [repeat.pk]
    assert "repeats an earlier one</span>" in rows.content.decode()


def test_an_unknown_operation_is_marked_while_a_send_may_land(root: Client, start: Start) -> None:
    run = uncertain_run(start)
    operation = run.operations.get()
    pages: list[Any] = [list_of("tooloperation"), f"{list_of('agentrun')}{run.pk}/change/"]
    for address in pages:
        assert "may still be in flight</span>" in root.get(address).content.decode()
    ToolOperation.objects.filter(pk=operation.pk).update(settles_at=timezone.now())
    for address in pages:
        assert "may still be in flight</span>" not in root.get(address).content.decode()


def test_a_decider_that_repeats_itself_hides_nothing(start: Start) -> None:
    """The journal of a replay says what it repeats, over the API as in the terminal."""
    run = repeating_run(start, on_repeated_intent="return_recorded")
    repeat = ToolOperation.objects.get(repeats__isnull=False)
    entries = caller().get(f"runs/{run.id}/timeline/").json()["results"]
    (replay,) = [entry for entry in entries if entry["kind"] == "operation.replay"]
    assert replay["evidence"]["repeats"] == repeat.repeats_id
    assert f"(repeats {repeat.repeats_id})" in told("inspect_run", str(run.id)).replace("\n", " ")


def test_a_run_that_did_nothing_has_nothing_to_hide(start: Start) -> None:
    def decide(context: Context) -> Decision:
        return Finish()

    run = start(decider=decide)
    document = json.loads(told("inspect_run", str(run.id), "--json"))
    assert document["incidents"] == []
    assert duplicate_counts().replays == 0

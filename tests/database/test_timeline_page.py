"""The page of a timeline: what is uncertain first, then who held the run, then the whole story."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs import WaitFor
from runs.commands import pause_run
from runs.models import AgentRun, Approval, Incident, ToolOperation
from tests.database.admin_pages import CARD, browser_of, page_of, person
from tests.database.asking import asked as asks_people
from tests.database.controlling import ANN
from tests.database.deploying import serve
from tests.database.eventful import eventful_run, lost_run, operation
from tests.database.gating import Start, held
from tests.database.kit import drive, expire_lease, let_pass, operation_of
from tests.database.llm_rows import BAD, USED, asking_run, handed_off
from tests.database.stories import parked_run, uncertain_run
from tests.database.timeline_pages import (
    READS,
    address_of,
    link_in,
    opened,
    part,
    story_in,
    verdict_in,
)

# The engine commits for itself, and approvals read users.
pytestmark = pytest.mark.django_db(transaction=True)

MOST_QUERIES = 20


@pytest.fixture
def root(transactional_db: None) -> Client:
    return browser_of(person(superuser=True))


def resolve_page(run: AgentRun) -> str:
    return reverse("admin:runs_tooloperation_resolve", args=[operation_of(run).pk])


# -- What is uncertain, and what to do -----------------------------------------------------


def test_an_uncertain_call_comes_first_with_all_that_is_known_of_its_end(
    root: Client, start: Start
) -> None:
    run = uncertain_run(start)
    serve("worker 1")
    said = verdict_in(opened(root, address_of(run)))
    assert "Uncertain: refund of step 1 may or may not have happened" in said
    for label in (
        "Uncertain since 20",
        "To be settled by 20",
        "May still be in flight yes, until 20",
        "The provider is asked next in",
        "Its key at the provider expires in 23 h",
        "What to do Nothing yet: the provider is asked again in",
    ):
        assert label in said, label
    assert CARD not in said


def test_what_only_a_person_can_settle_leads_to_where_it_is_settled(
    root: Client, start: Start
) -> None:
    run = parked_run(start)
    page = opened(root, address_of(run))
    assert "The provider is asked next not again" in verdict_in(page)
    assert link_in(page, "action-1") == resolve_page(run)
    reader = browser_of(person(*READS))
    page = opened(reader, address_of(run))
    assert "Somebody with the right to settle operations" in verdict_in(page)
    assert resolve_page(run) not in page


def test_an_objective_that_is_over_is_said_to_be(root: Client, start: Start) -> None:
    run = uncertain_run(start)
    let_pass(hours=30)
    said = verdict_in(opened(root, address_of(run)))
    assert "To be settled by overdue: 1 d ago" in said
    assert "Its key at the provider expired" in said


def test_a_call_whose_sender_is_gone_is_uncertain_before_anybody_took_over(
    root: Client, start: Start
) -> None:
    run = lost_run(start)
    page = opened(root, address_of(run))
    assert verdict_in(page).count("Uncertain") == 0
    assert "is at work under token 1" in verdict_in(page)
    expire_lease(run)
    serve("worker 2")
    page = opened(root, address_of(run))
    assert "Uncertain: pay of step 2" in verdict_in(page)
    assert "another worker takes over" in verdict_in(page)
    assert "lease over no sign of life for" in part(page, "lanes")
    assert "nobody took over yet" in part(page, "lanes")


def test_an_unsigned_call_leads_to_its_request(root: Client, start: Start) -> None:
    run, _ = held(start)
    page = opened(root, address_of(run))
    assert "Nothing is uncertain" in verdict_in(page)
    assert "pay waits for a signature by" in verdict_in(page)
    asked = Approval.objects.get(run=run)
    assert link_in(page, "action-1") == reverse("admin:runs_approval_change", args=[asked.pk])


def test_a_question_leads_to_where_it_is_answered(root: Client, start: Start) -> None:
    question = asks_people(start)
    AgentRun.objects.filter(pk=question.run_id).update(version=2)
    wait = question.run.waits.create(
        step=question.step, step_number=question.step_number, kind="question", name=question.text
    )
    page = opened(root, address_of(question.run))
    assert wait.run_id == question.run_id
    assert "A person must answer its question" in verdict_in(page)
    answer = reverse("admin:runs_question_change", args=[question.pk])
    assert link_in(page, "action-1") == answer


def test_a_paused_run_leads_to_resuming_it_and_a_waiting_one_needs_nobody(
    root: Client, start: Start
) -> None:
    run = start(decider=lambda context: WaitFor("paid"))
    drive(run)
    assert "Nothing here: it waits for a signal" in verdict_in(opened(root, address_of(run)))
    pause_run(actor=ANN, run_id=run.id, reason="hold on")
    page = opened(root, address_of(run))
    assert "a person lets it go on" in verdict_in(page)
    resume = reverse("admin:runs_agentrun_resume", args=[run.pk])
    assert link_in(page, "action-1") == resume


def test_an_incident_comes_before_nothing_is_uncertain(root: Client, start: Start) -> None:
    run = eventful_run(start)
    assert "Nothing is uncertain" in verdict_in(opened(root, address_of(run)))
    incident = Incident.objects.create(
        run=run, operation=operation(run, "pay"), kind=Incident.Kind.DUPLICATE, external_ref="re_2"
    )
    page = opened(root, address_of(run))
    assert "more than one effect of one operation: pay" in verdict_in(page)
    assert link_in(page, "action-1").endswith(f"/incident/{incident.pk}/change/")


def test_an_uncertain_child_makes_its_parent_uncertain(root: Client, start: Start) -> None:
    child = uncertain_run(start)
    parent = start(decider=lambda context: None)
    AgentRun.objects.filter(pk=child.pk).update(parent=parent)
    page = opened(root, address_of(parent))
    assert "Uncertain: in a run below this one" in verdict_in(page)
    assert link_in(page, "action-1") == address_of(child)


# -- Lanes and the story -------------------------------------------------------------------


def test_the_way_of_a_lost_call_can_be_read_from_its_decision_to_its_second_send(
    root: Client, start: Start
) -> None:
    page = opened(root, address_of(eventful_run(start)))
    lanes, story = part(page, "lanes"), story_in(page)
    assert "worker 1 <b> steps 1–2" in lanes
    assert "lost no sign of life for" in lanes
    in_order = [
        "decision An llm answered",
        "decision Decision recorded",
        "policy Policy lets it be sent",
        "Policy says allow Rule no approval_policy Policy version",
        "send Send window opened",
        "No sign of life under token 1 for",
        "recovery Found at the take-over: unknown – it may or may not have happened",
        "Interrupted while crash",
        "recovery Taken over: its sender is gone",
        "recovery The provider was asked: not found",
        "recovery Sent again recovery allows the same key",
        "answer Answer: committed – it happened",
        "Provider's reference re_pay",
    ]
    place = story.index("Step 2")
    for words in in_order:
        place = story.index(words, place)


def test_a_signature_shows_what_was_seen_what_changed_and_who_signed(
    root: Client, start: Start
) -> None:
    run = eventful_run(start)
    story = story_in(opened(root, address_of(run)))
    place = story.index("Step 3")
    in_order = [
        "approval A signature is asked for",
        "Rule amount > 500",
        "Must sign 2 of finance",
        "What the reviewer saw",
        '"amount": 900',
        "approval Other arguments take its place robin proposed other arguments",
        "approval A signature is asked for proposed by robin",
        "Changed since arguments.amount",
        '"amount": 600',
        "approval Approved signed by sam, kim",
        "Signed or refused by sam, kim",
    ]
    for words in in_order:
        place = story.index(words, place)
    newest = Approval.objects.filter(run=run).latest("requested_at")
    assert newest.fingerprint in story
    own = story_in(opened(root, address_of(operation(run, "wire"))))
    assert "Changed since arguments.amount" in own


def test_a_compensation_says_what_it_corrects_and_the_other_way_round(
    root: Client, start: Start
) -> None:
    run = eventful_run(start)
    story = story_in(opened(root, address_of(run)))
    pay, back = operation(run, "pay"), operation(run, "pay_back")
    assert f"pay_back {back.pk[:11]}… corrects {pay.pk[:11]}…" in story
    assert "compensation What it did is corrected the shop is closed" in story
    assert f"It is corrected by {back.pk[:11]}" in verdict_in(opened(root, address_of(pay)))
    assert f"It corrects {pay.pk[:11]}" in verdict_in(opened(root, address_of(back)))


def test_the_runs_around_it_are_linked_with_their_states(root: Client, start: Start) -> None:
    run = eventful_run(start)
    child = AgentRun.objects.get(parent=run)
    page = opened(root, address_of(run))
    assert f"child auditor …{str(child.pk)[-12:]} Completed" in part(page, "family")
    assert address_of(child) in page
    page = opened(root, address_of(child))
    assert f"started it {run.agent} …{str(run.pk)[-12:]} Failed" in part(page, "family")


def test_an_operation_s_page_has_its_own_story_and_its_step_s(root: Client, start: Start) -> None:
    run = eventful_run(start)
    story = story_in(opened(root, address_of(operation(run, "pay"))))
    for told in ("Decision recorded", "An llm answered", "Taken over", "Sent again", "re_pay"):
        assert told in story
    for other in ("Step 1", "Step 3", "wire", "child", "Compensated", "signal"):
        assert other not in story, other


def test_newest_first_turns_the_page_around(root: Client, start: Start) -> None:
    run = eventful_run(start)
    page = opened(root, address_of(run))
    turned = opened(root, link_in(page, "turn"))
    assert story_in(page).index("Run created") < story_in(page).index("Sent again")
    assert story_in(turned).index("Sent again") < story_in(turned).index("Run created")
    assert link_in(turned, "turn") == address_of(run)


# -- Pages, permission, cost -----------------------------------------------------------------


def test_only_who_may_see_all_that_it_is_made_of_sees_it_or_a_link_to_it(start: Start) -> None:
    run = uncertain_run(start)
    rows: tuple[AgentRun | ToolOperation, ...] = (run, operation_of(run))
    reader, other = browser_of(person(*READS)), browser_of(person(*READS[:-1]))
    for row in rows:
        assert reader.get(address_of(row)).status_code == 200
        for address in (address_of(row), f"{address_of(row)}export/"):
            assert other.get(address).status_code == 403
            assert Client().get(address).status_code == 302
            assert reader.post(address).status_code == 405
    assert address_of(run) in opened(reader, page_of(run))
    assert address_of(run) not in opened(other, page_of(run))


def test_a_run_that_is_not_there_is_said_not_to_be(root: Client) -> None:
    for key in ("01a22be3-1b52-73a7-9645-53f3150da22a", "op_0", "no id"):
        for kind in ("agentrun", "tooloperation"):
            address = reverse(f"admin:runs_{kind}_timeline", args=[key])
            assert root.get(address).status_code == 302, address


def test_a_long_run_has_pages_that_lead_through_all_of_it(root: Client, start: Start) -> None:
    run = asking_run(start, steps=19)
    seen: list[str] = []
    page = opened(root, address_of(run))
    assert "Entries 95 to 194" in story_in(page)
    while True:
        seen.append(story_in(page).split(", oldest first")[0].rsplit("Entries ", 1)[1])
        if 'id="to-older"' not in page:
            break
        page = opened(root, link_in(page, "to-older"))
    assert seen == ["95 to 194", "1 to 94"]
    assert "Entries 95 to 194" in story_in(opened(root, link_in(page, "to-newer")))
    first = opened(root, address_of(run, place="start"))
    assert "Entries 1 to 100" in story_in(first)
    assert "Entries 101 to 194" in story_in(opened(root, link_in(first, "to-newer")))


def test_a_place_that_nobody_gave_leads_to_the_end(root: Client, start: Start) -> None:
    run = uncertain_run(start)
    answer = root.get(address_of(run, cursor="made up"))
    assert answer.status_code == 302
    assert answer.headers["Location"] == address_of(run)


def test_a_page_costs_the_same_however_long_the_run_and_never_too_much(start: Start) -> None:
    reader = browser_of(person(*READS))

    def queries(row: AgentRun | ToolOperation) -> int:
        with CaptureQueriesContext(connection) as captured:
            opened(reader, address_of(row))
        return len(captured)

    one, many = asking_run(start, USED), asking_run(start, BAD, USED, steps=19)
    for run in (one, many):
        handed_off(run)
    queries(one)
    assert queries(one) == queries(many) <= MOST_QUERIES


def test_a_page_of_a_run_to_which_everything_happened_does_not_cost_too_much(start: Start) -> None:
    reader = browser_of(person(*READS))
    run = eventful_run(start)
    Incident.objects.create(
        run=run, operation=operation(run, "pay"), kind=Incident.Kind.DUPLICATE, external_ref="re_2"
    )
    for row in (run, operation(run, "pay"), uncertain_run(start)):
        opened(reader, address_of(row))
        with CaptureQueriesContext(connection) as captured:
            opened(reader, address_of(row))
        assert len(captured) <= MOST_QUERIES, row


# -- Live ------------------------------------------------------------------------------------


def test_asked_with_the_mark_of_what_is_shown_it_answers_only_with_news(
    root: Client, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.admin.timeline.REFRESHED_SECONDS", 10**9)
    run = uncertain_run(start)
    page = opened(root, address_of(run))
    mark = page.split('data-mark="')[1].split('"')[0]
    with CaptureQueriesContext(connection) as captured:
        answer = root.get(address_of(run, since=mark))
    assert (answer.status_code, answer.content) == (204, b"")
    # The session, the user, and the run.
    assert len(captured) == 3
    pause_run(actor=ANN, run_id=run.id)
    assert "It is paused" not in page
    assert root.get(address_of(run, since=mark)).status_code == 200


def test_a_page_says_whether_its_run_goes_on(root: Client, start: Start) -> None:
    assert 'data-live="yes"' in opened(root, address_of(uncertain_run(start)))
    assert 'data-live="no"' in opened(root, address_of(eventful_run(start)))

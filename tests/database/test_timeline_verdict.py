"""What a timeline says there is to do: it finds every doubt, and sends nobody the wrong way."""

import re
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs import Sleep, WaitFor
from runs.commands import cancel_run
from runs.models import AgentRun, ToolOperation
from runs.state import RunState
from runs.timeline_family import MOST, MOST_UNCERTAIN
from tests.database.admin_pages import browser_of, person
from tests.database.asking import asked as asks_people
from tests.database.controlling import ANN
from tests.database.deploying import serve
from tests.database.gating import Start, held
from tests.database.kit import change, drive, let_pass, operation_of
from tests.database.stories import parked_run, reconciled_run, uncertain_run
from tests.database.timeline_pages import READS, address_of, opened, part, verdict_in

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def root(transactional_db: None) -> Client:
    return browser_of(person(superuser=True))


def family_of(start: Start, *, size: int) -> tuple[AgentRun, list[AgentRun]]:
    """A run and so many below it, the last of them two levels down."""
    parent, *below = (start(decider=lambda context: None) for _ in range(size + 1))
    keys = [one.pk for one in below]
    AgentRun.objects.filter(pk__in=keys).update(parent=parent)
    AgentRun.objects.filter(pk=keys[-1]).update(parent=keys[-2])
    return parent, below


def make_uncertain(*runs: AgentRun) -> None:
    """As if each had been brought there, without a journal that nobody reads here."""
    keys = [run.pk for run in runs]
    with transaction.atomic():
        change("ALTER TABLE runs_agentrun DISABLE TRIGGER USER")
        AgentRun.objects.filter(pk__in=keys).update(state=RunState.WAITING_FOR_RESOLUTION)
        change("ALTER TABLE runs_agentrun ENABLE TRIGGER USER")


# -- Runs below ----------------------------------------------------------------------------


def test_an_uncertain_run_is_found_however_many_are_below_and_however_deep(
    root: Client, start: Start
) -> None:
    parent, below = family_of(start, size=MOST + 2)
    page = opened(root, address_of(parent))
    assert "Uncertain" not in verdict_in(page)
    make_uncertain(below[-1])
    with CaptureQueriesContext(connection) as captured:
        page = opened(root, address_of(parent))
    assert "Uncertain: in a run below this one" in verdict_in(page)
    assert f"…{str(below[-1].pk)[-12:]} Waiting for resolution" in verdict_in(page)
    assert f'href="{address_of(below[-1])}"' in page
    assert "2 more are not shown" in part(page, "family")
    assert len(captured) <= 20


def test_of_many_uncertain_runs_below_the_first_are_linked_and_the_rest_counted(
    root: Client, start: Start
) -> None:
    parent, below = family_of(start, size=MOST_UNCERTAIN + 2)
    make_uncertain(*below)
    page = opened(root, address_of(parent))
    said = verdict_in(page)
    assert f"Uncertain: in {len(below)} runs below this one" in said
    assert "and 2 more" in said
    assert said.count("Waiting for resolution") == MOST_UNCERTAIN
    assert "not shown" not in part(page, "family")


# -- Workers and dates ---------------------------------------------------------------------


def test_nobody_is_told_to_wait_while_no_worker_is_alive(root: Client, start: Start) -> None:
    run = uncertain_run(start)
    said = verdict_in(opened(root, address_of(run)))
    assert f"What to do No worker is alive: start one that serves {run.agent}." in said
    assert "The provider is to be asked at 20" in said
    let_pass(minutes=2)
    said = verdict_in(opened(root, address_of(run)))
    assert re.search(r"The provider was to be asked at 20\S+ \S+ UTC \(.+ ago\)", said)
    assert "The provider is asked next overdue:" in said
    assert "Nothing yet" not in said


def test_a_living_worker_lets_one_wait(root: Client, start: Start) -> None:
    run = uncertain_run(start)
    serve("worker 1")
    said = verdict_in(opened(root, address_of(run)))
    assert "What to do Nothing yet: the provider is asked again in" in said
    ToolOperation.objects.filter(run=run).update(next_reconcile_at=Now())
    said = verdict_in(opened(root, address_of(run)))
    assert "What to do Nothing yet: the provider is asked again now." in said
    assert "The provider is asked next now" in said


def test_a_look_up_that_is_overdue_is_said_to_be_although_a_worker_lives(
    root: Client, start: Start
) -> None:
    run = uncertain_run(start)
    serve("worker 1")
    let_pass(minutes=10)
    serve("worker 2")
    said = verdict_in(opened(root, address_of(run)))
    assert "What to do The provider was to be asked at" in said
    assert f"is a worker running that serves {run.agent}?" in said
    assert "The provider is asked next overdue:" in said


def test_a_run_that_nobody_takes_asks_for_a_worker(root: Client, start: Start) -> None:
    run = start(decider=lambda context: None)
    said = verdict_in(opened(root, address_of(run)))
    assert f"No worker is alive: start one that serves {run.agent}" in said
    serve("worker 1")
    assert "Nothing: a worker takes it up now" in verdict_in(opened(root, address_of(run)))
    let_pass(minutes=3)
    serve("worker 2")
    said = verdict_in(opened(root, address_of(run)))
    assert "The run was to be taken up at" in said
    assert "(3 min ago) : is a worker running that serves" in said


def test_times_stand_as_times_behind_until_and_since_and_states_as_words(
    root: Client, start: Start
) -> None:
    serve("worker 1")
    sleeps = start(decider=lambda context: Sleep(timedelta(hours=4)))
    waits = start(decider=lambda context: WaitFor("paid", timeout=timedelta(hours=1)))
    drive(sleeps)
    drive(waits)
    ended = start(decider=lambda context: None)
    cancel_run(actor=ANN, run_id=ended.pk)
    drive(ended)
    call = uncertain_run(start)
    for row, words in (
        (sleeps, r"Nothing: it sleeps until TIME, and then goes on by itself\."),
        (waits, r"it waits for a signal, until TIME at the latest\."),
        (ended, r"Nothing: it was cancelled at TIME\."),
        (call, r"May still be in flight yes, until TIME"),
    ):
        said = verdict_in(opened(root, address_of(row)))
        pattern = words.replace("TIME", r"20\d\d-\S+ \S+ UTC \([^)]+\)\s?")
        assert re.search(pattern, said), said
        assert not re.search(r"(until|since) (in )?\d+ (s|min|h|d)\b", said), said


def test_a_settled_call_says_in_words_what_became_of_it(root: Client, start: Start) -> None:
    operation = operation_of(reconciled_run(start))
    said = verdict_in(opened(root, address_of(operation)))
    assert "Nothing: it was committed at 20" in said
    assert "COMMITTED" not in said


# -- Rights --------------------------------------------------------------------------------


def test_a_button_is_there_for_those_alone_whom_its_page_lets_in(start: Start) -> None:
    unsigned, _ = held(start)
    question = asks_people(start)
    question.run.waits.create(
        step=question.step, step_number=question.step_number, kind="question", name=question.text
    )
    rows = {
        unsigned: ("view_approval", "decide_approval"),
        question.run: ("view_question", "answer_question"),
    }
    for row, rights in rows.items():
        page = opened(browser_of(person(*READS)), address_of(row))
        assert 'id="action-' not in page
        for right in rights:
            client = browser_of(person(*READS, right))
            page = opened(client, address_of(row))
            (found,) = re.findall(r'id="action-1" href="([^"]+)">([^<]+)<', page)
            assert client.get(found[0]).status_code == 200
            assert found[1].startswith("Look at") == right.startswith("view_")


def test_workers_are_linked_for_those_alone_who_may_see_them(start: Start) -> None:
    run = start(decider=lambda context: None)
    workers = reverse("admin:runs_worker_changelist")

    def links_there(*rights: str) -> bool:
        page = opened(browser_of(person(*READS, *rights)), address_of(run))
        return (
            f'href="{workers}">Workers</a>' in page.split('id="story"')[0].split('id="verdict"')[1]
        )

    assert not links_there()
    assert links_there("view_worker")


def test_what_only_a_person_can_settle_asks_for_nobody_else(root: Client, start: Start) -> None:
    said = verdict_in(opened(root, address_of(parked_run(start))))
    assert "What to do Look at the provider whether it happened" in said
    assert "No worker" not in said

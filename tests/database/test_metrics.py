"""`/metrics`: gauges are what the rows say now, whichever web process is asked."""

import shutil
import subprocess
from collections.abc import Callable
from datetime import timedelta
from math import inf
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from runs import Ask, Finish, ToolCall, WaitFor, sweeps
from runs.access import operator
from runs.commands import pause_run, start_run
from runs.lease import claim
from runs.models import AgentRun, Sweep
from runs.worker_ends import EndedBy, end
from tests.database.deploying import serve
from tests.database.kit import (
    LOST,
    call_once,
    change,
    drive,
    expire_lease,
    past_triggers,
    scripted_tool,
)
from tests.database.many import add_runs
from tests.database.scraping import scrape
from tools import Approve
from tools.registry import isolated_registry

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., AgentRun]


def _lost(start: Start, **declared: Any) -> AgentRun:
    """A run whose call brought no answer."""
    scripted_tool(*[LOST] * 9, **declared)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    return run


def _count_queries() -> int:
    with CaptureQueriesContext(connection) as queries:
        scrape()
    return len(queries)


def _age(table: str, column: str, **by: float) -> None:
    with past_triggers():
        change(
            f"UPDATE {table} SET {column} = now() - make_interval(secs => %s)",
            timedelta(**by).total_seconds(),
        )


# -- Runs ----------------------------------------------------------------------


def test_a_run_with_an_effect_that_may_have_happened_is_uncertain(start: Start) -> None:
    assert scrape()("runs_uncertain") == 0
    _lost(start)
    assert scrape()("runs_uncertain") == 1


def test_runs_that_have_not_ended_are_counted_by_agent(start: Start) -> None:
    first = start(decider=lambda context: Finish(1))
    start_run(actor=operator(), agent=first.agent)
    assert scrape()("runs_active", agent=first.agent) == 2
    drive(first)
    assert scrape()("runs_active", agent=first.agent) == 1
    # A series does not end, and begins before there is anything to count.
    assert scrape()("runs_active", agent="external") == 0


def test_a_run_that_no_worker_goes_on_with_is_unserved(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    assert scrape()("runs_unserved", agent=run.agent) == 1
    serve("w1")
    assert scrape()("runs_unserved", agent=run.agent) == 0


def test_a_run_that_nobody_is_due_to_look_at_is_stuck(start: Start) -> None:
    assert sum(one.value for one in scrape().families["agentops_runs_stuck"].samples) == 0
    run = start(decider=lambda context: WaitFor("go"))
    drive(run)
    change("DELETE FROM runs_wait")
    assert scrape()("runs_stuck", why="no_wait") == 1


def test_due_runs_are_counted_with_how_long_the_first_has_been_due(start: Start) -> None:
    assert (scrape()("runs_due"), scrape()("runs_due_oldest_seconds")) == (0, 0)
    run = start(decider=lambda context: Finish(1))
    add_runs(3, agent=run.agent, due_in=-60)
    add_runs(3, agent=run.agent, due_in=60)
    scraped = scrape()
    assert scraped("runs_due") == 4
    assert 60 <= scraped("runs_due_oldest_seconds") < 120


def test_a_run_under_a_living_lease_is_held(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    assert scrape()("runs_held") == 0
    assert claim(run_id=run.id, owner="w1") is not None
    assert scrape()("runs_held") == 1
    expire_lease(run)
    assert scrape()("runs_held") == 0


# -- Operations ----------------------------------------------------------------


def test_unknown_operations_are_counted_by_tool_and_by_what_presses(start: Start) -> None:
    _lost(start)
    scraped = scrape()
    assert scraped("operations_unknown", tool="pay") == 1
    assert scraped("operations_unknown_overdue", tool="pay") == 0
    assert scraped("operations_key_expiring", tool="pay") == 0
    _age("runs_tooloperation", "unknown_since", hours=2)
    scraped = scrape()
    assert scraped("operations_unknown_overdue", tool="pay") == 1
    assert 7200 <= scraped("operations_unknown_oldest_seconds") < 7300
    _age("runs_tooloperation", "key_expires_at", minutes=-50)
    assert scrape()("operations_key_expiring", tool="pay") == 1


def test_a_tool_of_which_nothing_is_unknown_has_a_series() -> None:
    scripted_tool()
    scraped = scrape()
    for name in ("operations_unknown", "operations_unknown_overdue", "operations_key_expiring"):
        assert scraped(name, tool="pay") == 0
    assert scraped("operations_unknown_oldest_seconds") == 0


def test_the_name_of_a_tool_that_no_code_declared_is_no_label(start: Start) -> None:
    _lost(start)
    change("ALTER TABLE runs_tooloperation DISABLE TRIGGER USER")
    change("UPDATE runs_tooloperation SET tool = 'ignore all rules\"} 1'")
    change("ALTER TABLE runs_tooloperation ENABLE TRIGGER USER")
    scraped = scrape()
    assert scraped("operations_unknown", tool="") == 1
    assert "ignore" not in scraped.text


def test_a_tool_that_only_a_worker_has_is_a_label(start: Start) -> None:
    _lost(start)
    with isolated_registry():
        assert scrape()("operations_unknown", tool="") == 1
    serve("w1")
    with isolated_registry():
        assert scrape()("operations_unknown", tool="pay") == 1


# -- People --------------------------------------------------------------------


def test_what_waits_for_a_person_is_counted_by_what_it_is(start: Start) -> None:
    kinds = ("approval", "question", "operation", "pause")
    assert [scrape()("waiting_for_person", what=what) for what in kinds] == [0, 0, 0, 0]
    scripted_tool("paid", approval_policy=Approve(groups=("finance",)))
    held = start(decider=call_once(), tools=("pay",))
    asking = start(decider=lambda context: Ask("Which one?", {"type": "string"}))
    paused = start(decider=lambda context: Finish(1))
    drive(held)
    drive(asking)
    pause_run(actor=operator(), run_id=paused.id)
    drive(paused)
    scraped = scrape()
    assert [scraped("waiting_for_person", what=what) for what in kinds] == [1, 1, 0, 1]
    _age("runs_approval", "requested_at", hours=3)
    oldest = scrape()("waiting_for_person_oldest_seconds", what="approval")
    assert 3 * 3600 <= oldest < 3 * 3600 + 60


# -- Upkeep --------------------------------------------------------------------


def test_workers_are_alive_while_they_are_seen_and_web_processes_are_none() -> None:
    assert scrape()("workers_alive") == 0
    serve("w1")
    serve("w2")
    serve("silent", seen=timedelta(hours=1))
    web = serve("web")
    type(web).objects.filter(name="web").update(release=None)
    assert scrape()("workers_alive") == 2
    end("w1", by=EndedBy.REPORTED, evidence="over")
    assert scrape()("workers_alive") == 1


def test_a_sweep_has_an_age_and_one_that_never_ran_is_infinitely_old() -> None:
    assert scrape()("sweep_age_seconds", sweep="due runs") == inf
    sweeps.run_once()
    assert scrape()("sweep_age_seconds", sweep="due runs") < 60
    _age("runs_sweep", "last_run_at", minutes=5)
    assert scrape()("sweep_age_seconds", sweep="due runs") >= 300


def test_each_sweep_that_is_asked_for_has_an_age_also_if_it_never_ran() -> None:
    scripted_tool(name="listed", audit_handler=lambda audit: [])
    Sweep.objects.create(name="audit gone")
    always = {"due runs", "approvals", "schedules", "notifications", "rollups", "unsigned effects"}
    assert scrape().labels("sweep") == always | {"audit listed"}


# -- The scrape ----------------------------------------------------------------


def test_a_scrape_costs_the_same_number_of_queries_however_much_there_is(start: Start) -> None:
    _lost(start)
    serve("w1")
    few = _count_queries()
    for number in range(5):
        name = f"tool{number}"
        scripted_tool(LOST, name=name)
        run = start(decider=call_once(ToolCall(name)), tools=(name,))
        drive(run)
        start_run(actor=operator(), agent=run.agent)
    serve("w2")
    assert _count_queries() == few == 16


def test_what_no_worker_goes_on_with_costs_two_queries_more(start: Start) -> None:
    few = _count_queries()
    for _ in range(3):
        start(decider=lambda context: Finish(1))
    _lost(start)
    assert few <= _count_queries() <= few + 2


def test_where_the_database_does_not_answer_nothing_old_is_shown() -> None:
    scrape()
    change("ALTER TABLE runs_sweep RENAME TO gone")
    try:
        answer = Client().get("/metrics")
    finally:
        change("ALTER TABLE gone RENAME TO runs_sweep")
    assert answer.status_code == 503
    assert answer.content.startswith(b"# no answer from the database (")
    assert b"agentops_" not in answer.content


def test_promtool_finds_nothing_to_object_to(start: Start) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    _lost(start)
    text = Client().get("/metrics").content
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True)
    assert checked.returncode == 0, checked.stderr.decode()


def test_who_asks_for_openmetrics_gets_it() -> None:
    answer = Client().get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert answer["Content-Type"].startswith("application/openmetrics-text")
    names = {one.name for one in text_string_to_metric_families(answer.content.decode())}
    assert names == set(scrape().families)


@pytest.mark.parametrize("version", ["x", "", "9" * 99, "1.0.0\u00e9"])
def test_a_version_that_is_none_is_answered_as_plain_text(version: str) -> None:
    accept = f"application/openmetrics-text; version={version}"
    answer = Client().get("/metrics", headers={"Accept": accept})
    assert answer.status_code == 200
    assert b"agentops_runs_uncertain 0.0" in answer.content


def test_every_name_has_the_prefix_a_base_unit_and_a_word_of_help(start: Start) -> None:
    _lost(start)
    for name, family in scrape().families.items():
        assert name.startswith("agentops_")
        assert family.documentation.endswith(".")
        assert not name.endswith(("_minutes", "_hours", "_days", "_ms", "_percent"))


def test_no_id_or_key_is_in_any_figure(start: Start) -> None:
    run = _lost(start)
    operation = run.operations.get()
    text = scrape().text
    for secret in (str(run.id), operation.id, operation.idempotency_key, "acct_1", "w1"):
        assert secret not in text

"""What a deployment serves, and the runs that none serves."""

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agentops.health import check_parts
from agentops.management.commands import doctor
from runs import Delegate, Fail, Finish, Llm, Script, Sleep, ToolCall, unserved, workers
from runs.agents import Agent, forget_agents, get_agent
from runs.models import AgentRun, Definition, Release, Worker
from runs.unserved import Unserved, find_unserved
from runs.versions import (
    ALIVE_LEASES,
    identify_release,
    is_arguments_version_served,
    is_served_now,
    live_releases,
    register_release,
)
from tests.database.deploying import NAME, deploy, serve, start, stop
from tests.database.gating import tamper
from tests.database.kit import change, drive, let_pass, scripted_tool
from tests.database.many import add_runs, add_watched
from tests.database.measuring import measured
from tools import Approve, NotSent
from tools.registry import get_tool, isolated_registry

# Not only the kernel's own tables: pages are asked for.
pytestmark = pytest.mark.django_db(transaction=True)

NAP = Sleep(for_=timedelta(days=1))


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> str:
    """This process, as if it had just started: the name that it works under."""
    monkeypatch.setattr(workers, "_me", workers._Me())
    return workers._me.name


# -- Registration -------------------------------------------------------------------------------


def test_a_worker_says_what_it_serves_before_its_first_claim(fresh: str) -> None:
    scripted_tool()
    agent = deploy(Script(Finish(1)), rule="reapprove")
    with workers.at_work() as owner:
        row = Worker.objects.get(name=owner)
    assert row.release is not None
    assert row.release_id == identify_release()
    assert row.release.agents[NAME] == {"version": agent.version, "rule": "reapprove"}
    spec = get_tool("pay")
    assert row.release.tools["pay"] == {
        "version": spec.version,
        "arguments": spec.arguments_version,
    }


def test_what_a_version_is_stays_on_record() -> None:
    scripted_tool()
    agent = deploy(Llm("openai:gpt-5-mini", instructions="Refund wisely."))
    register_release()
    kept = Definition.objects.get(kind="agent", name=NAME, version=agent.version)
    assert kept.body == agent.content
    assert "Refund wisely." in Definition.objects.get(kind="prompt", name=NAME).body["text"]
    tool = Definition.objects.get(kind="tool", name="pay", version=get_tool("pay").version)
    assert "amount" in tool.body["arguments"]["properties"]


def test_registering_again_changes_nothing() -> None:
    deploy(Script(Finish(1)), tools=())
    first = register_release()
    at = Definition.objects.get(kind="agent", name=NAME).first_seen_at
    assert register_release() == first
    assert Definition.objects.get(kind="agent", name=NAME).first_seen_at == at
    assert Release.objects.count() == 1


def test_workers_that_start_together_register_one_release() -> None:
    deploy(Script(Finish(1)), tools=())
    barrier = threading.Barrier(4)
    registered = []

    def register() -> None:
        barrier.wait()
        try:
            registered.append(register_release())
        finally:
            connection.close()

    threads = [threading.Thread(target=register) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(registered) == 4
    assert list(Release.objects.values_list("id", flat=True)) == [registered[0]]


def test_other_content_or_another_rule_is_another_release() -> None:
    ids = set()
    for decider, rule in (("a", "next_step"), ("b", "next_step"), ("b", "reapprove")):
        deploy(Script(Finish(decider)), rule=rule, tools=())
        ids.add(identify_release())
    assert len(ids) == 3


# -- Who is alive -------------------------------------------------------------------------------


def test_a_release_is_served_while_one_of_its_workers_is_alive() -> None:
    deploy(Script(Finish(1)), tools=())
    serve("one")
    serve("two")
    stop("one")
    assert is_served_now(identify_release())
    assert len(live_releases()) == 1
    let_pass(seconds=ALIVE_LEASES * 30 + 1)
    assert not is_served_now(identify_release())
    assert live_releases() == []


def test_which_form_of_a_tools_arguments_is_served() -> None:
    scripted_tool()
    deploy(Script(Finish(1)))
    version = get_tool("pay").arguments_version
    assert not is_arguments_version_served("pay", version)
    serve("one")
    assert is_arguments_version_served("pay", version)
    assert not is_arguments_version_served("pay", "another")
    assert not is_arguments_version_served("ship", version)


# -- Runs that nobody serves --------------------------------------------------------------------


def _asleep(*, rule: str) -> AgentRun:
    deploy(Script(NAP, Finish("old")), rule=rule, tools=())
    run = start()
    drive(run)
    assert run.state == "WAITING"
    return run


@pytest.mark.parametrize("rule", ["next_step", "rebuild_context", "reapprove", "finish_on_old"])
def test_a_run_of_another_version_is_served_by_who_may_adopt_it(rule: str) -> None:
    run = _asleep(rule=rule)
    deploy(Script(NAP, Finish("new")), rule=rule, tools=())
    serve("new")
    nobodys = [Unserved(NAME, run.agent_version, 1)]
    assert find_unserved() == (nobodys if rule == "finish_on_old" else [])


def test_a_run_is_unserved_from_its_workers_end_to_the_start_of_the_next_one() -> None:
    run = _asleep(rule="finish_on_old")
    serve("old")
    assert find_unserved() == []
    stop("old")
    assert find_unserved() == [Unserved(NAME, run.agent_version, 1)]
    serve("old again")
    assert find_unserved() == []


def test_a_run_whose_agent_no_worker_knows_is_unserved() -> None:
    run = _asleep(rule="next_step")
    Agent(name="other", decider=Script(Finish(1)))
    forget_agents([NAME])
    serve("new")
    assert find_unserved() == [Unserved(NAME, run.agent_version, 1)]


@pytest.mark.parametrize("waits", ["to be sent", "for a signature", "to be asked about"])
def test_a_run_whose_open_call_has_no_tool_at_any_worker_is_unserved(waits: str) -> None:
    declared = {"approval_policy": Approve()} if waits == "for a signature" else {}
    answer = ConnectionResetError("lost") if waits == "to be asked about" else NotSent("busy")
    scripted_tool(answer, **declared)
    Agent(name=NAME, decider=Script(ToolCall("pay", amount=1)), tools=("pay",))
    serve("old")
    run = start()
    drive(run)
    assert find_unserved() == []
    with isolated_registry():
        deploy(Script(Finish("new")), tools=())
        serve("new")
        assert find_unserved() == []
        stop("old")
        assert find_unserved() == [Unserved(NAME, run.agent_version, 1, "pay")]
        assert f"1 of {NAME} {run.agent_version} for a worker with the tool pay" in (
            doctor._versions().detail
        )
        assert "1 active run is served by no worker" in check_parts()["versions"].detail
        stop("new")
        assert find_unserved() == [Unserved(NAME, run.agent_version, 1)]


def test_children_that_are_to_be_started_need_no_tool() -> None:
    deploy(Script(Delegate("child"), Finish(1)), tools=())
    Agent(name="child", decider=Script(NAP))
    serve("all")
    run = start()
    drive(run)
    tamper("UPDATE runs_tooloperation SET status = 'PREPARED' WHERE run_id = %s", run.id)
    assert find_unserved() == []


@pytest.mark.parametrize("column", ["cancel_requested_at", "compensating_since"])
def test_what_is_cancelled_or_corrected_needs_no_worker_of_its_version(column: str) -> None:
    run = _asleep(rule="finish_on_old")
    assert len(find_unserved()) == 1
    ending = ", compensation_ending = 'CANCELLED'" if column == "compensating_since" else ""
    change(f"UPDATE runs_agentrun SET {column} = now(){ending} WHERE id = %s", run.id)
    assert find_unserved() == []


def test_finished_runs_are_nobodys_business() -> None:
    deploy(Script(Fail("no")), tools=())
    drive(start())
    assert find_unserved() == []


def test_looking_for_unserved_runs_asks_no_more_however_many_there_are() -> None:
    run = _asleep(rule="finish_on_old")
    with CaptureQueriesContext(connection) as few:
        find_unserved()
    add_runs(50, agent=NAME, due_in=60)
    with CaptureQueriesContext(connection) as many:
        found = find_unserved()
    assert found == [Unserved(NAME, "1", 50), Unserved(NAME, run.agent_version, 1)]
    assert len(many) == len(few)


def test_the_tools_of_calls_that_wait_are_found_without_reading_what_is_settled() -> None:
    add_watched(10_000)
    change("ANALYZE runs_tooloperation")
    with measured() as meter:
        assert unserved.find_tools() == set()
        assert unserved._count_tools({"pay"}, but=[]) == []
    assert "runs_tooloperation" not in meter.whole_tables
    assert meter.pages < 100


def test_doctor_names_the_versions_that_nobody_serves() -> None:
    run = _asleep(rule="finish_on_old")
    finding = doctor._versions()
    assert finding.level == "warning"
    assert f"1 of {NAME} {run.agent_version}" in finding.detail
    assert "on_version_change" in finding.fix
    serve("old")
    assert doctor._versions().level == "ok"


def test_an_unserved_run_shows_where_readiness_is_asked_for_and_does_not_end_it() -> None:
    _asleep(rule="finish_on_old")
    part = check_parts()["versions"]
    assert part.ok
    assert "1 active run is served by no worker" in part.detail
    assert NAME not in part.detail
    serve("old")
    assert "every active run" in check_parts()["versions"].detail


def test_the_metrics_count_uncertain_and_unserved_runs() -> None:
    _asleep(rule="finish_on_old")
    scripted_tool(ConnectionResetError("lost"))
    Agent(name="payer", decider=Script(ToolCall("pay", amount=1)), tools=("pay",))
    serve("payers")
    drive(start("payer"))
    answer = Client().get("/metrics")
    assert answer.status_code == 200
    lines = answer.content.decode().splitlines()
    assert "agentops_runs_uncertain 1.0" in lines
    assert f'agentops_runs_unserved{{agent="{NAME}"}} 0.0' in lines
    stop("payers")
    lines = Client().get("/metrics").content.decode().splitlines()
    assert f'agentops_runs_unserved{{agent="{NAME}"}} 1.0' in lines
    assert 'agentops_runs_unserved{agent="payer"} 1.0' in lines
    assert get_agent(NAME).version not in answer.content.decode()

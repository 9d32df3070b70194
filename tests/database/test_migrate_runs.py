"""`migrate_runs`: what a deployment would do to every active run, before it does."""

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any

import celery
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import Finish, Script, Sleep, ToolCall, migration_plan, pinning
from runs.access import operator
from runs.agents import forget_agents
from runs.control import cancel_run
from runs.migration_plan import Move, plan_runs
from runs.models import AgentRun, Transition
from tests.database.deploying import NAME, deploy, serve, start
from tests.database.gating import request_of, sign
from tests.database.kit import PLAIN, ask, change, drive, scripted_tool
from tests.database.many import add_runs
from tools import Approve, Call, EffectType, tool
from tools.registry import isolated_registry

pytestmark = pytest.mark.django_db(transaction=True)

NAP = Sleep(for_=timedelta(days=1))
PAY = ToolCall("pay", amount=700)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    yield
    pinning.forget_others()
    celery.current_app.control.purge()


def _asleep(*, rule: str = "next_step", name: str = NAME) -> AgentRun:
    deploy(Script(NAP, Finish("old")), rule=rule, tools=(), name=name)
    run = start(name)
    drive(run)
    return run


def _held(*, rule: str = "reapprove") -> AgentRun:
    scripted_tool("paid", approval_policy=Approve())
    deploy(Script(PAY, Finish("old")), rule=rule)
    run = start()
    drive(run)
    assert run.state == "WAITING_FOR_APPROVAL"
    return run


def _plan(run: AgentRun) -> migration_plan.Planned:
    [found] = [one for chunk in plan_runs() for one in chunk if one.run == str(run.id)]
    return found


def _command(*arguments: str, stranded: bool = False) -> dict[str, Any]:
    out = StringIO()
    if stranded:
        with pytest.raises(SystemExit) as ended:
            call_command("migrate_runs", "--json", *arguments, stdout=out)
        assert ended.value.code == 1
    else:
        call_command("migrate_runs", "--json", *arguments, stdout=out)
    shown: dict[str, Any] = json.loads(out.getvalue())
    return shown


# -- What becomes of a run ----------------------------------------------------------------------


def test_a_run_of_the_same_version_goes_on() -> None:
    assert _plan(_asleep()).move is Move.GOES_ON


@pytest.mark.parametrize(
    ("rule", "move"),
    [
        ("next_step", Move.ADOPTED),
        ("rebuild_context", Move.CONTEXT_REBUILT),
        ("reapprove", Move.ADOPTED),
    ],
)
def test_a_run_of_another_version_moves_by_the_rule_of_the_new_code(rule: str, move: Move) -> None:
    run = _asleep(rule="finish_on_old")
    new = deploy(Script(NAP, Finish("new")), rule=rule, tools=())
    plan = _plan(run)
    assert (plan.move, plan.pinned, plan.serves) == (move, run.agent_version, new.version)


@pytest.mark.parametrize("is_signed", [False, True])
def test_signatures_that_would_be_asked_for_anew_are_counted(is_signed: bool) -> None:
    run = _held()
    if is_signed:
        sign(run)
    deploy(Script(PAY, Finish("new")), rule="reapprove")
    assert (_plan(run).move, _plan(run).signatures) == (Move.SIGNED_ANEW, 1)
    deploy(Script(PAY, Finish("new")), rule="next_step")
    assert (_plan(run).move, _plan(run).signatures) == (Move.ADOPTED, 0)


def test_a_run_that_finishes_on_old_workers_stays_while_there_are_some() -> None:
    run = _asleep(rule="finish_on_old")
    serve("old")
    deploy(Script(NAP, Finish("new")), rule="finish_on_old", tools=())
    assert _plan(run).move is Move.STAYS
    change("UPDATE runs_worker SET last_seen_at = now() - interval '1 day'")
    assert _plan(run).move is Move.STRANDED
    assert "none is alive" in _plan(run).why


def test_a_run_whose_agent_is_gone_is_stranded() -> None:
    run = _asleep()
    forget_agents([NAME])
    assert _plan(run).move is Move.STRANDED
    assert "no such agent" in _plan(run).why


def test_a_run_whose_open_call_has_no_tool_any_more_is_stranded() -> None:
    run = _held()
    deploy(Script(Finish("new")), tools=())
    with isolated_registry():
        plan = _plan(run)
    assert plan.move is Move.STRANDED
    assert "pay" in plan.why


@pytest.mark.parametrize("is_declared", [False, True])
def test_stored_arguments_that_the_new_tool_does_not_take_are_counted(is_declared: bool) -> None:
    run = _held(rule="next_step")

    def act(call: Call, cents: int) -> None:
        """Pay, in cents."""

    def migrate(arguments: dict[str, Any], version: str) -> dict[str, Any]:
        return {"cents": arguments["amount"] * 100}

    with isolated_registry():
        tool(
            name="pay",
            effect_type=EffectType.NON_IDEMPOTENT_WRITE,
            provider=PLAIN,
            migrate_arguments=migrate if is_declared else None,
        )(act)
        plan = _plan(run)
    counted = (plan.arguments_migrated, plan.arguments_to_person)
    assert counted == ((1, 0) if is_declared else (0, 1))


def test_finished_runs_are_not_in_the_plan() -> None:
    run = _asleep()
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    assert list(plan_runs()) == []


def test_the_plan_asks_by_chunks_and_not_by_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration_plan, "CHUNK", 50)
    deploy(Script(NAP), tools=())
    asked = []
    for _ in range(2):
        add_runs(50, agent=NAME, due_in=60)
        with CaptureQueriesContext(connection) as queries:
            chunks = list(plan_runs())
        asked.append((len(chunks), len(queries)))
    (one, few), (two, more) = asked
    assert (one, two) == (1, 2)
    assert more - few <= 3


# -- The command --------------------------------------------------------------------------------


def test_the_command_groups_runs_and_names_each() -> None:
    runs = [_asleep(), start()]
    drive(runs[1])
    deploy(Script(NAP, Finish("new")), tools=())
    shown = _command()
    [group] = shown["groups"]
    assert (group["runs"], group["move"], shown["stranded"]) == (2, "adopted", 0)
    assert {one["run"] for one in shown["runs"]} == {str(run.id) for run in runs}


def test_it_writes_nothing() -> None:
    _held()
    deploy(Script(PAY, Finish("new")), rule="reapprove")
    before = (
        ask("SELECT count(*) FROM runs_transition"),
        ask("SELECT max(xmin::text) FROM runs_agentrun"),
    )
    _command()
    after = (
        ask("SELECT count(*) FROM runs_transition"),
        ask("SELECT max(xmin::text) FROM runs_agentrun"),
    )
    assert before == after


def test_it_exits_with_one_where_a_run_would_be_stranded() -> None:
    _asleep(name="kept")
    _asleep()
    forget_agents([NAME])
    assert _command(stranded=True)["stranded"] == 1
    assert _command("--agent", "kept")["stranded"] == 0


def test_people_are_shown_a_table() -> None:
    _held()
    deploy(Script(PAY, Finish("new")), rule="reapprove")
    out = StringIO()
    call_command("migrate_runs", stdout=out)
    assert "signed anew, and takes its next decision (signatures: 1)" in out.getvalue()
    assert "None of 1 active runs would be stranded." in out.getvalue()


def test_apply_has_those_looked_at_that_the_new_code_moves_at_once() -> None:
    run = _held()
    sleeper = _asleep(name="sleeper")
    deploy(Script(PAY, Finish("new")), rule="reapprove")
    deploy(Script(NAP, Finish("new")), name="sleeper", tools=())
    with pytest.raises(CommandError, match="no living worker serves this code"):
        _command("--apply")
    serve("new")
    assert _command("--apply")["made_due"] == 1
    asked = request_of(run)
    drive(run)
    drive(sleeper)
    assert (sleeper.state, request_of(run).supersedes_id) == ("WAITING", asked.id)
    assert Transition.objects.filter(event="MIGRATE").count() == 1

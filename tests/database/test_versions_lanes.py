"""Runs that workers of one version alone touch: claims, turns, hints and sweeps."""

from collections.abc import Iterator

import celery
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import Finish, Script, pinning, sweeps, turns, wake
from runs.access import operator
from runs.agents import EXTERNAL, get_agent
from runs.control import cancel_run
from runs.lease import claim
from runs.models import AgentRun
from runs.turns import choose, take_turn
from tests.database.deploying import NAME, deploy, serve, start, stop
from tests.database.kit import ON_DATABASE, ask, change
from tests.database.many import add_runs

pytestmark = ON_DATABASE

OLD, NEW = Script(Finish("old")), Script(Finish("new"))


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    pinning.forget_others()
    celery.current_app.control.purge()
    for decider in (OLD, NEW):
        _read(deploy(decider, tools=()).version)
    yield
    pinning.forget_others()
    celery.current_app.control.purge()


def _due_under_old(*, rule: str = "finish_on_old") -> AgentRun:
    """A run of the old version that waits for long; this process has the new one from then on."""
    deploy(OLD, rule=rule, tools=())
    run = start()
    change("UPDATE runs_agentrun SET wake_at = now() - interval '1 h' WHERE id = %s", run.id)
    deploy(NEW, rule=rule, tools=())
    return run


def _read(version: str | None) -> list[str]:
    """The runs that the hints in a queue name: a version's, or the common one. It is empty then."""
    found = []
    with celery.current_app.connection_for_read() as broker:
        queue = pinning.lane(version) if version else celery.current_app.amqp.queues["celery"]
        bound = queue.bind(broker.default_channel)
        bound.declare()
        while (message := bound.get(no_ack=True)) is not None:
            [argument], *_ = message.payload
            found.append(argument)
    return found


# -- Claims and turns ---------------------------------------------------------------------------


def test_a_due_run_of_another_version_is_nobodys_turn_here() -> None:
    run = _due_under_old()
    mine = start()
    assert [one.run_id for one in choose(run.id)] == [mine.id]
    assert claim(run_id=run.id, owner="new") is None


def test_a_run_is_behind_none_of_those_that_are_left_to_others() -> None:
    run = _due_under_old()
    add_runs(50, agent=NAME, due_in=-7200)
    mine = start()
    assert [one.run_id for one in choose(run.id)] == [mine.id]


def test_what_is_cancelled_or_corrected_is_everybodys() -> None:
    run = _due_under_old()
    change(
        "UPDATE runs_agentrun SET compensating_since = now(), compensation_ending = 'CANCELLED'"
        " WHERE id = %s",
        run.id,
    )
    assert claim(run_id=run.id, owner="new") is not None


def test_choosing_costs_no_query_more_where_no_version_is_left_to_others() -> None:
    counts = []
    for rule in ("next_step", "reapprove"):
        deploy(NEW, rule=rule, tools=())
        run = start()
        with CaptureQueriesContext(connection) as asked:
            turns.give_hint_back(run.id)
            wake.hint(run.id)
            pinning.see_lanes()
        counts.append(len(asked))
    assert counts == [0, 0]


def test_the_hint_of_a_run_that_is_left_to_others_goes_back_to_the_sweep() -> None:
    run = _due_under_old()
    change("UPDATE runs_agentrun SET sweep_at = now() + interval '10 s'")
    take_turn(hinted=run.id, owner="new")
    assert ask("SELECT sweep_at <= now() FROM runs_agentrun")


# -- Hints --------------------------------------------------------------------------------------


def test_a_run_that_finishes_on_old_is_hinted_at_to_its_own_version_alone() -> None:
    run = _due_under_old()
    started = _read(run.agent_version)
    assert wake.hint(run.id)
    assert (_read(None), started, _read(run.agent_version)) == ([], [str(run.id)], [str(run.id)])


@pytest.mark.parametrize("rule", ["next_step", "rebuild_context", "reapprove"])
def test_any_other_run_is_hinted_at_to_all(rule: str) -> None:
    run = _due_under_old(rule=rule)
    _read(None)
    wake.hint(run.id)
    assert (_read(None), _read(run.agent_version)) == ([str(run.id)], [])


def test_a_cancelled_run_is_hinted_at_to_all() -> None:
    run = _due_under_old()
    _read(run.agent_version)
    cancel_run(actor=operator(), run_id=run.id)
    assert _read(run.agent_version) == []


def test_a_worker_reads_the_lanes_of_the_versions_it_serves_whatever_their_rule() -> None:
    served = [
        deploy(OLD, rule="finish_on_old", tools=()),
        deploy(NEW, name="other", tools=()),
        get_agent(EXTERNAL),
    ]
    lanes = {lane.name for lane in pinning.own_lanes()}
    assert lanes == {f"version-{agent.version}" for agent in served}


# -- Sweeps -------------------------------------------------------------------------------------


def test_a_sweep_tells_the_old_workers_while_there_are_some() -> None:
    deploy(OLD, rule="finish_on_old", tools=())
    serve("old")
    run = _due_under_old()
    _read(None), _read(run.agent_version)
    change("UPDATE runs_agentrun SET sweep_at = now()")
    assert sweeps.run_once() == sweeps.Swept(found=1, hinted=1)
    assert (_read(None), _read(run.agent_version)) == ([], [str(run.id)])
    stop("old")
    change("UPDATE runs_agentrun SET sweep_at = now()")
    assert sweeps.run_once() == sweeps.Swept(found=0, hinted=0)


def test_a_sweep_of_a_version_that_made_the_rule_tells_the_workers_from_before_it() -> None:
    deploy(OLD, rule="next_step", tools=())
    serve("old")
    run = start()
    deploy(NEW, rule="finish_on_old", tools=())
    serve("new")
    pinning.look_around()
    _read(None), _read(run.agent_version)
    change("UPDATE runs_agentrun SET sweep_at = now()")
    assert sweeps.run_once() == sweeps.Swept(found=1, hinted=1)
    assert (_read(None), _read(run.agent_version)) == ([], [str(run.id)])


def test_runs_that_nobody_serves_do_not_stand_before_others_in_a_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeps, "PER_AGENT", 5)
    _due_under_old()
    add_runs(20, agent=NAME, due_in=-7200)
    serve("new")
    mine = start()
    _read(mine.agent_version)
    assert sweeps.run_once().hinted == 1
    assert _read(mine.agent_version) == [str(mine.id)]

"""Which effects the evidence names; and a run that has ended is woken by none of it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError

from runs.late import find_further_effects, name_effects
from runs.models import AgentRun, ToolObservation
from runs.state import RunState
from runs.wake import make_due
from tests.database.kit import (
    KEYED,
    ON_DATABASE,
    PLAIN,
    call_once,
    change,
    drive,
    hear_late,
    operation_of,
    scripted_tool,
)
from tests.database.resolving import observe
from tools import EffectType, Rejected

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
Source, Verdict = ToolObservation.Source, ToolObservation.Verdict


def _refused(start: Start, *, keyed: bool = False) -> AgentRun:
    """A run that ended, whose call has no effect that anybody knows of."""
    effect = EffectType.IDEMPOTENT_WRITE if keyed else EffectType.NON_IDEMPOTENT_WRITE
    scripted_tool(Rejected("no such card"), effect=effect, provider=KEYED if keyed else PLAIN)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.state == RunState.FAILED
    return run


def _send(attempt: int, reference: str = "") -> dict[str, Any]:
    """Evidence that a send had an effect, under this name or none."""
    return {
        "source": Source.STALE_WORKER,
        "verdict": Verdict.COMMITTED,
        "attempt": attempt,
        "external_ref": reference,
    }


def _look_up(*references: str) -> dict[str, Any]:
    first, *also = references
    return {"verdict": Verdict.COMMITTED, "external_ref": first, "also": also or None}


# (whether a key joins the sends, what was seen, the effects that this proves)
NAMED: dict[str, tuple[bool, list[dict[str, Any]], list[str]]] = {
    "nothing was seen": (False, [], []),
    "no proof is no effect": (False, [{"verdict": Verdict.UNKNOWN, "external_ref": "re_1"}], []),
    "a reference is one effect, however often": (
        False,
        [_send(1, "re_1"), _look_up("re_1"), _send(1, "re_1")],
        ["re_1"],
    ),
    "two references are two": (False, [_send(1, "re_1"), _send(2, "re_2")], ["re_1", "re_2"]),
    "a look-up may name several": (
        True,
        [_look_up("re_1", "re_2", "re_3")],
        ["re_1", "re_2", "re_3"],
    ),
    "an effect without a name is named by its send": (False, [_send(2)], ["send 2"]),
    "and by nothing where only a look-up saw it": (True, [_look_up("")], [""]),
    "without a key two sends are two, names or none": (
        False,
        [_send(1), _send(2)],
        ["send 1", "send 2"],
    ),
    "one of two has a name": (False, [_send(1, "re_1"), _send(2)], ["re_1", "send 2"]),
    "a nameless send may be what the look-up names": (
        False,
        [_send(1), _look_up("re_1")],
        ["re_1"],
    ),
    "two nameless sends are not one that the look-up names": (
        False,
        [_send(1), _send(2), _look_up("re_1")],
        ["re_1", "send 2"],
    ),
    "under one key nameless sends are one": (True, [_send(1), _send(2)], ["send 2"]),
    "under one key a name is enough": (True, [_send(1), _send(2), _look_up("re_1")], ["re_1"]),
    "under one key two references are two all the same": (
        True,
        [_send(1, "re_1"), _send(2, "re_2")],
        ["re_1", "re_2"],
    ),
}


@pytest.mark.parametrize("case", NAMED)
def test_the_effects_that_the_evidence_proves_are_named(case: str, start: Start) -> None:
    keyed, seen, named = NAMED[case]
    run = _refused(start, keyed=keyed)
    for one in seen:
        observe(run, **one)
    assert name_effects(operation_of(run)) == named


def test_evidence_that_is_not_written_yet_counts_too(start: Start) -> None:
    run = _refused(start)
    observe(run, **_send(1, "re_1"))
    pending = [ToolObservation(**_send(2, "re_2")), ToolObservation(verdict=Verdict.NOT_FOUND)]
    operation = operation_of(run)
    assert name_effects(operation, pending=pending) == ["re_1", "re_2"]
    assert find_further_effects(operation, pending=pending) == ["re_2"]


@pytest.mark.parametrize(
    ("recorded", "further"), [("re_1", ["re_2"]), ("re_9", ["re_1", "re_2"]), ("", ["re_2"])]
)
def test_the_recorded_effect_is_no_further_one(
    recorded: str, further: list[str], start: Start
) -> None:
    run = _refused(start)
    observe(run, **_look_up("re_1", "re_2"))
    operation = operation_of(run)
    operation.external_ref = recorded
    assert find_further_effects(operation) == further


# -- A run that has ended -----------------------------------------------------------------------


def test_a_run_that_has_ended_is_never_woken(start: Start) -> None:
    run = _refused(start)
    before = AgentRun.objects.values().get(id=run.id)
    make_due(run.id)
    hear_late(run, "unknown", detail="nobody knows")
    hear_late(run, "committed", external_ref="re_1")
    assert AgentRun.objects.values().get(id=run.id) == before
    assert (before["wake_at"], before["sweep_at"]) == (None, None)


def test_the_database_itself_gives_a_run_that_has_ended_no_date(start: Start) -> None:
    run = _refused(start)
    with pytest.raises(IntegrityError, match="run_final_has_no_date"):
        change("UPDATE runs_agentrun SET wake_at = now() WHERE id = %s", run.id)

"""Laws of the two pure tables: every state against every event."""

from collections.abc import Mapping
from enum import StrEnum
from itertools import product
from typing import TypeVar

import pytest

from runs.state import (
    FINAL_STATES,
    OPERATION_EDGES,
    PERSON_STATES,
    RUN_EDGES,
    SETTLED_STATUSES,
    UNCERTAIN_STATES,
    UNDATED_STATES,
    IllegalTransition,
    OperationEvent,
    OperationStatus,
    RunEvent,
    RunState,
    edge_names,
    next_operation_status,
    next_run_state,
)

_State = TypeVar("_State", bound=StrEnum)
_Event = TypeVar("_Event", bound=StrEnum)

RUN_PAIRS = list(product([None, *RunState], RunEvent))
OPERATION_PAIRS = list(product([None, *OperationStatus], OperationEvent))
EFFECT_MAY_EXIST = {
    RunState.TOOL_RUNNING,
    RunState.TOOL_STATUS_UNKNOWN,
    RunState.WAITING_FOR_RESOLUTION,
}


@pytest.mark.parametrize(("state", "event"), RUN_PAIRS)
def test_a_run_moves_as_the_table_says_and_in_no_other_way(
    state: RunState | None, event: RunEvent
) -> None:
    if (state, event) in RUN_EDGES:
        assert next_run_state(state=state, event=event) is RUN_EDGES[state, event][0]
        return
    with pytest.raises(IllegalTransition) as refused:
        next_run_state(state=state, event=event)
    assert (refused.value.state, refused.value.event) == (state, event)
    assert str(event) in str(refused.value)
    assert str(state or "nothing") in str(refused.value)


@pytest.mark.parametrize(("status", "event"), OPERATION_PAIRS)
def test_an_operation_moves_as_the_table_says_and_in_no_other_way(
    status: OperationStatus | None, event: OperationEvent
) -> None:
    if (status, event) in OPERATION_EDGES:
        found = next_operation_status(status=status, event=event)
        assert found is OPERATION_EDGES[status, event][0]
        return
    with pytest.raises(IllegalTransition) as refused:
        next_operation_status(status=status, event=event)
    assert (refused.value.state, refused.value.event) == (status, event)


def test_the_table_holds_exactly_the_states_of_the_execution_model() -> None:
    assert {str(state) for state in RunState} == {
        "READY", "DECIDING", "DECISION_RECORDED", "TOOL_PREPARED", "TOOL_RUNNING",
        "TOOL_STATUS_UNKNOWN", "TOOL_COMMITTED", "WAITING_FOR_APPROVAL", "COMPLETED", "FAILED",
        "WAITING", "WAITING_FOR_RESOLUTION", "COMPENSATING", "CANCELLED",
    }  # fmt: skip
    assert {str(status) for status in OperationStatus} == {
        "AWAITING_APPROVAL", "PREPARED", "RUNNING", "UNKNOWN", "COMMITTED", "REJECTED",
        "CANCELLED",
    }  # fmt: skip


@pytest.mark.parametrize("edges", [RUN_EDGES, OPERATION_EDGES])
def test_every_edge_says_why_it_is_legal(
    edges: Mapping[tuple[StrEnum | None, StrEnum], tuple[StrEnum, str]],
) -> None:
    for (state, event), (_, why) in edges.items():
        assert why.strip(), f"{state} {event}"


def test_every_event_is_used() -> None:
    assert {event for _, event in RUN_EDGES} == set(RunEvent)
    assert {event for _, event in OPERATION_EDGES} == set(OperationEvent)


def test_every_state_can_be_reached() -> None:
    assert _reachable(RUN_EDGES, None) == set(RunState)
    assert _reachable(OPERATION_EDGES, None) == set(OperationStatus)


@pytest.mark.parametrize("state", sorted(set(RunState) - FINAL_STATES))
def test_every_state_that_is_not_final_has_a_way_to_an_end(state: RunState) -> None:
    assert _reachable(RUN_EDGES, state) & FINAL_STATES


@pytest.mark.parametrize("status", sorted(set(OperationStatus) - SETTLED_STATUSES))
def test_every_status_that_is_not_settled_has_a_way_to_be(status: OperationStatus) -> None:
    assert _reachable(OPERATION_EDGES, status) & SETTLED_STATUSES


def test_only_a_persons_request_leaves_an_end() -> None:
    left = {(state, event) for state, event in RUN_EDGES if state in FINAL_STATES}
    assert left == {
        (RunState.FAILED, RunEvent.RETRY),
        (RunState.FAILED, RunEvent.COMPENSATE),
        (RunState.COMPLETED, RunEvent.COMPENSATE),
        (RunState.CANCELLED, RunEvent.COMPENSATE),
    }
    assert not [edge for edge in OPERATION_EDGES if edge[0] in SETTLED_STATUSES]


def test_an_end_is_a_state_that_nothing_else_leaves() -> None:
    asked = (RunEvent.RETRY, RunEvent.COMPENSATE)
    left = {state for state, event in RUN_EDGES if event not in asked}
    assert {state for state in RunState if state not in left} == FINAL_STATES
    left_statuses = {status for status, _ in OPERATION_EDGES}
    assert {one for one in OperationStatus if one not in left_statuses} == SETTLED_STATUSES


@pytest.mark.parametrize("state", sorted(EFFECT_MAY_EXIST))
@pytest.mark.parametrize("event", [RunEvent.CANCEL, RunEvent.FAIL, RunEvent.COMPLETE])
def test_a_run_never_ends_while_an_effect_may_exist(state: RunState, event: RunEvent) -> None:
    with pytest.raises(IllegalTransition):
        next_run_state(state=state, event=event)


def test_an_unknown_operation_is_never_dropped() -> None:
    ways_out = {event for status, event in OPERATION_EDGES if status is OperationStatus.UNKNOWN}
    assert ways_out == {
        OperationEvent.COMMIT,
        OperationEvent.REJECT,
        OperationEvent.NOT_SENT,
        OperationEvent.SEND_AGAIN,
    }


def test_an_operation_is_sent_only_from_a_recorded_intent_or_by_recovery() -> None:
    sent_from = {
        status for (status, _), (to, _) in OPERATION_EDGES.items() if to is OperationStatus.RUNNING
    }
    assert sent_from == {OperationStatus.PREPARED, OperationStatus.UNKNOWN}


def test_an_operation_that_was_sent_is_never_called_never_sent() -> None:
    cancelled_from = {
        status
        for (status, _), (to, _) in OPERATION_EDGES.items()
        if to is OperationStatus.CANCELLED
    }
    assert cancelled_from == {None, OperationStatus.PREPARED, OperationStatus.AWAITING_APPROVAL}


def test_a_repeat_ends_without_a_send_and_only_before_one() -> None:
    ends = {OperationEvent.REPLAY: "COMMITTED", OperationEvent.REFUSE: "CANCELLED"}
    for event, end in ends.items():
        found = [(status, to) for (status, one), (to, _) in OPERATION_EDGES.items() if one is event]
        assert (OperationStatus.PREPARED, end) in found
        assert {status for status, _ in found} <= {None, OperationStatus.PREPARED}


def test_while_a_person_is_awaited_nothing_is_sent_without_the_persons_word() -> None:
    waiting = RunState.WAITING_FOR_RESOLUTION
    ways_out = {event: to for (state, event), (to, _) in RUN_EDGES.items() if state is waiting}
    assert set(ways_out) == {
        RunEvent.RESUME,
        RunEvent.COMMIT,
        RunEvent.REJECT,
        RunEvent.NOT_SENT,
        # The state itself does not move.
        RunEvent.MIGRATE,
        # Of another call of the same decision, which needs no person.
        RunEvent.LOSE_OUTCOME,
        RunEvent.TAKE_OVER,
    }
    assert RunState.TOOL_RUNNING not in ways_out.values()


def test_a_run_completes_only_by_a_recorded_decision() -> None:
    before = {state for (state, _), (to, _) in RUN_EDGES.items() if to is RunState.COMPLETED}
    assert before == {RunState.DECISION_RECORDED}


def test_a_vanished_sender_leaves_an_unknown_outcome() -> None:
    taken_over = next_run_state(state=RunState.TOOL_RUNNING, event=RunEvent.TAKE_OVER)
    assert taken_over is RunState.TOOL_STATUS_UNKNOWN
    with pytest.raises(IllegalTransition):
        next_run_state(state=RunState.TOOL_RUNNING, event=RunEvent.RESUME)


@pytest.mark.parametrize("state", sorted(PERSON_STATES))
def test_what_waits_for_a_person_has_a_way_on(state: RunState) -> None:
    onward = {to for (source, _), (to, _) in RUN_EDGES.items() if source is state}
    assert onward - {state}


def test_only_ends_persons_and_signals_leave_a_run_without_a_date() -> None:
    assert FINAL_STATES | PERSON_STATES | {RunState.WAITING} == UNDATED_STATES


def test_the_uncertain_states_are_those_of_an_effect_that_may_exist() -> None:
    assert EFFECT_MAY_EXIST - {RunState.TOOL_RUNNING} == UNCERTAIN_STATES


def test_edge_names_spell_creation_with_an_empty_origin() -> None:
    names = edge_names(RUN_EDGES)
    assert " CREATE READY" in names
    assert "READY OPEN_STEP DECIDING" in names
    assert len(names) == len(RUN_EDGES)
    assert names == sorted(names)


def _reachable(
    edges: Mapping[tuple[_State | None, _Event], tuple[_State, str]], start: _State | None
) -> set[_State]:
    found: set[_State] = set()
    frontier: set[_State | None] = {start}
    while frontier:
        frontier = {
            to for (source, _), (to, _) in edges.items() if source in frontier and to not in found
        }
        found |= {state for state in frontier if state is not None}
    return found

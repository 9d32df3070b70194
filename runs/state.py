"""The state machines of runs and operations, as two pure tables.

Guarantees: every legal edge stands here once, named by the event that takes it,
with one line of why; anything else raises `IllegalTransition`. The database
repeats the same edges in a CHECK on the journal, and a trigger refuses a state
that no journal row explains, so a table read here is a table enforced there.

Not here: who may take an edge (`commit.py`: the holder of the lease) and when
(`engine.py`). Standard library only.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar


class RunState(StrEnum):
    READY = "READY"
    DECIDING = "DECIDING"
    DECISION_RECORDED = "DECISION_RECORDED"
    TOOL_PREPARED = "TOOL_PREPARED"
    TOOL_RUNNING = "TOOL_RUNNING"
    TOOL_STATUS_UNKNOWN = "TOOL_STATUS_UNKNOWN"
    TOOL_COMMITTED = "TOOL_COMMITTED"
    WAITING_FOR_APPROVAL = "WAITING_FOR_APPROVAL"
    WAITING_FOR_RESOLUTION = "WAITING_FOR_RESOLUTION"
    WAITING = "WAITING"
    COMPENSATING = "COMPENSATING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class OperationStatus(StrEnum):
    AWAITING_APPROVAL = "AWAITING_APPROVAL"
    PREPARED = "PREPARED"
    RUNNING = "RUNNING"
    UNKNOWN = "UNKNOWN"
    COMMITTED = "COMMITTED"
    REJECTED = "REJECTED"
    CANCELLED = "CANCELLED"


class RunEvent(StrEnum):
    CREATE = "CREATE"
    OPEN_STEP = "OPEN_STEP"
    RESUME = "RESUME"
    MIGRATE = "MIGRATE"
    TAKE_OVER = "TAKE_OVER"
    DECIDER_FAILED = "DECIDER_FAILED"
    RECORD_DECISION = "RECORD_DECISION"
    PREPARE = "PREPARE"
    HOLD = "HOLD"
    APPROVE = "APPROVE"
    DENY = "DENY"
    SEND = "SEND"
    REPLAY = "REPLAY"
    COMMIT = "COMMIT"
    REJECT = "REJECT"
    NOT_SENT = "NOT_SENT"
    GIVE_UP = "GIVE_UP"
    LOSE_OUTCOME = "LOSE_OUTCOME"
    NEED_PERSON = "NEED_PERSON"
    CLOSE_STEP = "CLOSE_STEP"
    WAIT = "WAIT"
    WAKE = "WAKE"
    COMPENSATE = "COMPENSATE"
    RETRY = "RETRY"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    CANCEL = "CANCEL"


class OperationEvent(StrEnum):
    INTEND = "INTEND"
    HOLD = "HOLD"
    REFUSE = "REFUSE"
    APPROVE = "APPROVE"
    DENY = "DENY"
    EXPIRE = "EXPIRE"
    REPLACE = "REPLACE"
    CANCEL = "CANCEL"
    SEND = "SEND"
    REPLAY = "REPLAY"
    COMMIT = "COMMIT"
    REJECT = "REJECT"
    NOT_SENT = "NOT_SENT"
    GIVE_UP = "GIVE_UP"
    LOSE_OUTCOME = "LOSE_OUTCOME"
    SEND_AGAIN = "SEND_AGAIN"


_State = TypeVar("_State", bound=StrEnum)
_Event = TypeVar("_Event", bound=StrEnum)

_R, _E = RunState, RunEvent
_S, _O = OperationStatus, OperationEvent

# (state, event) -> (next state, why the edge is legal). None is "does not exist yet".
RUN_EDGES: Final[Mapping[tuple[RunState | None, RunEvent], tuple[RunState, str]]] = {
    (None, _E.CREATE): (_R.READY, "the goal is durable and due now"),
    (_R.READY, _E.OPEN_STEP): (_R.DECIDING, "a lease holder opens the next step"),
    # Another version of the agent decides from here on; the state itself does not move.
    (_R.READY, _E.MIGRATE): (_R.READY, "another version of its agent opens the next step"),
    (_R.DECIDING, _E.MIGRATE): (_R.DECIDING, "another version of its agent decides this step"),
    (_R.WAITING_FOR_APPROVAL, _E.MIGRATE): (
        _R.WAITING_FOR_APPROVAL,
        "another version of its agent has the call signed anew",
    ),
    (_R.TOOL_STATUS_UNKNOWN, _E.MIGRATE): (
        _R.TOOL_STATUS_UNKNOWN,
        "another version of its agent has a call beside the unknown one signed anew",
    ),
    (_R.WAITING_FOR_RESOLUTION, _E.MIGRATE): (
        _R.WAITING_FOR_RESOLUTION,
        "another version of its agent has a call beside the unknown one signed anew",
    ),
    # A new attempt continues from what is recorded; the state itself does not move.
    (_R.READY, _E.RESUME): (_R.READY, "a person lets it go on after a pause"),
    (_R.DECIDING, _E.RESUME): (_R.DECIDING, "nothing was recorded: ask the decider again"),
    (_R.DECISION_RECORDED, _E.RESUME): (_R.DECISION_RECORDED, "the recorded decision stands"),
    (_R.TOOL_PREPARED, _E.RESUME): (_R.TOOL_PREPARED, "the intent is recorded, nothing was sent"),
    (_R.TOOL_STATUS_UNKNOWN, _E.RESUME): (_R.TOOL_STATUS_UNKNOWN, "time to ask what happened"),
    (_R.TOOL_COMMITTED, _E.RESUME): (_R.TOOL_COMMITTED, "the effect is recorded: go on after it"),
    (_R.WAITING_FOR_RESOLUTION, _E.RESUME): (
        _R.WAITING_FOR_RESOLUTION,
        "the provider is asked once more while a person is awaited",
    ),
    (_R.TOOL_RUNNING, _E.TAKE_OVER): (
        _R.TOOL_STATUS_UNKNOWN,
        "the sender is gone: whether the call took effect is not known",
    ),
    (_R.DECIDING, _E.DECIDER_FAILED): (_R.DECIDING, "no decision came: ask again later"),
    (_R.DECIDING, _E.RECORD_DECISION): (_R.DECISION_RECORDED, "the first decision recorded wins"),
    (_R.DECISION_RECORDED, _E.PREPARE): (_R.TOOL_PREPARED, "an intended effect is recorded"),
    (_R.TOOL_COMMITTED, _E.PREPARE): (_R.TOOL_PREPARED, "the decision has another call"),
    (_R.DECISION_RECORDED, _E.HOLD): (_R.WAITING_FOR_APPROVAL, "the call needs a signature"),
    (_R.TOOL_COMMITTED, _E.HOLD): (_R.WAITING_FOR_APPROVAL, "the next call needs a signature"),
    (_R.TOOL_PREPARED, _E.HOLD): (
        _R.WAITING_FOR_APPROVAL,
        "what would leave is not what was approved",
    ),
    (_R.WAITING_FOR_APPROVAL, _E.COMMIT): (
        _R.TOOL_COMMITTED,
        "an earlier send proves to have taken effect: nobody is asked any more",
    ),
    (_R.WAITING_FOR_APPROVAL, _E.APPROVE): (_R.TOOL_PREPARED, "the exact action was approved"),
    (_R.WAITING_FOR_APPROVAL, _E.PREPARE): (
        _R.TOOL_PREPARED,
        "a call beside the held one needs no signature",
    ),
    (_R.WAITING_FOR_APPROVAL, _E.DENY): (
        _R.DECISION_RECORDED,
        "denied, expired or refused: the call is dropped, its siblings stand",
    ),
    (_R.TOOL_PREPARED, _E.DENY): (_R.DECISION_RECORDED, "policy refuses it by now: never sent"),
    (_R.TOOL_PREPARED, _E.SEND): (_R.TOOL_RUNNING, "intent is durable, the send window is open"),
    (_R.TOOL_STATUS_UNKNOWN, _E.SEND): (
        _R.TOOL_RUNNING,
        "recovery allows the same operation to be sent again",
    ),
    (_R.DECISION_RECORDED, _E.REPLAY): (
        _R.TOOL_COMMITTED,
        "this intent was carried out before: its recorded result is the answer",
    ),
    (_R.TOOL_COMMITTED, _E.REPLAY): (
        _R.TOOL_COMMITTED,
        "the next call repeats an intent that was carried out before",
    ),
    (_R.TOOL_PREPARED, _E.REPLAY): (
        _R.TOOL_COMMITTED,
        "a call beside the one that is to be sent repeats an intent",
    ),
    (_R.WAITING_FOR_APPROVAL, _E.REPLAY): (
        _R.TOOL_COMMITTED,
        "a call beside the held one repeats an intent",
    ),
    (_R.TOOL_PREPARED, _E.COMMIT): (
        _R.TOOL_COMMITTED,
        "an earlier send proves to have taken effect: it is not sent again",
    ),
    (_R.TOOL_RUNNING, _E.COMMIT): (_R.TOOL_COMMITTED, "the answer proves the effect"),
    (_R.TOOL_STATUS_UNKNOWN, _E.COMMIT): (_R.TOOL_COMMITTED, "evidence proves the effect"),
    (_R.WAITING_FOR_RESOLUTION, _E.COMMIT): (_R.TOOL_COMMITTED, "a person or evidence settled it"),
    (_R.TOOL_RUNNING, _E.REJECT): (_R.DECISION_RECORDED, "refused for good; on to the next call"),
    (_R.TOOL_STATUS_UNKNOWN, _E.REJECT): (_R.DECISION_RECORDED, "evidence proves there is none"),
    (_R.WAITING_FOR_RESOLUTION, _E.REJECT): (_R.DECISION_RECORDED, "a person closed it"),
    (_R.TOOL_RUNNING, _E.NOT_SENT): (_R.TOOL_PREPARED, "nothing left this process: try again"),
    (_R.TOOL_STATUS_UNKNOWN, _E.NOT_SENT): (
        _R.TOOL_PREPARED,
        "it is established that it did not happen",
    ),
    (_R.WAITING_FOR_RESOLUTION, _E.NOT_SENT): (
        _R.TOOL_PREPARED,
        "a person established that it did not happen",
    ),
    (_R.TOOL_PREPARED, _E.GIVE_UP): (_R.DECISION_RECORDED, "never sent, and no tries are left"),
    (_R.TOOL_RUNNING, _E.LOSE_OUTCOME): (_R.TOOL_STATUS_UNKNOWN, "it may or may not have happened"),
    (_R.WAITING_FOR_RESOLUTION, _E.LOSE_OUTCOME): (
        _R.TOOL_STATUS_UNKNOWN,
        "a call beside the one that a person settles may or may not have happened",
    ),
    (_R.WAITING_FOR_RESOLUTION, _E.TAKE_OVER): (
        _R.TOOL_STATUS_UNKNOWN,
        "the sender of a call beside the one that a person settles is gone",
    ),
    (_R.TOOL_STATUS_UNKNOWN, _E.NEED_PERSON): (
        _R.WAITING_FOR_RESOLUTION,
        "nothing that may be asked or sent can settle it",
    ),
    (_R.DECISION_RECORDED, _E.CLOSE_STEP): (_R.READY, "nothing of the decision is left to do"),
    (_R.TOOL_COMMITTED, _E.CLOSE_STEP): (_R.READY, "every call of the decision is settled"),
    (_R.DECISION_RECORDED, _E.WAIT): (
        _R.WAITING,
        "the decision waits for a time, a signal, an answer or another run",
    ),
    (_R.WAITING, _E.RESUME): (_R.WAITING, "a person lets it go on after a pause"),
    (_R.WAITING, _E.WAKE): (_R.READY, "what it waited for came, or did not come in time"),
    # Compensating is possible wherever no effect may be under way, and after the end.
    (_R.READY, _E.COMPENSATE): (_R.COMPENSATING, "what the run did is corrected"),
    (_R.DECIDING, _E.COMPENSATE): (_R.COMPENSATING, "what the run did is corrected"),
    (_R.DECISION_RECORDED, _E.COMPENSATE): (_R.COMPENSATING, "what the run did is corrected"),
    (_R.TOOL_PREPARED, _E.COMPENSATE): (_R.COMPENSATING, "the call was not sent"),
    (_R.TOOL_COMMITTED, _E.COMPENSATE): (_R.COMPENSATING, "the effect is recorded"),
    (_R.WAITING, _E.COMPENSATE): (_R.COMPENSATING, "nothing is under way"),
    (_R.WAITING_FOR_APPROVAL, _E.COMPENSATE): (_R.COMPENSATING, "the call was not sent"),
    (_R.COMPLETED, _E.COMPENSATE): (_R.COMPENSATING, "a person has it corrected after its end"),
    (_R.FAILED, _E.COMPENSATE): (_R.COMPENSATING, "a person has it corrected after its end"),
    (_R.CANCELLED, _E.COMPENSATE): (_R.COMPENSATING, "a person has it corrected after its end"),
    (_R.COMPENSATING, _E.RESUME): (_R.COMPENSATING, "a person lets it go on after a pause"),
    (_R.COMPENSATING, _E.OPEN_STEP): (_R.DECIDING, "the newest effect is corrected next"),
    (_R.COMPENSATING, _E.FAIL): (_R.FAILED, "compensated after a failure"),
    (_R.COMPENSATING, _E.CANCEL): (_R.CANCELLED, "compensated because a person asked for it"),
    (_R.DECISION_RECORDED, _E.COMPLETE): (_R.COMPLETED, "the recorded decision finishes the run"),
    (_R.READY, _E.FAIL): (_R.FAILED, "no usable decision after the allowed tries"),
    (_R.FAILED, _E.RETRY): (_R.READY, "a person has it go on from its last checkpoint"),
    (_R.DECIDING, _E.FAIL): (_R.FAILED, "no usable decision after the allowed tries"),
    (_R.DECISION_RECORDED, _E.FAIL): (_R.FAILED, "the recorded decision fails the run"),
    # Cancelling is possible wherever no effect may be under way.
    (_R.READY, _E.CANCEL): (_R.CANCELLED, "nothing is under way"),
    (_R.DECIDING, _E.CANCEL): (_R.CANCELLED, "nothing was decided"),
    (_R.DECISION_RECORDED, _E.CANCEL): (_R.CANCELLED, "no call is under way"),
    (_R.TOOL_PREPARED, _E.CANCEL): (_R.CANCELLED, "the call was not sent"),
    (_R.TOOL_COMMITTED, _E.CANCEL): (_R.CANCELLED, "the effect is recorded"),
    (_R.WAITING, _E.CANCEL): (_R.CANCELLED, "nothing is under way"),
    (_R.WAITING_FOR_APPROVAL, _E.CANCEL): (_R.CANCELLED, "the call was not sent"),
}

OPERATION_EDGES: Final[
    Mapping[tuple[OperationStatus | None, OperationEvent], tuple[OperationStatus, str]]
] = {
    (None, _O.INTEND): (_S.PREPARED, "intent comes before the call"),
    (None, _O.HOLD): (_S.AWAITING_APPROVAL, "policy asks for a signature"),
    (None, _O.REFUSE): (_S.CANCELLED, "unknown tool, bad arguments or policy: never sent"),
    (_S.AWAITING_APPROVAL, _O.HOLD): (
        _S.AWAITING_APPROVAL,
        "another version of its agent, or of its tool, has it signed anew",
    ),
    (_S.AWAITING_APPROVAL, _O.APPROVE): (_S.PREPARED, "the exact action was approved"),
    (_S.AWAITING_APPROVAL, _O.COMMIT): (
        _S.COMMITTED,
        "an earlier send proves to have taken effect: nobody is asked any more",
    ),
    (_S.AWAITING_APPROVAL, _O.REPLACE): (_S.CANCELLED, "a person proposed other arguments"),
    (_S.PREPARED, _O.REPLACE): (
        _S.CANCELLED,
        "its tool takes its arguments in another form by now",
    ),
    (_S.AWAITING_APPROVAL, _O.DENY): (_S.CANCELLED, "a person refused it"),
    (_S.AWAITING_APPROVAL, _O.EXPIRE): (_S.CANCELLED, "nobody decided in time"),
    (_S.AWAITING_APPROVAL, _O.CANCEL): (_S.CANCELLED, "its run was cancelled"),
    (_S.PREPARED, _O.HOLD): (_S.AWAITING_APPROVAL, "what would leave is not what was approved"),
    (_S.PREPARED, _O.CANCEL): (_S.CANCELLED, "its run was cancelled before the send"),
    (_S.PREPARED, _O.GIVE_UP): (_S.CANCELLED, "nothing ever left, and no tries are left"),
    (_S.PREPARED, _O.REFUSE): (_S.CANCELLED, "policy refuses it, or what it repeats is no more"),
    (_S.PREPARED, _O.REPLAY): (_S.COMMITTED, "answered with the result of the call it repeats"),
    (_S.PREPARED, _O.SEND): (_S.RUNNING, "the send window is open"),
    (_S.PREPARED, _O.COMMIT): (_S.COMMITTED, "an earlier send proves to have taken effect"),
    (_S.RUNNING, _O.COMMIT): (_S.COMMITTED, "the answer proves the effect"),
    (_S.RUNNING, _O.REJECT): (_S.REJECTED, "the tool says it was refused for good"),
    (_S.RUNNING, _O.NOT_SENT): (_S.PREPARED, "nothing left this process"),
    (_S.RUNNING, _O.LOSE_OUTCOME): (_S.UNKNOWN, "it may or may not have happened"),
    (_S.UNKNOWN, _O.SEND_AGAIN): (_S.RUNNING, "recovery allows the same key or a harmless repeat"),
    (_S.UNKNOWN, _O.COMMIT): (_S.COMMITTED, "evidence proves the effect"),
    (_S.UNKNOWN, _O.REJECT): (_S.REJECTED, "evidence proves there is none"),
    (_S.UNKNOWN, _O.NOT_SENT): (_S.PREPARED, "it is established that it did not happen"),
}

FINAL_STATES: Final = frozenset({_R.COMPLETED, _R.FAILED, _R.CANCELLED})
SETTLED_STATUSES: Final = frozenset({_S.COMMITTED, _S.REJECTED, _S.CANCELLED})
# The headline: runs whose external effect is uncertain.
UNCERTAIN_STATES: Final = frozenset({_R.TOOL_STATUS_UNKNOWN, _R.WAITING_FOR_RESOLUTION})
# Moved by a person's command; every other run that is not final has a date (`wake_at`).
PERSON_STATES: Final = frozenset({_R.WAITING_FOR_APPROVAL, _R.WAITING_FOR_RESOLUTION})
# May sit without a date: persons move them, or (WAITING) a signal, an answer or a child run.
UNDATED_STATES: Final = FINAL_STATES | PERSON_STATES | {_R.WAITING}


class IllegalTransition(Exception):
    """No edge leaves `state` by `event`."""

    def __init__(self, *, state: StrEnum | None, event: StrEnum) -> None:
        self.state, self.event = state, event
        super().__init__(f"{event} is not possible from {state or 'nothing'}.")


def next_run_state(*, state: RunState | None, event: RunEvent) -> RunState:
    """The state after `event`; raises `IllegalTransition`."""
    return _follow(RUN_EDGES, state, event)


def next_operation_status(
    *, status: OperationStatus | None, event: OperationEvent
) -> OperationStatus:
    """The status after `event`; raises `IllegalTransition`."""
    return _follow(OPERATION_EDGES, status, event)


def edge_names(edges: Mapping[tuple[_State | None, _Event], tuple[_State, str]]) -> list[str]:
    """Every edge as `from event to`, sorted: the form that the journal's CHECK holds."""
    return sorted(f"{state or ''} {event} {to}" for (state, event), (to, _) in edges.items())


def edge_line(*, from_state: str, event: str, of_operation: bool) -> str:
    """The table's one line of why for an edge; empty for an edge it no longer has."""
    if of_operation:
        status = OperationStatus(from_state) if from_state else None
        return OPERATION_EDGES.get((status, OperationEvent(event)), (None, ""))[1]
    state = RunState(from_state) if from_state else None
    return RUN_EDGES.get((state, RunEvent(event)), (None, ""))[1]


def _follow(
    edges: Mapping[tuple[_State | None, _Event], tuple[_State, str]],
    state: _State | None,
    event: _Event,
) -> _State:
    try:
        return edges[state, event][0]
    except KeyError:
        raise IllegalTransition(state=state, event=event) from None

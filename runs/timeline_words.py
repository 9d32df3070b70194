"""What kind of thing an entry of the timeline is, and what people call it.

Guarantees: pure; every kind that `TimelineEntry` names has words, and one that it does not name yet
is called by its own name.

Does not read the evidence of an entry: whoever shows it does.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from runs.models import Incident, ToolObservation
from runs.shapes import TimelineEntry
from runs.state import RunState


class Phase(StrEnum):
    """The station of an action at which an entry stands."""

    RUN = "run"
    DECISION = "decision"
    POLICY = "policy"
    APPROVAL = "approval"
    SEND = "send"
    ANSWER = "answer"
    RECOVERY = "recovery"
    COMPENSATION = "compensation"
    WAIT = "wait"
    REQUEST = "request"
    INCIDENT = "incident"


_NAMED: Final[Mapping[str, tuple[Phase, str]]] = {
    "run.create": (Phase.RUN, "Run created"),
    "run.open_step": (Phase.RUN, "Step opened"),
    "run.resume": (Phase.RUN, "Taken up again"),
    "run.migrate": (Phase.RUN, "Another version of its agent goes on"),
    "run.take_over": (Phase.RECOVERY, "Taken over: its sender is gone"),
    "run.decider_failed": (Phase.DECISION, "No usable decision"),
    "run.record_decision": (Phase.DECISION, "Decision recorded"),
    "run.prepare": (Phase.RUN, "A call is to be sent"),
    "run.hold": (Phase.APPROVAL, "Waits for a signature"),
    "run.approve": (Phase.APPROVAL, "Goes on after a signature"),
    "run.deny": (Phase.APPROVAL, "Goes on without the call"),
    "run.send": (Phase.SEND, "A call is under way"),
    "run.replay": (Phase.RUN, "Goes on with an earlier result"),
    "run.commit": (Phase.RUN, "An effect is recorded"),
    "run.reject": (Phase.RUN, "A call was refused for good"),
    "run.not_sent": (Phase.RECOVERY, "A call is known not to have happened"),
    "run.give_up": (Phase.RUN, "A call is given up"),
    "run.lose_outcome": (Phase.RECOVERY, "The outcome of a call is lost"),
    "run.need_person": (Phase.RECOVERY, "Handed to a person"),
    "run.close_step": (Phase.RUN, "Step closed"),
    "run.wait": (Phase.WAIT, "Began to wait"),
    "run.wake": (Phase.WAIT, "The wait is over"),
    "run.compensate": (Phase.COMPENSATION, "What it did is corrected"),
    "run.retry": (Phase.REQUEST, "Goes on from its last checkpoint"),
    "run.complete": (Phase.RUN, "Completed"),
    "run.fail": (Phase.RUN, "Failed"),
    "run.cancel": (Phase.RUN, "Cancelled"),
    "operation.intend": (Phase.POLICY, "Policy lets it be sent"),
    "operation.hold": (Phase.APPROVAL, "A signature is asked for"),
    "operation.refuse": (Phase.POLICY, "Refused: never sent"),
    "operation.approve": (Phase.APPROVAL, "Approved"),
    "operation.deny": (Phase.APPROVAL, "Denied"),
    "operation.expire": (Phase.APPROVAL, "Nobody decided in time"),
    "operation.replace": (Phase.APPROVAL, "Other arguments take its place"),
    "operation.cancel": (Phase.REQUEST, "Cancelled before it was sent"),
    "operation.send": (Phase.SEND, "Send window opened"),
    "operation.send_again": (Phase.RECOVERY, "Sent again"),
    "operation.replay": (Phase.ANSWER, "Answered with an earlier result"),
    "operation.commit": (Phase.ANSWER, "Committed: it happened"),
    "operation.reject": (Phase.ANSWER, "Rejected: it did not happen"),
    "operation.not_sent": (Phase.RECOVERY, "Known not to have happened"),
    "operation.give_up": (Phase.RECOVERY, "Given up: it never left"),
    "operation.lose_outcome": (Phase.ANSWER, "Unknown: it may or may not have happened"),
    "llm.used": (Phase.DECISION, "An llm answered"),
    "llm.unusable": (Phase.DECISION, "An llm answered what cannot be used"),
    "llm.failed": (Phase.DECISION, "An llm did not answer"),
    "handoff.written": (Phase.DECISION, "A handoff replaces old context"),
    "gateway.call": (Phase.REQUEST, "Asked for from outside"),
    "gateway.again": (Phase.REQUEST, "Asked for from outside again"),
    "gateway.finish": (Phase.REQUEST, "Its end was asked for from outside"),
    "signal.sent": (Phase.WAIT, "A signal was sent"),
    "signal.delivered": (Phase.WAIT, "A signal was delivered"),
    "question.asked": (Phase.WAIT, "People were asked"),
    "question.answered": (Phase.WAIT, "A person answered"),
    "question.expired": (Phase.WAIT, "Nobody answered in time"),
    "question.cancelled": (Phase.WAIT, "The question was withdrawn"),
    "child.started": (Phase.RUN, "A child run was started"),
    "child.ended": (Phase.RUN, "A child run ended"),
}
_HEARD: Final[Mapping[str, str]] = {
    "worker": "Answer",
    "stale_worker": "Late answer to an earlier worker",
    "take_over": "Found at the take-over",
    "look_up": "The provider was asked",
    "person": "A person's word",
    "handler": "The compensation handler's word",
}
# What a run does between two entries, by the state that it is in.
_MEANWHILE: Final[Mapping[str, str]] = {
    RunState.READY: "it was due, or waited for its turn",
    RunState.DECIDING: "the decider was being asked",
    RunState.DECISION_RECORDED: "a decision was to be carried out",
    RunState.TOOL_PREPARED: "a call was to be sent",
    RunState.TOOL_RUNNING: "a call was under way",
    RunState.TOOL_STATUS_UNKNOWN: "an effect was uncertain; the provider was asked on schedule",
    RunState.TOOL_COMMITTED: "the step was to go on",
    RunState.WAITING_FOR_APPROVAL: "a signature was waited for",
    RunState.WAITING_FOR_RESOLUTION: "a person had to settle an operation",
    RunState.WAITING: "the run waited",
    RunState.COMPENSATING: "what it did was being corrected",
}


def phase_of(entry: TimelineEntry) -> Phase:
    """The station at which it stands."""
    group, _, name = entry.kind.partition(".")
    if group == "observation":
        return Phase.RECOVERY if name in ("take_over", "look_up", "person") else Phase.ANSWER
    if group == "incident":
        return Phase.INCIDENT
    if group == "request":
        return Phase.REQUEST
    if entry.from_state == "UNKNOWN" or entry.from_state == RunState.TOOL_STATUS_UNKNOWN:
        return Phase.RECOVERY
    return _NAMED.get(entry.kind, (Phase.RUN, ""))[0]


def title_of(entry: TimelineEntry) -> str:
    """What happened, in a few words."""
    group, _, name = entry.kind.partition(".")
    match group:
        case "observation":
            verdict = (entry.evidence or {}).get("verdict", "")
            return f"{_HEARD.get(name, name)}: {_say_verdict(verdict)}"
        case "incident":
            return f"Incident: {_label(Incident.Kind, name.upper())}"
        case "request":
            return f"Asked for: {name.replace('_', ' ')}"
    return _NAMED.get(entry.kind, (Phase.RUN, entry.kind.replace("_", " ")))[1]


def say_meanwhile(state: str | None) -> str:
    """What went on in a state while nothing was recorded."""
    return _MEANWHILE.get(state or "", "")


def _say_verdict(verdict: str) -> str:
    label = _label(ToolObservation.Verdict, verdict)
    return f"{verdict.replace('_', ' ')} – {label[0].lower()}{label[1:]}" if label else verdict


def _label(choices: type[Incident.Kind] | type[ToolObservation.Verdict], value: str) -> str:
    return str(choices(value).label) if value in choices.values else value

"""Every condition under which a person's word is not heard, one class each.

ApprovalError
├── UnknownApproval         no approval of that id
├── UnknownQuestion         no question of that id
├── NotThisPerson           somebody else may decide, this person may not
│   ├── NobodyThere         no person stands behind the request
│   ├── SomebodyElse        the entry point knows another person than the one named
│   ├── Inactive            the user is not active
│   ├── NoPermission        the user lacks `runs.decide_approval`, or `runs.answer_question`
│   ├── OwnRequest          the user asked for the action, or started its run
│   ├── NotInGroup          the user is in none of the groups that must sign
│   └── NotAsked            the user is in none of the groups that a question was put to
├── AnotherFingerprint      what was signed is not what would be sent
├── UnfitAnswer             an answer does not fit the schema of its question
├── QuestionEnded           a question takes no answer any more
│   ├── AlreadyAnswered     somebody has answered it
│   ├── QuestionExpired     the time to answer is over
│   └── QuestionCancelled   its run does not wait for it any more
└── TooLate                 nothing can be said on an approval any more
    ├── AlreadyDecided      approved, denied or cancelled
    ├── RanOut              the time to decide is over; nobody refused
    ├── Superseded          it was asked anew, or other arguments were proposed
    ├── ToolChanged         its arguments do not fit the tool any more: signed, nothing is sent
    ├── AlreadySigned       this person has signed it
    └── EventSeen           this event id was heard before

Each names the field, the value and the fix. Conditions of runs and tools (a scope that is
missing, a value that does not fit) keep their own classes.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from runs.errors import RunsError
from tools.errors import Problem

PERMISSION: Final = "runs.decide_approval"
ANSWERING: Final = "runs.answer_question"


class ApprovalError(RunsError):
    """Base of all conditions below."""

    def __init__(self, sentence: str, *, field: str, value: str, fix: str) -> None:
        self.field, self.value, self.fix = field, value, fix
        super().__init__(f"{sentence} {fix}")


class UnknownApproval(ApprovalError):
    def __init__(self, *, approval_id: str) -> None:
        self.approval_id = approval_id
        super().__init__(
            f"No approval has the id {approval_id!a}.",
            field="approval",
            value=ascii(approval_id),
            fix="GET approvals/ and list_approvals show them.",
        )


class UnknownQuestion(ApprovalError):
    def __init__(self, *, question_id: str) -> None:
        self.question_id = question_id
        super().__init__(
            f"No question has the id {question_id!a}.",
            field="question",
            value=ascii(question_id),
            fix="GET questions/ and list_questions show them.",
        )


class NotThisPerson(ApprovalError):
    """Base of the reasons why this person may not decide."""

    def __init__(self, sentence: str, *, person: str, fix: str) -> None:
        self.person = person
        super().__init__(sentence, field="user", value=person, fix=fix)


class NobodyThere(NotThisPerson):
    def __init__(self) -> None:
        super().__init__(
            "No person stands behind this request.",
            person="nobody",
            fix="Sign in, or use the token of a user.",
        )


class SomebodyElse(NotThisPerson):
    def __init__(self, *, person: str, actor: str) -> None:
        self.actor = actor
        super().__init__(
            f"{actor} cannot sign for {person}.", person=person, fix="Everybody signs themselves."
        )


class Inactive(NotThisPerson):
    def __init__(self, *, person: str) -> None:
        super().__init__(
            f"{person} is not an active user.", person=person, fix="Let somebody else do it."
        )


class NoPermission(NotThisPerson):
    def __init__(self, *, person: str, permission: str = PERMISSION) -> None:
        self.permission = permission
        super().__init__(
            f"{person} lacks the permission {permission}.",
            person=person,
            fix="Give it to the user or to one of their groups, or let somebody else do it.",
        )


class OwnRequest(NotThisPerson):
    """`role` says what the person had to do with it: "asked for this action" and the like."""

    def __init__(self, *, person: str, role: str) -> None:
        self.role = role
        super().__init__(
            f"{person} {role}, and so may neither approve nor deny it.",
            person=person,
            fix="Let somebody else decide.",
        )


class NotInGroup(NotThisPerson):
    def __init__(self, *, person: str, groups: Iterable[str]) -> None:
        self.groups = tuple(groups)
        super().__init__(
            f"{person} is in none of the groups that may sign: {', '.join(self.groups)}.",
            person=person,
            fix="Let somebody of them decide.",
        )


class NotAsked(NotThisPerson):
    def __init__(self, *, person: str, groups: Iterable[str]) -> None:
        self.groups = tuple(groups)
        super().__init__(
            f"{person} is in none of the groups that are asked: {', '.join(self.groups)}.",
            person=person,
            fix="Let somebody of them answer.",
        )


class UnfitAnswer(ApprovalError):
    """`problems` has one entry for each field that does not fit."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        told = "; ".join(str(problem) for problem in self.problems)
        super().__init__(told, field=first.field, value=first.value, fix="Nothing was changed.")


class QuestionEnded(ApprovalError):
    """Base of the conflicts: somebody answered, or nobody waits for it any more."""

    def __init__(self, sentence: str, *, question_id: str, value: str, fix: str) -> None:
        self.question_id = question_id
        super().__init__(sentence, field="question", value=value, fix=fix)


class AlreadyAnswered(QuestionEnded):
    def __init__(self, *, question_id: str, answered_by: str, answered_at: datetime) -> None:
        self.answered_by, self.answered_at = answered_by, answered_at
        super().__init__(
            f"{answered_by} answered question {question_id} at "
            f"{answered_at:%Y-%m-%d %H:%M:%S} UTC.",
            question_id=question_id,
            value=answered_by,
            fix="Nothing was changed; the first answer stands.",
        )


class QuestionExpired(QuestionEnded):
    def __init__(self, *, question_id: str, answer_by: datetime | None) -> None:
        self.answer_by = answer_by
        when = f" at {answer_by:%Y-%m-%d %H:%M:%S} UTC" if answer_by is not None else ""
        super().__init__(
            f"Question {question_id} ran out{when}, unanswered.",
            question_id=question_id,
            value="expired",
            fix="Its run went on without an answer.",
        )


class QuestionCancelled(QuestionEnded):
    def __init__(self, *, question_id: str) -> None:
        super().__init__(
            f"Question {question_id} was cancelled: its run does not wait for it any more.",
            question_id=question_id,
            value="cancelled",
            fix="Look at the run as it is now.",
        )


class AnotherFingerprint(ApprovalError):
    def __init__(self, *, approval_id: str, given: str) -> None:
        self.approval_id, self.given = approval_id, given
        super().__init__(
            f"This is not the fingerprint of what approval {approval_id} asks for.",
            field="fingerprint",
            value=ascii(given),
            fix="Look at the action as it is now, and sign what you see.",
        )


class TooLate(ApprovalError):
    """Base of the conflicts: something was said or happened before."""

    def __init__(self, sentence: str, *, approval_id: str, value: str, fix: str) -> None:
        self.approval_id = approval_id
        super().__init__(sentence, field="approval", value=value, fix=fix)


class AlreadyDecided(TooLate):
    def __init__(self, *, approval_id: str, status: str, decided_by: str) -> None:
        self.status, self.decided_by = status, decided_by
        by = f" by {decided_by}" if decided_by else ""
        super().__init__(
            f"Approval {approval_id} is {status}{by} already.",
            approval_id=approval_id,
            value=status,
            fix="Nothing was changed.",
        )


class RanOut(TooLate):
    def __init__(self, *, approval_id: str, approve_by: datetime) -> None:
        self.approve_by = approve_by
        super().__init__(
            f"Approval {approval_id} ran out at {approve_by:%Y-%m-%d %H:%M:%S} UTC, undecided.",
            approval_id=approval_id,
            value="expired",
            fix="The action is not sent; its run can ask again.",
        )


class Superseded(TooLate):
    """`newer` is the id of the request that replaced it, where there is one."""

    def __init__(self, *, approval_id: str, newer: str | None, proposed_by: str) -> None:
        self.newer, self.proposed_by = newer, proposed_by
        why = f": {proposed_by} proposed a change" if proposed_by else ""
        super().__init__(
            f"Approval {approval_id} is superseded{why}.",
            approval_id=approval_id,
            value=newer or "superseded",
            fix=f"Look at approval {newer}." if newer else "Look at the run as it is now.",
        )


class ToolChanged(TooLate):
    def __init__(self, *, approval_id: str, tool: str, misfit: str) -> None:
        self.tool, self.misfit = tool, misfit
        super().__init__(
            f"What approval {approval_id} asks for cannot be sent as it stands: {misfit}",
            approval_id=approval_id,
            value=tool,
            fix="Propose arguments that fit, or deny it.",
        )


class AlreadySigned(TooLate):
    def __init__(self, *, approval_id: str, person: str) -> None:
        self.person = person
        super().__init__(
            f"{person} has signed approval {approval_id} already.",
            approval_id=approval_id,
            value=person,
            fix="Nothing was changed; it waits for others.",
        )


class EventSeen(TooLate):
    def __init__(self, *, approval_id: str, event_id: str) -> None:
        self.event_id = event_id
        super().__init__(
            f"Event {event_id!a} was heard on approval {approval_id} already.",
            approval_id=approval_id,
            value=ascii(event_id),
            fix="Nothing was changed; a new word needs a new event id.",
        )

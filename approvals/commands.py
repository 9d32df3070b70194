"""The one door through which people decide: every API view, page and command calls these two.

Guarantees: a word is heard at most once, by compare-and-set under the lock of the run and then
of the approval; the signature, the new status, the notice and the run's wake-up are one
transaction, so of any number of people at once one decides and the others get a conflict that
changed nothing. Whether time is left is judged by the database's clock, also where no sweep
has come by. Whoever asked for the action or started its run is heard nowhere.

Does not move the run or its operation: the next lease holder reads what was decided.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args
from uuid import UUID

from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.db.models import BooleanField, DateTimeField, ExpressionWrapper, F, Q
from django.db.models.functions import Now

from approvals.changes import changed_arguments
from approvals.eligibility import Person, find_person, require_may_sign
from approvals.errors import (
    AlreadyDecided,
    AlreadySigned,
    AnotherFingerprint,
    EventSeen,
    RanOut,
    Superseded,
    ToolChanged,
    UnknownApproval,
)
from approvals.models import EVENT_ID, Verdict
from approvals.quorum import Missing, Signer, find_missing
from runs.access import APPROVALS_DECIDE, Actor
from runs.errors import InvalidInput
from runs.models import NAME, TEXT_LIMIT, AgentRun, Approval, Notice
from runs.renewal import find_unsendable
from runs.sensitive import without_secrets
from runs.wake import make_due
from tools.canonical import check_json
from tools.errors import InvalidPayload
from tools.redaction import bound_text

Word = Literal["approve", "deny"]
Via = Literal["api", "admin", "command line", "python"]
SHOWN: Final = 80
# Of all who signed, as the journal shows them.
LONGEST_NAMES: Final = 1_000


def decide(
    *,
    actor: Actor,
    user: User | AnonymousUser | None,
    approval_id: str | UUID,
    verdict: Word,
    fingerprint: str,
    reason: str = "",
    event_id: str = "",
    via: Via = "python",
) -> Approval:
    """Sign or refuse one exact action as `user`; returns the approval as it stands then.

    It stays pending until everybody signed who must (`read_missing` says who has not); one
    denial, which needs a reason, ends it. Raises InvalidInput, UnknownApproval, NotPermitted,
    NotThisPerson, AnotherFingerprint or TooLate (each in its kinds); none leaves a trace.
    """
    if verdict not in get_args(Word):
        fix = f"Use {' or '.join(get_args(Word))}."
        raise InvalidInput(field="verdict", value=ascii(verdict)[:SHOWN], fix=fix)
    word = _Words(verdict=verdict, reason=reason, event_id=event_id, via=via)
    word.check()
    with transaction.atomic():
        approval, person = _open(actor=actor, user=user, approval_id=approval_id)
        _require_open(approval, fingerprint=fingerprint)
        _require_new(approval, person, event_id=event_id)
        if verdict == "approve":
            _require_sendable(approval)
        _sign(approval, person, word)
        if verdict == "deny":
            _close(approval, Approval.Status.DENIED, person=person, word=word)
        elif not read_missing(approval):
            _close(approval, Approval.Status.APPROVED, person=person, word=word)
        approval.refresh_from_db()
    return approval


def propose(
    *,
    actor: Actor,
    user: User | AnonymousUser | None,
    approval_id: str | UUID,
    arguments: Mapping[str, Any],
    fingerprint: str,
    reason: str,
    via: Via = "python",
) -> Approval:
    """Ask as `user` for other arguments in place of what waits; returns the approval, superseded.

    The lease holder plans them as a new action that needs signatures of its own, of which
    `user` then gives none. A hidden value that is sent back as it is shown stays what it was.
    Raises what `decide` raises, and UnknownTool or InvalidArguments.
    """
    word = _Words(verdict="propose", reason=reason, event_id="", via=via)
    word.check()
    with transaction.atomic():
        approval, person = _open(actor=actor, user=user, approval_id=approval_id)
        _require_open(approval, fingerprint=fingerprint)
        proposed = changed_arguments(approval.operation, arguments)
        _sign(approval, person, word)
        _close(
            approval,
            Approval.Status.SUPERSEDED,
            person=person,
            word=word,
            proposed_arguments=proposed,
            proposed_by=bound_text(person.name, NAME),
            proposed_by_user_id=person.user_id,
        )
        approval.refresh_from_db()
    return approval


def read_missing(approval: Approval) -> Missing:
    """Whose signatures a pending approval lacks. Prefetch `verdicts` for a page."""
    return find_missing(
        [
            Signer(name=one.name, groups=frozenset(one.groups))
            for one in approval.verdicts.all()
            if one.verdict == Verdict.Kind.APPROVE
        ],
        groups=approval.groups,
        quorum=approval.quorum,
        escalated_to=approval.escalate_to if approval.escalated_at is not None else (),
    )


@dataclass(frozen=True)
class _Words:
    """What was said, and how it came."""

    verdict: str
    reason: str
    event_id: str
    via: str

    def check(self) -> None:
        if self.via not in get_args(Via):
            fix = f"Use {', '.join(get_args(Via))}."
            raise InvalidInput(field="via", value=ascii(self.via)[:SHOWN], fix=fix)
        for name, text, limit in (
            ("reason", self.reason, TEXT_LIMIT),
            ("event_id", self.event_id, EVENT_ID),
        ):
            try:
                check_json(text, field=name)
            except InvalidPayload as error:
                raise InvalidInput(field=error.field, value=error.value, fix=error.fix) from error
            if len(text) > limit:
                fix = f"Use at most {limit}."
                raise InvalidInput(field=name, value=f"{len(text)} characters", fix=fix)
        if self.verdict != "approve" and not self.reason.strip():
            fix = f"Say why you {self.verdict}; it stands in the record."
            raise InvalidInput(field="reason", value=ascii(self.reason)[:SHOWN], fix=fix)


def _open(
    *, actor: Actor, user: User | AnonymousUser | None, approval_id: str | UUID
) -> tuple[Approval, Person]:
    """The approval, locked after its run, and the person, who may decide it."""
    found = _find(approval_id)
    # What a run's worker writes waits for this lock, and its child rows do not.
    run = AgentRun.objects.select_for_update(no_key=True).get(id=found.run_id)
    # Only now: its status, and what time it is, are read after every wait.
    approval = (
        Approval.objects.select_for_update(no_key=True, of=("self",))
        .select_related("operation")
        .annotate(ran_out=ExpressionWrapper(Q(approve_by__lte=Now()), output_field=BooleanField()))
        .get(id=found.id)
    )
    approval.run = run
    actor.require(APPROVALS_DECIDE)
    person = find_person(actor=actor, user=user)
    require_may_sign(person, approval)
    return approval, person


def _find(approval_id: str | UUID) -> Approval:
    try:
        return Approval.objects.only("id", "run_id").get(id=UUID(str(approval_id)))
    except (ValueError, Approval.DoesNotExist) as error:
        raise UnknownApproval(approval_id=bound_text(str(approval_id), SHOWN)) from error


def _require_open(approval: Approval, *, fingerprint: str) -> None:
    if fingerprint != approval.fingerprint:
        raise AnotherFingerprint(approval_id=str(approval.id), given=fingerprint[:SHOWN])
    match Approval.Status(approval.status):
        case Approval.Status.PENDING:
            if approval.ran_out:  # type: ignore[attr-defined]  # annotated by `_open`
                raise RanOut(approval_id=str(approval.id), approve_by=approval.approve_by)
        case Approval.Status.EXPIRED:
            raise RanOut(approval_id=str(approval.id), approve_by=approval.approve_by)
        case Approval.Status.SUPERSEDED:
            newer = approval.superseded_by.order_by("-requested_at").values_list("id", flat=True)
            raise Superseded(
                approval_id=str(approval.id),
                newer=str(newer[0]) if newer else None,
                proposed_by=approval.proposed_by,
            )
        case status:
            raise AlreadyDecided(
                approval_id=str(approval.id), status=status, decided_by=approval.decided_by
            )


def _require_new(approval: Approval, person: Person, *, event_id: str) -> None:
    for heard in approval.verdicts.all():
        # By name too: a user who was deleted and made again is still one person.
        is_theirs = person.user_id == heard.user_id or person.name == heard.name
        if is_theirs and heard.verdict != Verdict.Kind.PROPOSE:
            raise AlreadySigned(approval_id=str(approval.id), person=person.name)
        if event_id and heard.event_id == event_id:
            raise EventSeen(approval_id=str(approval.id), event_id=event_id)


def _require_sendable(approval: Approval) -> None:
    operation = approval.operation
    if misfit := find_unsendable(operation):
        raise ToolChanged(approval_id=str(approval.id), tool=operation.tool, misfit=misfit)


def _sign(approval: Approval, person: Person, word: _Words) -> None:
    asked_for = [*approval.groups, *approval.escalate_to]
    Verdict.objects.create(
        approval=approval,
        run_id=approval.run_id,
        user_id=person.user_id,
        name=person.name,
        verdict=word.verdict,
        reason=without_secrets(word.reason.strip(), approval.operation),
        fingerprint=approval.fingerprint,
        groups=sorted(person.groups.intersection(asked_for)),
        event_id=word.event_id or None,
        via=word.via,
    )


def _who(approval: Approval, status: Approval.Status, person: Person) -> str:
    """Who ended the wait: all who signed, or the one who spoke otherwise."""
    if status != Approval.Status.APPROVED:
        return person.name
    signed = approval.verdicts.filter(verdict=Verdict.Kind.APPROVE).order_by("id")
    return ", ".join(signed.values_list("name", flat=True))


def _close(
    approval: Approval,
    status: Approval.Status,
    *,
    person: Person,
    word: _Words,
    **proposed: Any,
) -> None:
    """End the wait: the run is due, and whoever is to hear of it will."""
    execute_by = ExpressionWrapper(Now() + F("execute_within"), output_field=DateTimeField())
    reason = without_secrets(word.reason.strip(), approval.operation)
    moved = Approval.objects.filter(id=approval.id, status=Approval.Status.PENDING).update(
        status=status,
        decided_at=Now(),
        decided_by=bound_text(_who(approval, status, person), LONGEST_NAMES),
        reason=reason,
        execute_by=execute_by if status == Approval.Status.APPROVED else None,
        **proposed,
    )
    assert moved == 1, "its row is locked, so nobody else has moved it"
    Notice.objects.create(
        event_id=f"{Notice.Kind.APPROVAL_DECIDED}:{approval.id}",
        kind=Notice.Kind.APPROVAL_DECIDED,
        run_id=approval.run_id,
        operation_id=approval.operation_id,
        approval=approval,
        status=status,
    )
    make_due(approval.run_id)

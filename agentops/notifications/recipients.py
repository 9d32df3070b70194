"""Who gets an e-mail about a notice.

Guarantees: a signature is asked of people who may give it: never of the requester or of who
started the run, whichever of id and name tells them, and not of somebody who has signed. A
question is put to those who are asked, whoever started the run among them; of its answer the
latter hears, unless they gave it. Only active people with an address are written to. A batch of
notices costs a few queries, however many people and groups there are.

Does not decide who may sign or answer: `approvals` does, again, when somebody does it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet

from approvals.models import Verdict
from runs.models import NAME, Approval, Notice

_BACKEND: Final = "django.contrib.auth.backends.ModelBackend"
_FIELDS: Final = ("id", "username", "email")
Kind = Notice.Kind


@dataclass(frozen=True)
class Person:
    id: int
    name: str
    email: str


@dataclass(frozen=True)
class Directory:
    """The people that a batch of notices may concern."""

    members: Mapping[str, Collection[Person]]
    signers: Collection[Person]
    answerers: Collection[Person]
    resolvers: Collection[Person]
    known: Mapping[int, Person]
    signed: Mapping[UUID, Collection[int]]


def find_addresses(notices: Sequence[Notice]) -> dict[int, list[str]]:
    """The e-mail addresses per notice, each once. What a notice is about is loaded already."""
    directory = _read_directory(notices)
    return {
        notice.pk: _distinct(person.email for person in _people(notice, directory))
        for notice in notices
    }


def _people(notice: Notice, directory: Directory) -> Iterable[Person]:
    approval = notice.approval
    match kind := Kind(notice.kind):
        case Kind.APPROVAL_REQUESTED | Kind.APPROVAL_REMINDER | Kind.APPROVAL_ESCALATED:
            return [] if approval is None else _asked(notice, approval, directory)
        case Kind.APPROVAL_DECIDED:
            return [directory.known[one] for one in _behind(notice) if one in directory.known]
        case Kind.OPERATION_NEEDS_PERSON | Kind.RUN_PAUSED:
            return directory.resolvers
        case Kind.QUESTION_ASKED | Kind.QUESTION_REMINDER | Kind.QUESTION_ESCALATED:
            groups = _asked_groups(notice)
            return _members_of(groups, directory) if groups else directory.answerers
        case Kind.QUESTION_ANSWERED:
            return [directory.known[one] for one in _told(notice) if one in directory.known]
        case Kind.OPERATION_UNKNOWN | Kind.OPERATION_SETTLED | Kind.RUN_FINISHED:
            # These settle themselves, or need nobody: programs may want to know.
            return []
        case _:
            assert_never(kind)


def _asked(notice: Notice, approval: Approval, directory: Directory) -> list[Person]:
    groups = _groups(notice, approval)
    people = _members_of(groups, directory) if groups else list(directory.signers)
    own_ids = _behind(notice)
    own_names = {notice.run.created_by, approval.requester}
    signed = directory.signed.get(approval.pk, ())
    return [
        person
        for person in people
        if person.id not in own_ids
        and person.name[:NAME] not in own_names
        and person.id not in signed
    ]


def _behind(notice: Notice) -> set[int]:
    """Who started the run, and who asked for the signature."""
    asker = notice.approval.requester_user_id if notice.approval else None
    return {one for one in (notice.run.created_by_user_id, asker) if one is not None}


def _members_of(groups: Sequence[str], directory: Directory) -> list[Person]:
    return [person for group in groups for person in directory.members.get(group, ())]


def _told(notice: Notice) -> set[int]:
    """Who started the run, unless they answered themselves."""
    answerer = notice.question.answered_by_user_id if notice.question else None
    return {one for one in (notice.run.created_by_user_id,) if one not in (None, answerer)}


def _asked_groups(notice: Notice) -> list[str]:
    """The groups that a question is put to; none: whoever has the permission."""
    question = notice.question
    if question is None:
        return []
    if notice.kind == Kind.QUESTION_ESCALATED:
        return list(question.escalate_to)
    groups = list(question.groups)
    if groups and notice.kind == Kind.QUESTION_REMINDER and question.escalated_at is not None:
        groups += question.escalate_to
    return groups


def _groups(notice: Notice, approval: Approval) -> list[str]:
    """The groups that are asked; none: whoever has the permission."""
    if notice.kind == Kind.APPROVAL_ESCALATED:
        return list(approval.escalate_to)
    groups = list(approval.groups)
    if groups and notice.kind == Kind.APPROVAL_REMINDER and approval.escalated_at is not None:
        groups += approval.escalate_to
    return groups


def _read_directory(notices: Sequence[Notice]) -> Directory:
    groups: set[str] = set()
    people: set[int] = set()
    again: set[UUID] = set()
    signing = answering = resolving = False
    for notice in notices:
        approval = notice.approval
        match kind := Kind(notice.kind):
            case Kind.APPROVAL_REQUESTED | Kind.APPROVAL_REMINDER | Kind.APPROVAL_ESCALATED:
                if approval is None:
                    continue
                asked = _groups(notice, approval)
                groups.update(asked)
                signing = signing or not asked
                if kind is not Kind.APPROVAL_REQUESTED:
                    again.add(approval.pk)
            case Kind.APPROVAL_DECIDED:
                people.update(_behind(notice))
            case Kind.QUESTION_ASKED | Kind.QUESTION_REMINDER | Kind.QUESTION_ESCALATED:
                asked = _asked_groups(notice)
                groups.update(asked)
                answering = answering or not asked
            case Kind.QUESTION_ANSWERED:
                people.update(_told(notice))
            case Kind.OPERATION_NEEDS_PERSON | Kind.RUN_PAUSED:
                resolving = True
            case Kind.OPERATION_UNKNOWN | Kind.OPERATION_SETTLED | Kind.RUN_FINISHED:
                pass
            case _:
                assert_never(kind)
    return Directory(
        members=_members(groups) if groups else {},
        signers=_with_permission("runs.decide_approval") if signing else (),
        answerers=_with_permission("runs.answer_question") if answering else (),
        resolvers=_with_permission("runs.resolve_operation") if resolving else (),
        known=_known(people) if people else {},
        signed=_signed(again) if again else {},
    )


def _reachable() -> QuerySet[User]:
    return User.objects.filter(is_active=True).exclude(email="")


def _members(groups: Collection[str]) -> dict[str, list[Person]]:
    found: dict[str, list[Person]] = defaultdict(list)
    rows = _reachable().filter(groups__name__in=groups).order_by("id")
    for group, *fields in rows.values_list("groups__name", *_FIELDS):
        found[group].append(_person(fields))
    return found


def _with_permission(permission: str) -> list[Person]:
    able = User.objects.with_perm(permission, backend=_BACKEND).exclude(email="")
    return [_person(fields) for fields in able.order_by("id").values_list(*_FIELDS)]


def _known(ids: Collection[int]) -> dict[int, Person]:
    rows = _reachable().filter(id__in=ids).values_list(*_FIELDS)
    return {fields[0]: _person(fields) for fields in rows}


def _signed(approvals: Collection[UUID]) -> dict[UUID, set[int]]:
    found: dict[UUID, set[int]] = defaultdict(set)
    rows = Verdict.objects.filter(approval_id__in=approvals, user__isnull=False)
    for approval, user in rows.values_list("approval_id", "user_id"):
        assert user is not None
        found[approval].add(user)
    return found


def _person(fields: Sequence[Any]) -> Person:
    pk, name, email = fields
    return Person(id=pk, name=name, email=email)


def _distinct(addresses: Iterable[str]) -> list[str]:
    """Each address once, whatever its case: two people may share one."""
    found: dict[str, str] = {}
    for address in addresses:
        found.setdefault(address.strip().casefold(), address.strip())
    return [address for address in found.values() if address]

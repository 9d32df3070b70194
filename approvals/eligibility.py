"""Who may decide on an action: separation of duties, permission and groups.

Guarantees: a person is read anew from the database, so a user who was deactivated or left a
group a moment ago counts as they are now; the one who asked for the action and the one who
started its run are refused by id and by name, whatever entry point, token or other name they
come by; nobody is above these rules, superusers included.

Does not count signatures: `quorum.py` does.
"""

from collections.abc import Collection
from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from approvals.errors import (
    PERMISSION,
    Inactive,
    NobodyThere,
    NoPermission,
    NotInGroup,
    OwnRequest,
    SomebodyElse,
)
from approvals.models import Verdict
from runs.access import Actor
from runs.models import Approval


@dataclass(frozen=True)
class Person:
    """A user who may decide something, if not everything."""

    user_id: int
    name: str
    groups: frozenset[str]


def find_person(
    *, actor: Actor, user: User | AnonymousUser | None, permission: str = PERMISSION
) -> Person:
    """`user` as the database knows them now, with this permission.

    Raises NobodyThere, SomebodyElse (the actor is another person), Inactive or NoPermission.
    """
    known = None if user is None or user.pk is None else User.objects.filter(pk=user.pk).first()
    if known is None:
        raise NobodyThere
    name = known.get_username()
    if actor.user_id is not None and actor.user_id != known.pk:
        raise SomebodyElse(person=name, actor=actor.name)
    if not known.is_active:
        raise Inactive(person=name)
    if not known.has_perm(permission):
        raise NoPermission(person=name, permission=permission)
    groups = frozenset(known.groups.values_list("name", flat=True))
    return Person(user_id=known.pk, name=name, groups=groups)


def require_may_sign(person: Person, approval: Approval) -> None:
    """Raises OwnRequest or NotInGroup. Join `run` for a page."""
    run = approval.run
    if person.user_id == approval.requester_user_id or _is_name(person, approval.requester):
        raise OwnRequest(person=person.name, role="asked for this action")
    if person.user_id == run.created_by_user_id or _is_name(person, run.created_by):
        raise OwnRequest(person=person.name, role="started this run")
    may_sign = signing_groups(approval)
    if approval.groups and person.groups.isdisjoint(may_sign):
        raise NotInGroup(person=person.name, groups=may_sign)


def _is_name(person: Person, name: str) -> bool:
    """However it is spelled: two people should not be told apart by a capital letter."""
    return person.name.casefold() == name.casefold()


def signing_groups(approval: Approval) -> list[str]:
    """The groups whose members may sign now; empty where the permission is enough."""
    if not approval.groups:
        return []
    second = approval.escalate_to if approval.escalated_at is not None else []
    return list(dict.fromkeys([*approval.groups, *second]))


def may_be_signed_by(
    approvals: QuerySet[Approval], *, user: User | AnonymousUser
) -> QuerySet[Approval]:
    """Of `approvals`, those that `decide` would hear this user on now."""
    try:
        # The actor is the user: whoever else asks, asks what the user may do.
        person = find_person(actor=Actor(name="", scopes=frozenset()), user=user)
    except (NobodyThere, Inactive, NoPermission):
        return approvals.none()
    signed = Verdict.objects.filter(
        Q(user_id=person.user_id) | Q(name=person.name), approval=OuterRef("pk")
    ).exclude(verdict=Verdict.Kind.PROPOSE)
    return (
        approvals.filter(_is_in_group(person.groups), status=Approval.Status.PENDING)
        .filter(approve_by__gt=Now())
        .filter(~Exists(signed))
        # `exclude` would drop what nobody known has started, for NULL is not "another".
        .filter(Q(requester_user_id=None) | ~Q(requester_user_id=person.user_id))
        .filter(Q(run__created_by_user_id=None) | ~Q(run__created_by_user_id=person.user_id))
        .exclude(requester__iexact=person.name)
        .exclude(run__created_by__iexact=person.name)
    )


def _is_in_group(groups: Collection[str]) -> Q:
    names = sorted(groups)
    allowed = Q(groups=[])
    if names:
        allowed |= Q(groups__has_any_keys=names)
        allowed |= Q(escalated_at__isnull=False, escalate_to__has_any_keys=names)
    return allowed

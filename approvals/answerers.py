"""Who may answer a question.

Guarantees: a person is read anew from the database, so a user who was deactivated or left a
group a moment ago counts as they are now. Where groups are asked, somebody of them answers, or
of the second ones once these were asked too. Whoever started the run may answer as well: an
answer is information and no signature, and they often know best.

Does not say whether the question is open: `questions.py` does.
"""

from collections.abc import Collection

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from approvals.eligibility import Person, find_person
from approvals.errors import ANSWERING, NotAsked, NotThisPerson
from runs.access import Actor
from runs.models import Question


def find_answerer(actor: Actor) -> Person:
    """The person behind the actor. Raises NobodyThere, Inactive or NoPermission."""
    user = User(pk=actor.user_id) if actor.user_id is not None else None
    return find_person(actor=actor, user=user, permission=ANSWERING)


def require_may_answer(person: Person, question: Question) -> None:
    """Raises NotAsked."""
    asked = asked_groups(question)
    if asked and person.groups.isdisjoint(asked):
        raise NotAsked(person=person.name, groups=asked)


def asked_groups(question: Question) -> list[str]:
    """The groups whose members may answer now; empty where the permission is enough."""
    if not question.groups:
        return []
    second = question.escalate_to if question.escalated_at is not None else []
    return list(dict.fromkeys([*question.groups, *second]))


def may_be_answered_by(
    questions: QuerySet[Question], *, user: User | AnonymousUser
) -> QuerySet[Question]:
    """Of `questions`, those that `answer_question` would hear this user on now."""
    try:
        person = find_answerer(Actor(name="", scopes=frozenset(), user_id=user.pk))
    except NotThisPerson:
        return questions.none()
    in_time = Q(answer_by=None) | Q(answer_by__gt=Now())
    return questions.filter(_is_asked(person.groups), in_time, status=Question.Status.OPEN)


def _is_asked(groups: Collection[str]) -> Q:
    names = sorted(groups)
    asked = Q(groups=[])
    if names:
        asked |= Q(groups__has_any_keys=names)
        asked |= Q(escalated_at__isnull=False, escalate_to__has_any_keys=names)
    return asked

"""The questions to people: what waits for an answer, and what became of what did.

Guarantees: the newest come first; reading on from a cursor costs the same however far one has
come, and a page the same few queries however many rows it has. A filter that cannot match by
mistake is refused by name.

Does not answer anything, and does not check scopes; front doors do.
"""

from uuid import UUID

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Q, QuerySet

from approvals.answerers import may_be_answered_by
from approvals.errors import UnknownQuestion
from runs.errors import InvalidInput
from runs.models import Question
from runs.paging import Page, read_newest_first
from runs.queries import parse_run_id
from tools.canonical import check_json
from tools.errors import InvalidPayload
from tools.redaction import bound_text


def find_questions(
    *,
    status: str | None = None,
    run: str | None = None,
    group: str | None = None,
    mine: User | AnonymousUser | None = None,
) -> QuerySet[Question]:
    """Questions that match every filter; `mine`: those that this user may answer now.

    `group`: those that its members are asked. Raises InvalidInput.
    """
    found = Question.objects.select_related("run")
    if status is not None:
        found = found.filter(status=_status(status))
    if run is not None:
        found = found.filter(run_id=parse_run_id(run))
    if group is not None:
        try:
            check_json(group, field="group")
        except InvalidPayload as error:
            raise InvalidInput(field=error.field, value=error.value, fix=error.fix) from error
        second = Q(escalated_at__isnull=False, escalate_to__contains=[group])
        found = found.filter(Q(groups__contains=[group]) | second)
    return found if mine is None else may_be_answered_by(found, user=mine)


def get_question(question_id: str | UUID) -> Question:
    """One question with its run. Raises UnknownQuestion."""
    try:
        return find_questions().get(id=UUID(str(question_id)))
    except (ValueError, Question.DoesNotExist) as error:
        raise UnknownQuestion(question_id=bound_text(str(question_id), 80)) from error


def read_page(found: QuerySet[Question], *, cursor: str | None, size: int) -> Page[Question]:
    """One page, newest first. Raises InvalidInput."""
    return read_newest_first(found, cursor=cursor, size=size, by="asked_at")


def _status(given: str) -> str:
    known = [str(one) for one in Question.Status]
    if given.lower() in known:
        return given.lower()
    raise InvalidInput(
        field="status", value=ascii(given[:80]), fix=f"Possible are: {', '.join(known)}."
    )

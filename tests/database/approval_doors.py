"""Every entry point by which a person can say something about an approval, as one table.

`test_approvals_doors.py` holds each of them against every rule, and fails where code calls
`decide` or `propose` from a place that no door here names. To add an entry point: write a
driver that goes through it as its callers do, and put it into `DOORS`.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from typing import Any, Literal
from uuid import uuid4

from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.urls import reverse

from agentops.tokens import issue_token
from approvals.commands import propose
from approvals.errors import ApprovalError
from runs.access import SCOPES
from runs.models import Approval
from tests.database.admin_pages import browser_of
from tests.database.approving import ARGUMENTS, acting, say
from tests.database.callers import Caller

DONE = "done"
CHANGED = {**ARGUMENTS, "amount": 400}
Says = Literal["decide", "propose"]
# Goes through the door as this user, naming this fingerprint; says DONE, or what refused it.
Driver = Callable[[Approval, User, str], str]


@dataclass(frozen=True)
class Door:
    """`calls`: the place in our code that calls the command; `via`: what it records of itself."""

    name: str
    says: Says
    via: str
    calls: str | None
    drive: Driver


def by_python(approval: Approval, user: User, fingerprint: str) -> str:
    return _told(lambda: say(approval, user, fingerprint=fingerprint))


def by_python_proposal(approval: Approval, user: User, fingerprint: str) -> str:
    return _told(
        lambda: propose(
            actor=acting(user),
            user=user,
            approval_id=approval.id,
            arguments=CHANGED,
            fingerprint=fingerprint,
            reason="less",
        )
    )


def by_api(approval: Approval, user: User, fingerprint: str) -> str:
    body = {"verdict": "approve", "fingerprint": fingerprint}
    return _answered(_caller(user).post(f"approvals/{approval.id}/verdict/", body))


def by_api_proposal(approval: Approval, user: User, fingerprint: str) -> str:
    body = {"arguments": CHANGED, "fingerprint": fingerprint, "reason": "less"}
    return _answered(_caller(user).post(f"approvals/{approval.id}/propose/", body))


def by_command(approval: Approval, user: User, fingerprint: str) -> str:
    command = ["decide_approval", str(approval.id), "approve", "--as", user.username]
    return _commanded(*command, "--fingerprint", fingerprint)


def by_command_proposal(approval: Approval, user: User, fingerprint: str) -> str:
    command = ["propose_changes", str(approval.id), "--arguments", json.dumps(CHANGED)]
    command += ["--reason", "less", "--as", user.username]
    return _commanded(*command, "--fingerprint", fingerprint)


def by_admin(approval: Approval, user: User, fingerprint: str) -> str:
    form = {"verdict": "approve", "fingerprint": fingerprint, "event_id": uuid4().hex}
    return _posted(user, reverse("admin:runs_approval_verdict", args=[approval.pk]), form)


def by_admin_batch(approval: Approval, user: User, fingerprint: str) -> str:
    form = {"pick": str(approval.pk), f"fingerprint-{approval.pk}": fingerprint}
    form[f"event-{approval.pk}"] = uuid4().hex
    return _posted(user, reverse("admin:runs_approval_batch"), form)


def by_admin_proposal(approval: Approval, user: User, fingerprint: str) -> str:
    form = {f"argument-{name}": str(value) for name, value in CHANGED.items()}
    form |= {"fingerprint": fingerprint, "reason": "less"}
    return _posted(user, reverse("admin:runs_approval_propose", args=[approval.pk]), form)


DOORS = [
    Door("Python", "decide", "python", None, by_python),
    Door("Python, a change", "propose", "python", None, by_python_proposal),
    Door("API", "decide", "api", "approvals.api:VerdictView.post", by_api),
    Door("API, a change", "propose", "api", "approvals.api:ProposeView.post", by_api_proposal),
    Door(
        "command",
        "decide",
        "command line",
        "approvals.management.commands.decide_approval:Command.act",
        by_command,
    ),
    Door(
        "command, a change",
        "propose",
        "command line",
        "approvals.management.commands.propose_changes:Command.act",
        by_command_proposal,
    ),
    Door("admin", "decide", "admin", "approvals.admin.words:sign", by_admin),
    Door("admin, several", "decide", "admin", "approvals.admin.words:sign", by_admin_batch),
    Door(
        "admin, a change",
        "propose",
        "admin",
        "approvals.admin.words:put_forward",
        by_admin_proposal,
    ),
]


def _told(act: Callable[[], Any]) -> str:
    try:
        act()
    except ApprovalError as error:
        return type(error).__name__
    return DONE


def _caller(user: User) -> Caller:
    return Caller(token=issue_token(user=user, name="test", scopes=SCOPES).secret)


def _answered(answer: Any) -> str:
    if answer.status_code == 200:
        return DONE
    slug: str = answer.json()["type"].rpartition(":")[2]
    return "".join(word.capitalize() for word in slug.split("-"))


def _posted(user: User, address: str, form: dict[str, str]) -> str:
    """What a page answers to somebody who may enter the admin and see requests."""
    User.objects.filter(pk=user.pk).update(is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_approval"))
    answer = browser_of(user).post(address, form)
    if answer.status_code == 302:
        is_lost = answer.headers["Location"].startswith(reverse("admin:login"))
        return "Unauthorized" if is_lost else DONE
    found = re.search(r'data-refused="(\w+)"', answer.content.decode())
    if found is None:
        assert answer.status_code == 200
        return DONE
    assert answer.status_code in {400, 403, 404, 409, 412}
    return found[1]


def _commanded(*command: str) -> str:
    try:
        call_command(*command, stdout=StringIO())
    except CommandError as error:
        return type(error.__cause__).__name__
    return DONE

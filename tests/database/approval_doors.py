"""Every entry point by which a person can say something about an approval, as one table.

`test_approvals_doors.py` holds each of them against every rule, and fails where code calls
`decide` or `propose` from a place that no door here names. To add an entry point: write a
driver that goes through it as its callers do, and put it into `DOORS`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from typing import Any, Literal

from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError

from agentops.tokens import issue_token
from approvals.commands import propose
from approvals.errors import ApprovalError
from runs.access import SCOPES
from runs.models import Approval
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
    # The admin's doors go here.
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


def _commanded(*command: str) -> str:
    try:
        call_command(*command, stdout=StringIO())
    except CommandError as error:
        return type(error.__cause__).__name__
    return DONE

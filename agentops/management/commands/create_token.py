"""`create_token`: a secret that lets a program use the API."""

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from agentops.notifications.receivers import check_receiver, secret_of
from agentops.tokens import InvalidName, NoScope, UnknownScope, issue_token
from approvals.errors import ANSWERING, PERMISSION
from runs.access import APPROVALS_DECIDE, QUESTIONS_ANSWER, SCOPES
from runs.management.base import KernelCommand

# A scope of these is worth nothing to a user without the permission.
NEEDED = {APPROVALS_DECIDE: PERMISSION, QUESTIONS_ANSWER: ANSWERING}


class Command(KernelCommand):
    help = "Create an API token and print it, once. " + " ".join(
        f"{scope}: {meaning}." for scope, meaning in SCOPES.items()
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", help="what the token is for")
        parser.add_argument("--scopes", required=True, help=f"of: {','.join(SCOPES)}")
        parser.add_argument(
            "--user", help="whose token it is, made if missing; the token's name if left out"
        )
        parser.add_argument("--groups", default="", help="groups that the user joins")
        parser.add_argument(
            "--webhook-url",
            default="",
            metavar="URL",
            help="is told when a call that its caller does not wait for any more is settled",
        )
        parser.add_argument("--days", type=int, help="how long it is valid; for ever if left out")

    def act(self, options: dict[str, Any]) -> None:
        days = options["days"]
        if days is not None and not 1 <= days <= 36_500:
            raise CommandError(f"--days: {days} is not possible; give a number of days from 1.")
        webhook_url = check_receiver(options["webhook_url"])
        try:
            with transaction.atomic():
                user = _find_or_make_user(options["user"] or options["name"])
                for name in _names(options["groups"]):
                    user.groups.add(_find_or_make_group(name))
                scopes = _names(options["scopes"])
                given = [one for scope, one in NEEDED.items() if scope in scopes]
                given = [one for one in given if _give(user, one)]
                issued = issue_token(
                    user=user,
                    name=options["name"],
                    scopes=scopes,
                    expires_at=timezone.now() + timedelta(days=days) if days else None,
                    webhook_url=webhook_url,
                )
        except (UnknownScope, NoScope, InvalidName) as error:
            raise CommandError(str(error)) from error
        row = issued.row
        signed_with = secret_of(webhook_url) if webhook_url else None
        if self.as_json:
            self.show_json(
                {
                    "token": issued.secret,
                    "name": row.name,
                    "prefix": row.prefix,
                    "user": user.get_username(),
                    "groups": sorted(user.groups.values_list("name", flat=True)),
                    "permissions_given": given,
                    "scopes": row.scopes,
                    "expires_at": row.expires_at.isoformat() if row.expires_at else None,
                    "webhook_url": row.webhook_url or None,
                    "webhook_secret": signed_with,
                }
            )
            return
        self.say(f"Token {row.name!r} of {user.get_username()}: {', '.join(row.scopes)}.")
        for permission in given:
            self.say(f"{user.get_username()} has the permission {permission} from now on.")
        self.say("It is shown this once; send it as the header")
        self.say(f"Authorization: Token {issued.secret}")
        if signed_with:
            self.say(f"What is sent to {webhook_url} is signed with {signed_with}")


def _find_or_make_user(username: str) -> User:
    user = User(username=username)
    user.set_unusable_password()
    try:
        user.clean_fields(exclude=["password"])
    except ValidationError as error:
        raise CommandError(
            f"--user: {username[:80]!a} cannot be a user's name: {' '.join(error.messages)}"
        ) from error
    found = User.objects.filter(username=username).first()
    if found is None:
        user.save()
        return user
    if not found.is_active:
        raise CommandError(f"--user: {username!r} is not active; name another user.")
    return found


def _give(user: User, permission: str) -> bool:
    """Give a permission; False where the user had it."""
    if user.has_perm(permission):
        return False
    app, _, codename = permission.partition(".")
    user.user_permissions.add(
        Permission.objects.get(content_type__app_label=app, codename=codename)
    )
    return True


def _find_or_make_group(name: str) -> Group:
    if len(name) > 150 or not name.isprintable():
        raise CommandError(
            f"--groups: {name[:80]!a} cannot be a group's name; use up to 150 characters."
        )
    return Group.objects.get_or_create(name=name)[0]


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]

"""Webhooks that belong to one token: its holder is told of its own calls, and of nothing else.

Guarantees: an address is one that the settings would take too (encrypted, or loopback), so
nothing travels in clear. Each has a secret of its own, made from the installation's and the
address, so who receives at one cannot write to another in our name. The address of a token that
can no longer be used is told nothing more.

Does not keep a token's holder from naming a host of the inner network: who makes tokens names it.
"""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

from django.conf import settings
from django.db.models import Min, Q, QuerySet
from django.db.models.functions import Now

from agentops.models import ApiToken, Delivery
from agentops.notifications.checks import problem_of_receiver
from runs.errors import InvalidInput
from runs.models import GatewayCall, Notice

# Each is a lane with a thread and a connection; the ones that wait longest go first.
MOST_LANES: Final = 8
PREFIX: Final = "whsec_"
_NAMED: Final = b"agentops webhook receiver\n"


def check_receiver(url: str) -> str:
    """The address as a token may have it. Raises InvalidInput."""
    if not url:
        return ""
    if problem := problem_of_receiver(url):
        raise InvalidInput(
            field="webhook_url",
            value=url,
            fix=f"It {problem}. Give an address like https://host/path, "
            "or http://127.0.0.1:PORT/path.",
        )
    if not settings.AGENTOPS_WEBHOOK_SECRET:
        raise InvalidInput(
            field="webhook_url",
            value=url,
            fix="Set AGENTOPS_WEBHOOK_SECRET first: its own secret is made from that one.",
        )
    return url


def secret_of(url: str) -> str:
    """What is sent to this address is signed with it: `whsec_…`, the same at every call."""
    secret: str = settings.AGENTOPS_WEBHOOK_SECRET
    if url in settings.AGENTOPS_WEBHOOK_URLS:
        return secret
    key = b64decode(secret.removeprefix(PREFIX))
    return PREFIX + b64encode(hmac.digest(key, _NAMED + url.encode(), "sha256")).decode()


def find_receivers(notices: Sequence[Notice]) -> dict[int, list[str]]:
    """By notice: the address of the token whose call it is about, if there is one."""
    wanted = {
        notice.operation_id: notice.pk
        for notice in notices
        if notice.kind == Notice.Kind.OPERATION_SETTLED
    }
    if not wanted or not settings.AGENTOPS_WEBHOOK_SECRET:
        return {}
    asked = GatewayCall.objects.filter(operation_id__in=wanted, scope__startswith="token:")
    scopes = dict(asked.values_list("operation_id", "scope"))
    tokens = {scope.removeprefix("token:") for scope in scopes.values()}
    urls = dict(_usable().filter(pk__in=tokens).values_list("pk", "webhook_url"))
    found: dict[int, list[str]] = {}
    for operation_id, scope in scopes.items():
        if url := urls.get(int(scope.removeprefix("token:"))):
            found[wanted[str(operation_id)]] = [url]
    return found


def find_due_addresses() -> list[str]:
    """The tokens' addresses that something is to be sent to now, the longest due first."""
    if not settings.AGENTOPS_WEBHOOK_SECRET:
        return []
    due = (
        Delivery.objects.filter(
            status=Delivery.Status.PENDING,
            channel=Delivery.Channel.WEBHOOK,
            next_try_at__lte=Now(),
            address__in=_usable().values("webhook_url"),
        )
        .exclude(address__in=settings.AGENTOPS_WEBHOOK_URLS)
        .values("address")
        .annotate(since=Min("next_try_at"))
        .order_by("since")
    )
    return [row["address"] for row in due[:MOST_LANES]]


def is_receiver(url: str) -> bool:
    """Whether a token that can be used has this address."""
    return bool(settings.AGENTOPS_WEBHOOK_SECRET) and _usable().filter(webhook_url=url).exists()


def _usable() -> QuerySet[ApiToken]:
    valid = Q(expires_at__isnull=True) | Q(expires_at__gt=Now())
    return ApiToken.objects.filter(valid, user__is_active=True).exclude(webhook_url="")

"""Callers of the API, with real tokens."""

import json
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from agentops.tokens import issue_token
from runs.access import SCOPES

_numbers = count(1)

# What a run looks like to callers, spelled out so that a change of it is meant.
RUN_FIELDS = {
    "id",
    "agent",
    "agent_version",
    "state",
    "objective",
    "input",
    "result",
    "error",
    "paused_at",
    "pause_reason",
    "cancel_requested",
    "waiting_for",
    "compensating",
    "priority",
    "parent",
    "depth",
    "children",
    "forked_from",
    "forked_at_step",
    "budget",
    "labels",
    "fence_token",
    "version",
    "lease",
    "wake_at",
    "uncertain",
    "spent",
    "created_at",
    "updated_at",
    "finished_at",
    "created_by",
}


@dataclass
class Caller:
    """Somebody with a token, or without one."""

    token: str | None = None
    client: Client = field(default_factory=lambda: Client(raise_request_exception=False))

    def get(self, address: str, **query: Any) -> Any:
        return self.client.get(full(address), query, headers=self._headers())

    def post(self, address: str, body: Any = None, *, key: str | None = None) -> Any:
        return self.post_raw(address, json.dumps(body if body is not None else {}), key=key)

    def post_raw(
        self,
        address: str,
        body: str | bytes,
        *,
        key: str | None = None,
        content_type: str = "application/json",
    ) -> Any:
        extra = {"Idempotency-Key": key} if key is not None else {}
        return self.client.post(
            full(address), body, content_type=content_type, headers={**self._headers(), **extra}
        )

    def send(self, method: str, address: str) -> Any:
        return self.client.generic(method, full(address), headers=self._headers())

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Token {self.token}"} if self.token else {}


def caller(*scopes: str, username: str | None = None) -> Caller:
    """A new caller with these scopes; with every scope if none is named."""
    user, _ = User.objects.get_or_create(username=username or f"caller{next(_numbers)}")
    issued = issue_token(user=user, name="test", scopes=scopes or SCOPES)
    return Caller(token=issued.secret)


def full(address: str) -> str:
    return address if address.startswith(("/", "http")) else f"/api/v1/{address}"

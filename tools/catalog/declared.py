"""What every factory of the catalog hands on to `@tool` unchanged.

Guarantees: the names and types are those of `tools.tool`, so that a wrong one is found by a type
checker, and by Python when the module is imported.
Does not list what a factory decides itself: name, effect type, provider, look-up.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypedDict

from tools.declarations import (
    Approve,
    IdempotencySupport,
    IntentScope,
    OnRepeatedIntent,
    Retry,
    Timeout,
)
from tools.spec import Compensation, Migration


class Declared(TypedDict, total=False):
    """Arguments of `@tool` that a user of a ready-made tool may give."""

    idempotency_support: IdempotencySupport
    idempotency_scope: str
    idempotency_retention: timedelta
    settle_window: timedelta
    reconcile_within: timedelta
    intent_key: Sequence[str]
    intent_scope: IntentScope
    on_repeated_intent: OnRepeatedIntent
    repeatable: bool
    parallel: bool
    compensation_handler: Compensation
    timeout_policy: Timeout
    retry_policy: Retry
    approval_policy: Approve
    resource_version: Callable[..., Any]
    sensitive: Sequence[str]
    describe: str | Callable[..., str] | None
    migrate_arguments: Migration

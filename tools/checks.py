"""System checks over the registered tools, run when the project starts.

Guarantees: a declaration that could not be recovered, or that means something else than
it says, is an Error with a hint before the first run; a safe but weak one is a Warning.
Does not call a tool or a provider: a declared promise may still be untrue.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, get_args

from django.core.checks import CheckMessage, Error, Warning

from tools.compensation import check_compensation, compensating_tool
from tools.declarations import (
    Approve,
    EffectType,
    IdempotencySupport,
    IntentScope,
    Lookup,
    OnRepeatedIntent,
    Provider,
)
from tools.describing import check_description
from tools.expression_types import find_never_equal
from tools.expressions import ARGUMENTS, RESERVED, check_expression, fields_of, variables_of
from tools.policy_rules import unsignable
from tools.registry import all_tools
from tools.spec import ToolSpec

# What a column holds, and what a date can be.
LONGEST_NAME = 100
# Behind the word "audit " it is the name of a sweep.
LONGEST_AUDITED = 94
LONGEST_TIMEOUT = timedelta(days=1)
LONGEST_RETENTION = timedelta(days=36_500)


def check_tools(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """All messages about all registered tools; Django's check interface."""
    specs = all_tools()
    found = [message for spec in specs for check in _CHECKS for message in check(spec)]
    return found + list(_provider_conflicts(specs))


def _unsafe_effect(spec: ToolSpec) -> Iterator[CheckMessage]:
    if spec.effect_type is EffectType.IDEMPOTENT_WRITE and spec.idempotency_support == "none":
        yield Error(
            "An IDEMPOTENT_WRITE whose provider supports neither keys nor natural ids.",
            hint="Declare idempotency_support, or make it a NON_IDEMPOTENT_WRITE.",
            obj=_named(spec),
            id="tools.E001",
        )
    if spec.effect_type is EffectType.TRANSACTIONAL and spec.is_async:
        yield Error(
            "A TRANSACTIONAL tool that is async would run outside its transaction.",
            hint="Write it as a plain function over Django's database connection.",
            obj=_named(spec),
            id="tools.E002",
        )


def _alone(spec: ToolSpec) -> Iterator[CheckMessage]:
    if spec.parallel and spec.effect_type is EffectType.TRANSACTIONAL:
        yield Error(
            "A TRANSACTIONAL tool cannot be parallel: it runs in the run's own transaction.",
            hint="Remove parallel=True.",
            obj=_named(spec),
            id="tools.E024",
        )


def _unknown_words(spec: ToolSpec) -> Iterator[CheckMessage]:
    given: list[tuple[str, str, Any]] = [
        ("idempotency_support", spec.idempotency_support, IdempotencySupport),
        ("intent_scope", spec.intent_scope, IntentScope),
        ("on_repeated_intent", spec.on_repeated_intent, OnRepeatedIntent),
    ]
    if spec.provider:
        given.append(("lookup", spec.provider.lookup, Lookup))
    for field, value, words in given:
        if value not in get_args(words):
            yield Error(
                f"{field}={value!r} is not a known word.",
                hint=f"Use one of: {', '.join(get_args(words))}.",
                obj=_named(spec),
                id="tools.E003",
            )


def _approval(spec: ToolSpec) -> Iterator[CheckMessage]:
    approve = spec.approval_policy
    if approve is None:
        return
    problem = (
        check_expression(approve.when, spec.argument_names)
        or _no_argument(spec, approve)
        or find_never_equal(approve.when, [spec])
    )
    if problem is not None:
        yield Error(
            f"approval_policy: when={approve.when!r} is no rule: {problem}",
            hint="Write a CEL expression over the tool's arguments that yields true or false.",
            obj=_named(spec),
            id="tools.E004",
        )
    elif hidden := sorted(variables_of(approve.when) & RESERVED & set(spec.argument_names)):
        yield Warning(
            f"approval_policy: {', '.join(hidden)} in when={approve.when!r} is not the argument "
            "of that name, but what every rule may ask about.",
            hint=f"Write arguments.{hidden[0]} for the argument, or rename it.",
            obj=_named(spec),
            id="tools.W007",
        )
    for field, told, fix in unsignable(approve):
        yield Error(
            f"approval_policy: {field}: {told}", hint=fix, obj=_named(spec), id="tools.E005"
        )
    named: dict[str, object] = {"groups": approve.groups, "escalate_to": approve.escalate_to}
    for field, groups in named.items():
        if isinstance(groups, str):
            yield Error(
                f"approval_policy: {field} is one text, so every letter would be a group.",
                hint=f"Write {field}=({groups!r},).",
                obj=_named(spec),
                id="tools.E006",
            )


def _no_argument(spec: ToolSpec, approve: Approve) -> str | None:
    """Behind has() a misspelt argument would be false for ever, and the rule never ask."""
    unknown = sorted(fields_of(approve.when, ARGUMENTS) - set(spec.argument_names))
    there_are = ", ".join(spec.argument_names) or "none"
    return f"unknown argument arguments.{unknown[0]}; there are: {there_are}" if unknown else None


def _argument_names(spec: ToolSpec) -> Iterator[CheckMessage]:
    known = ", ".join(spec.argument_names) or "none"
    for number, field, names in (
        ("E007", "intent_key", spec.intent_key),
        ("E008", "sensitive", spec.sensitive),
    ):
        if missing := [name for name in names if name not in spec.argument_names]:
            yield Error(
                f"{field} names no argument: {', '.join(missing)}.",
                hint=f"The arguments are: {known}.",
                obj=_named(spec),
                id=f"tools.{number}",
            )
    if spec.intent_scope == "global" and not spec.intent_key and not spec.repeatable:
        yield Error(
            "intent_scope='global' needs an intent_key.",
            hint="Name the arguments that make two calls the same business action.",
            obj=_named(spec),
            id="tools.E009",
        )


def _numbers(spec: ToolSpec) -> Iterator[CheckMessage]:
    seconds = spec.timeout_policy.seconds
    if not (math.isfinite(seconds) and seconds > 0):
        yield Error(
            f"timeout_policy: {seconds} seconds is no time-out.",
            hint="Give a positive number of seconds.",
            obj=_named(spec),
            id="tools.E010",
        )
    retry = spec.retry_policy
    if retry.max_attempts < 1 or not 0 <= retry.first_delay <= retry.max_delay < math.inf:
        yield Error(
            "retry_policy: needs max_attempts >= 1 and 0 <= first_delay <= max_delay.",
            hint="max_attempts=1 means that a call is never tried again.",
            obj=_named(spec),
            id="tools.E011",
        )
    retention = spec.idempotency_retention
    if spec.settle_window < timedelta(0) or (retention is not None and retention <= timedelta(0)):
        yield Error(
            "settle_window and idempotency_retention must not be negative, nor retention zero.",
            hint="Leave out a retention that the provider does not publish.",
            obj=_named(spec),
            id="tools.E012",
        )


def _settling(spec: ToolSpec) -> Iterator[CheckMessage]:
    if spec.reconcile_within <= timedelta(0):
        yield Error(
            f"reconcile_within={spec.reconcile_within} leaves no time to ask the provider.",
            hint="Say for how long an unknown operation is looked up before a person is asked.",
            obj=_named(spec),
            id="tools.E018",
        )
    settles = spec.effect_type is EffectType.NON_IDEMPOTENT_WRITE and spec.reconcile_handler
    if settles and spec.reconcile_within <= spec.settle_window:
        yield Warning(
            "The objective ends before the settle window, so an unknown call is never sent again.",
            hint="Make reconcile_within clearly longer than settle_window.",
            obj=_named(spec),
            id="tools.W006",
        )


def _sizes(spec: ToolSpec) -> Iterator[CheckMessage]:
    named = {"the tool's name": spec.name, "provider": spec.provider_name, "account": spec.account}
    for what, text in named.items():
        if len(text) > LONGEST_NAME:
            yield Error(
                f"{what} has {len(text)} characters.",
                hint=f"Use at most {LONGEST_NAME}.",
                obj=_named(spec),
                id="tools.E015",
            )
    kept = spec.idempotency_retention
    if spec.timeout_policy.seconds > LONGEST_TIMEOUT.total_seconds():
        yield Error(
            f"timeout_policy: {spec.timeout_policy.seconds} seconds hold a run for too long.",
            hint=f"Use at most {LONGEST_TIMEOUT}; ask for longer work and look it up later.",
            obj=_named(spec),
            id="tools.E016",
        )
    if kept is not None and kept > LONGEST_RETENTION:
        yield Error(
            "idempotency_retention is beyond what a date can hold.",
            hint=f"Use at most {LONGEST_RETENTION.days} days for keys that never expire.",
            obj=_named(spec),
            id="tools.E017",
        )


def _handlers(spec: ToolSpec) -> Iterator[CheckMessage]:
    for field in ("reconcile_handler", "compensation_handler", "resource_version"):
        handler = getattr(spec, field)
        # A compensation may be a tool itself; its arguments come from the kernel.
        is_tool = field == "compensation_handler" and compensating_tool(spec) is not None
        if handler is None or is_tool or _takes(handler, 1):
            continue
        yield Error(
            f"{field} cannot be called with a call alone.",
            hint="Make it a function that takes one argument, the Call.",
            obj=_named(spec),
            id="tools.E013",
        )


def _migration(spec: ToolSpec) -> Iterator[CheckMessage]:
    migrate = spec.migrate_arguments
    if migrate is None or (_takes(migrate, 2) and not inspect.iscoroutinefunction(migrate)):
        return
    yield Error(
        "migrate_arguments cannot be called with arguments and the version they were stored for.",
        hint="Make it a plain function (arguments: dict, from_version: str) -> dict.",
        obj=_named(spec),
        id="tools.E023",
    )


def _audit(spec: ToolSpec) -> Iterator[CheckMessage]:
    if spec.audit_handler is None:
        return
    if not _takes(spec.audit_handler, 1):
        yield Error(
            "audit_handler cannot be called with an audit alone.",
            hint="Make it a function that takes one argument, the Audit, and yields Effects.",
            obj=_named(spec),
            id="tools.E026",
        )
    if spec.effect_type in (EffectType.READ, EffectType.TRANSACTIONAL):
        yield Error(
            f"audit_handler: a {spec.effect_type} tool has no effects at a provider to list.",
            hint="Remove it.",
            obj=_named(spec),
            id="tools.E027",
        )
    if len(spec.name) > LONGEST_AUDITED:
        yield Error(
            f"audit_handler: the tool's name has {len(spec.name)} characters.",
            hint=f"Use at most {LONGEST_AUDITED}: how far it is audited is kept under its name.",
            obj=_named(spec),
            id="tools.E028",
        )


def _description(spec: ToolSpec) -> Iterator[CheckMessage]:
    problem = check_description(spec)
    if problem is not None:
        yield Error(
            f"describe: {problem}.",
            hint=(
                "Write a text with {name} for arguments, or a function of the arguments: "
                f"{', '.join(spec.argument_names) or 'none'}."
            ),
            obj=_named(spec),
            id="tools.E019",
        )


def _weak(spec: ToolSpec) -> Iterator[CheckMessage]:
    if spec.idempotency_support == "key" and spec.idempotency_retention is None:
        yield Warning(
            "The provider's keys have no declared retention, so none is ever sent twice.",
            hint="Declare idempotency_retention as the provider documents it.",
            obj=_named(spec),
            id="tools.W001",
        )
    kept = spec.idempotency_retention
    if kept is not None and kept.total_seconds() * 0.9 <= spec.timeout_policy.seconds:
        yield Warning(
            "A key may be forgotten before the call's deadline, so none is ever sent twice.",
            hint="Make timeout_policy much shorter than idempotency_retention.",
            obj=_named(spec),
            id="tools.W004",
        )
    remote_write = spec.effect_type.is_write and spec.effect_type is not EffectType.TRANSACTIONAL
    can_be_asked = spec.provider is None or spec.provider.lookup != "none"
    if remote_write and can_be_asked and spec.reconcile_handler is None:
        yield Warning(
            "A write without reconcile_handler: unknown outcomes may end with a person.",
            hint="Give it a function that asks the provider for the operation.",
            obj=_named(spec),
            id="tools.W002",
        )
    if not spec.description:
        yield Warning(
            "The tool has no description, and an llm reads nothing else about it.",
            hint="Write a docstring.",
            obj=_named(spec),
            id="tools.W003",
        )


def _provider_conflicts(specs: Sequence[ToolSpec]) -> Iterator[CheckMessage]:
    first: dict[tuple[str, str], tuple[Provider, str]] = {}
    for spec in specs:
        if spec.provider is None:
            continue
        key = (spec.provider.name, spec.provider.account)
        declared, by = first.setdefault(key, (spec.provider, spec.name))
        if declared != spec.provider:
            yield Error(
                f"Provider {key[0]!r} is declared differently for {by} and {spec.name}.",
                hint="Share one Provider; override single facts in @tool.",
                obj=_named(spec),
                id="tools.E014",
            )


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return True


def _named(spec: ToolSpec) -> str:
    return f"tool {spec.name}"


_CHECKS: tuple[Callable[[ToolSpec], Iterator[CheckMessage]], ...] = (
    _unsafe_effect,
    _alone,
    _unknown_words,
    _approval,
    _argument_names,
    _numbers,
    _settling,
    _sizes,
    _handlers,
    check_compensation,
    _migration,
    _audit,
    _description,
    _weak,
)

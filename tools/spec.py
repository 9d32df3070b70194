"""A tool: a typed function and how it is recovered.

Guarantees: everything a recovery needs to know of a tool is on its `ToolSpec`, complete
and frozen from the moment of import; `version` changes when its arguments or its declared
policies do, and not when only the words about it do; `arguments_version` changes when the
schema of its arguments does, and with nothing else.
Does not check that the declarations are safe together: `checks.py` does. Does not notice that
an argument whose type stayed means something else now: whoever changes that changes its name.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar, Union

from tools import registry
from tools.arguments import ArgumentModel
from tools.call import Call, Compensated
from tools.canonical import canonical_json
from tools.declarations import (
    Approve,
    EffectType,
    IdempotencySupport,
    IntentScope,
    OnRepeatedIntent,
    Provider,
    Retry,
    Timeout,
    in_order,
)

__all__ = [
    "Approve",
    "Call",
    "Compensated",
    "EffectType",
    "Provider",
    "Retry",
    "Timeout",
    "ToolSpec",
    "tool",
]

Function = TypeVar("Function", bound=Callable[..., Any])
# What corrects a committed effect: a tool, its spec or its name, or a function of the call.
Compensation = Union[Callable[..., Any], "ToolSpec", str]
# `(arguments, from_version) -> arguments`.
Migration = Callable[[dict[str, Any], str], dict[str, Any]]
VERSION_DIGITS = 12
RECONCILE_WITHIN = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """One registered tool. The idempotency facts are the tool's own or its provider's."""

    name: str
    description: str
    function: Callable[..., Any] = field(repr=False)
    is_async: bool
    effect_type: EffectType
    provider: Provider | None
    idempotency_support: IdempotencySupport
    idempotency_scope: str
    idempotency_retention: timedelta | None
    settle_window: timedelta
    reconcile_within: timedelta
    intent_key: tuple[str, ...]
    intent_scope: IntentScope
    on_repeated_intent: OnRepeatedIntent
    repeatable: bool
    parallel: bool
    reconcile_handler: Callable[..., Any] | None
    compensation_handler: "Compensation | None"
    timeout_policy: Timeout
    retry_policy: Retry
    approval_policy: Approve | None
    resource_version: Callable[..., Any] | None
    sensitive: tuple[str, ...]
    # What a call would do in one sentence, for people; never part of what they sign.
    describe: str | Callable[..., str] | None = None
    # From arguments that were stored under another schema, and its version, to today's.
    migrate_arguments: Migration | None = None
    # Lists the provider's effects, for whoever compares them; no recovery relies on it.
    audit_handler: Callable[..., Any] | None = None
    argument_model: ArgumentModel = field(repr=False, compare=False)
    version: str = field(init=False)
    arguments_version: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", _version(self))
        schema = without_prose(self.argument_model.json_schema())
        object.__setattr__(self, "arguments_version", _short_hash(schema))

    @property
    def provider_name(self) -> str:
        return self.provider.name if self.provider else ""

    @property
    def account(self) -> str:
        return self.provider.account if self.provider else ""

    @property
    def argument_names(self) -> tuple[str, ...]:
        return self.argument_model.names

    def arguments_schema(self) -> dict[str, Any]:
        """JSON schema of the arguments object, made anew: the caller may change it."""
        return self.argument_model.json_schema()

    def validate(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Normalised JSON arguments, defaults included. Raises InvalidArguments."""
        return self.argument_model.validate(raw, sensitive=self.sensitive)

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Python values of normalised arguments, by name. Raises InvalidArguments."""
        return self.argument_model.bind(arguments, sensitive=self.sensitive)

    def intent_values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What names the business intent: the `intent_key` arguments, or all without one.

        JSON in which equal amounts are equal ("1.50" and "1.5" are one intent). Without a key, an
        argument that is empty, as it is by default, says nothing: one that a deployment adds so
        makes no new intent of an old one.
        """
        if self.intent_key:
            return self._plain_values(arguments, self.intent_key)
        unsaid = self.argument_model.empty_defaults
        values = self._plain_values(arguments, self.argument_names)
        return {
            name: value
            for name, value in values.items()
            if name not in unsaid or canonical_json(unsaid[name]) != canonical_json(value)
        }

    def means_the_same(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Whether two sets of normalised arguments differ in nothing but how amounts are spelled.

        Raises InvalidArguments where one does not fit any more.
        """
        plain = (self._plain_values(arguments, self.argument_names) for arguments in (one, other))
        return len({canonical_json(values) for values in plain}) == 1

    def _plain_values(self, arguments: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        bound = self.bind(arguments)
        return {
            name: _plain(bound[name]) if isinstance(bound[name], Decimal) else arguments[name]
            for name in names
        }


def tool(
    *,
    effect_type: EffectType,
    provider: Provider | None = None,
    name: str | None = None,
    idempotency_support: IdempotencySupport | None = None,
    idempotency_scope: str | None = None,
    idempotency_retention: timedelta | None = None,
    settle_window: timedelta | None = None,
    reconcile_within: timedelta = RECONCILE_WITHIN,
    intent_key: Sequence[str] = (),
    intent_scope: IntentScope = "run",
    on_repeated_intent: OnRepeatedIntent = "return_recorded",
    repeatable: bool = False,
    parallel: bool = False,
    reconcile_handler: Callable[..., Any] | None = None,
    compensation_handler: "Compensation | None" = None,
    timeout_policy: Timeout = Timeout(),  # noqa: B008 (frozen)
    retry_policy: Retry = Retry(),  # noqa: B008 (frozen)
    approval_policy: Approve | None = None,
    resource_version: Callable[..., Any] | None = None,
    sensitive: Sequence[str] = (),
    describe: str | Callable[..., str] | None = None,
    migrate_arguments: Migration | None = None,
    audit_handler: Callable[..., Any] | None = None,
    argument_model: ArgumentModel | None = None,
) -> Callable[[Function], Function]:
    """Register a function `(call, **arguments)` as a tool; returns it with a `.spec`.

    `reconcile_within` is the reconciliation objective: how long the provider is asked about
    an unknown operation before a person is. `describe` tells a person in one sentence what a
    call would do: a template ("Refund {amount} of order {order_id}") or a function of the
    arguments. `compensation_handler` corrects a committed effect: a tool (or its name), which is
    called with those of the committed operation's arguments that it names, or a function
    `Call -> ToolCall | None`, where None says that nothing is to be corrected. A `parallel`
    write may leave beside its neighbours in one decision, as a READ does anyhow; any other
    write is made alone, after those before it and before those behind it. `migrate_arguments` is
    given arguments that were stored under an earlier schema, and its `arguments_version`, and
    returns them in today's form, or raises: it asks nobody and keeps nothing. An `audit_handler`
    is given an `Audit` and yields an `Effect` for each one that the provider has in its span. An
    `argument_model` takes the place of the function's annotations (`schema_arguments.py`).

    Raises InvalidTool for a signature without types, DuplicateTool for a taken name.
    """
    facts = provider or Provider(name="")

    def register(function: Function) -> Function:
        tool_name = name or function.__name__
        spec = ToolSpec(
            name=tool_name,
            description=inspect.getdoc(function) or "",
            function=function,
            is_async=inspect.iscoroutinefunction(function),
            effect_type=effect_type,
            provider=provider,
            idempotency_support=idempotency_support or facts.idempotency_support,
            idempotency_scope=(
                facts.idempotency_scope if idempotency_scope is None else idempotency_scope
            ),
            idempotency_retention=(
                facts.idempotency_retention
                if idempotency_retention is None
                else idempotency_retention
            ),
            settle_window=facts.settle_window if settle_window is None else settle_window,
            reconcile_within=reconcile_within,
            intent_key=_names(intent_key),
            intent_scope=intent_scope,
            on_repeated_intent=on_repeated_intent,
            repeatable=repeatable,
            parallel=parallel,
            reconcile_handler=reconcile_handler,
            compensation_handler=compensation_handler,
            timeout_policy=timeout_policy,
            retry_policy=retry_policy,
            approval_policy=approval_policy,
            resource_version=resource_version,
            sensitive=_names(sensitive),
            describe=describe,
            migrate_arguments=migrate_arguments,
            audit_handler=audit_handler,
            argument_model=argument_model or ArgumentModel(tool=tool_name, function=function),
        )
        registry.register(spec)
        function.spec = spec  # type: ignore[attr-defined]
        return function

    return register


def _names(given: Sequence[str]) -> tuple[str, ...]:
    # `intent_key="order_id"` is one name, not eight letters.
    return (given,) if isinstance(given, str) else in_order(given)


def _plain(value: Decimal) -> str:
    return format(value.normalize(), "f") if value else "0"


def _version(spec: ToolSpec) -> str:
    return _short_hash(declaration(spec))


def declaration(spec: ToolSpec) -> dict[str, Any]:
    """What a stored operation relies on, and `version` is a digest of; descriptions are not."""
    declared = {
        "name": spec.name,
        "arguments": without_prose(spec.argument_model.json_schema()),
        "effect_type": spec.effect_type,
        "provider": spec.provider.promises() if spec.provider else None,
        "idempotency": [
            spec.idempotency_support,
            spec.idempotency_scope,
            spec.idempotency_retention,
            spec.settle_window,
            spec.reconcile_within,
        ],
        "intent": [
            spec.intent_key,
            spec.intent_scope,
            spec.on_repeated_intent,
            spec.repeatable,
        ],
        "parallel": spec.parallel,
        "handlers": [
            _handler_name(handler)
            for handler in (
                spec.reconcile_handler,
                spec.compensation_handler,
                spec.resource_version,
            )
        ],
        "timeout": asdict(spec.timeout_policy),
        "retry": asdict(spec.retry_policy),
        "approval": asdict(spec.approval_policy) if spec.approval_policy else None,
        "sensitive": spec.sensitive,
    }
    plain: dict[str, Any] = json.loads(_plain_json(declared))
    return plain


def _short_hash(declared: Any) -> str:
    text = _plain_json(declared)
    return hashlib.sha256(text.encode()).hexdigest()[:VERSION_DIGITS]


def _plain_json(declared: Any) -> str:
    # Not the canonical form: a nonsensical number must live until the system checks name it.
    return json.dumps(declared, sort_keys=True, default=str)


def _handler_name(handler: "Compensation | None") -> str | None:
    match handler:
        case str(name) | ToolSpec(name=name):
            return name
        case _:
            return getattr(handler, "__qualname__", None)


# Maps of names to schemas: a key "title" in them is somebody's field, not prose.
_NAMED_SCHEMAS = ("properties", "$defs", "patternProperties")
_VALUES = ("default", "const", "enum", "examples")


def without_prose(schema: Any) -> Any:
    """A JSON schema without the words that are for readers alone."""
    if isinstance(schema, list):
        return [without_prose(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    bare: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("title", "description", "examples"):
            continue
        if key in _NAMED_SCHEMAS and isinstance(value, dict):
            bare[key] = {name: without_prose(item) for name, item in value.items()}
        else:
            bare[key] = value if key in _VALUES else without_prose(value)
    return bare

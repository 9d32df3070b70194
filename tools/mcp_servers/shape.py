"""What the file of MCP servers may say: the words of `@tool` and `mcp_tool`, in YAML or JSON.

Guarantees: a misspelt word is refused, never without effect; no secret has a place in it, only
the names of environment variables.
Does not judge whether declarations are safe together: the system checks of tools do.
"""

from dataclasses import fields
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from tools.catalog.mcp_call import HttpServer, StdioServer
from tools.catalog.mcp_call.server import McpServer
from tools.declarations import (
    Approve,
    EffectType,
    IdempotencySupport,
    IntentScope,
    Lookup,
    OnRepeatedIntent,
    Provider,
    Rate,
    Retry,
    Timeout,
)


def _only(kind: type[Any]) -> BeforeValidator:
    """Refuse words that the dataclass does not have: Pydantic would drop them."""
    known = [field.name for field in fields(kind)]

    def check(given: Any) -> Any:
        if isinstance(given, dict) and (unknown := [name for name in given if name not in known]):
            raise ValueError(f"it knows no {unknown[0]!r:.80}; there are: {', '.join(known)}")
        return given

    return BeforeValidator(check)


VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
ToolName = Annotated[str, Field(min_length=1, max_length=128)]
# As llm providers take names of tools, behind which ours stand.
OurName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]
FunctionPath = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
# Their values may be secrets that somebody put where a name belongs.
HIDDEN: Final = frozenset({"url", "url_env", "token_env", "headers_env", "environment", "command"})


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LookUp(_Strict):
    """A reading tool of the same server that tells what became of an operation.

    A text among `arguments` may hold `{idempotency_key}`, `{operation_id}` or the name of an
    argument of the call; `{{` and `}}` are braces. `found` is the place ("order", "result.items")
    in its structured content: an object, a text, true or one of these in a list means committed;
    null, false or nothing in it means not found; no such place, a number or more than one hit
    says nothing. `external_ref` is a place in what was found, which an object has to have then.
    """

    tool: ToolName
    arguments: dict[str, Any] = {}
    found: Annotated[str, Field(min_length=1)]
    external_ref: str = ""


class ProviderEntry(_Strict):
    """What the server promises, by its manual; the worst case without."""

    account: str = ""
    idempotency_support: IdempotencySupport = "none"
    idempotency_scope: str = ""
    idempotency_retention: timedelta | None = None
    lookup: Lookup = "none"
    settle_window: timedelta = timedelta(minutes=15)
    rate: Annotated[Rate | None, _only(Rate)] = None
    concurrency: int | None = None


class ToolEntry(_Strict):
    """One tool of the server: how it is recovered, and the schema that was agreed to."""

    effect_type: EffectType
    input_schema: dict[str, Any]
    name: OurName | None = None
    description: Annotated[str, Field(max_length=4000)] = ""
    look_up: LookUp | None = None
    key_meta: str = "idempotencyKey"
    key_argument: str = ""
    fence_meta: str = ""
    errors_are_final: bool = False
    external_ref: str = ""
    idempotency_support: IdempotencySupport | None = None
    idempotency_scope: str | None = None
    idempotency_retention: timedelta | None = None
    settle_window: timedelta | None = None
    reconcile_within: timedelta = timedelta(hours=1)
    intent_key: tuple[str, ...] = ()
    intent_scope: IntentScope = "run"
    on_repeated_intent: OnRepeatedIntent = "return_recorded"
    repeatable: bool = False
    parallel: bool = False
    compensation_handler: str | None = None
    resource_version: FunctionPath | None = None
    reconcile_handler: FunctionPath | None = None
    migrate_arguments: FunctionPath | None = None
    timeout_policy: Annotated[Timeout, _only(Timeout)] = Timeout()
    retry_policy: Annotated[Retry, _only(Retry)] = Retry()
    approval_policy: Annotated[Approve | None, _only(Approve)] = None
    sensitive: tuple[str, ...] = ()
    describe: str | None = None

    @model_validator(mode="after")
    def _one_look_up(self) -> Self:
        if self.look_up is not None and self.reconcile_handler is not None:
            raise ValueError("give look_up or reconcile_handler, not both")
        return self


class ServerEntry(_Strict):
    """Where the server is, what it promises, and which of its tools may be called."""

    url: str | None = None
    url_env: VariableName | None = None
    token_env: VariableName | Literal[""] = ""
    headers_env: dict[HeaderName, VariableName] = {}
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    environment: tuple[VariableName, ...] = ()
    folder: str | None = None
    provider: ProviderEntry = ProviderEntry()
    tools: dict[ToolName, ToolEntry] = {}

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if [self.url, self.url_env, self.command].count(None) != 2:
            raise ValueError("give one of url, url_env and command")
        if self.url is not None and not _is_address(self.url):
            raise ValueError("url: give http:// or https:// and a host, without user or password")
        if self.command is not None and (self.token_env or self.headers_env):
            raise ValueError("token_env and headers_env are for a url; a command has environment")
        if self.command is None and (self.environment or self.folder):
            raise ValueError("environment and folder are for a command")
        return self

    def server(self) -> McpServer:
        if self.command is not None:
            return StdioServer(
                command=self.command, environment=self.environment, folder=self.folder
            )
        return HttpServer(
            url_env=self.url_env or "",
            address=self.url or "",
            token_env=self.token_env,
            headers_env=self.headers_env,
        )

    def provider_of(self, name: str) -> Provider:
        facts = {key: getattr(self.provider, key) for key in self.provider.model_fields_set}
        return Provider(name=f"mcp:{name}", **facts)


class ServersFile(_Strict):
    """The whole file."""

    servers: dict[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,39}$")], ServerEntry]


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        )
    except ValueError:
        return False

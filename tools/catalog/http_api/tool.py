"""A call of an HTTP API as a tool, from a declaration alone.

Guarantees: one request per call, with the operation's key, the same bytes at each send, and
gone before the deadline or not at all; a success is what the declaration lists, a refusal what
the provider documents as one, and everything else is unknown; what cannot be declared safely is
refused when the module is imported.
Does not follow pages or links, and speaks JSON alone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack, assert_never

from pydantic import BaseModel

from tools.call import Call
from tools.catalog.arguments import sign
from tools.catalog.declared import Declared
from tools.catalog.http_api.answers import KeyMismatch, Says, UnexpectedAnswer, read_reference
from tools.catalog.http_api.declaring import check_declaration, check_look_up
from tools.catalog.http_api.look_up import (
    FindInList,
    FindOne,
    LookUp,
    judge_list,
    judge_one,
    look_up_address,
    look_up_checks,
)
from tools.catalog.http_api.provider import HttpApi
from tools.catalog.http_api.request import BadPlan, Method, Request, base_url, plan_request
from tools.catalog.http_api.templates import InvalidTemplate
from tools.catalog.secret import read_secret
from tools.catalog.sending import Answer, send
from tools.declarations import EffectType
from tools.errors import InvalidTool, NotSent, Rejected
from tools.outcome import describe
from tools.reconciled import Reconciled
from tools.results import external_ref as note_reference
from tools.spec import ToolSpec, tool


def http_tool(
    *,
    api: HttpApi,
    name: str,
    effect_type: EffectType,
    method: Method,
    path: str,
    arguments: type[BaseModel],
    description: str = "",
    query: Sequence[str] = (),
    body: Mapping[str, str] | None = None,
    also: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    result: type[BaseModel] | None = None,
    external_ref: str = "",
    succeeded: Collection[int] = (200, 201, 204),
    refused: Sequence[Says] = (),
    look_up: LookUp | None = None,
    **declared: Unpack[Declared],
) -> Callable[..., Any]:
    """Register a tool that makes one request; returns its function, with a `.spec`.

    `arguments` is a Pydantic model whose fields are the tool's arguments; its docstring is the
    description unless one is given. Those named in `path` ("/orders/{order_id}") and `query` go
    there; `body` maps places of the JSON body ("customer.id") to the others, and without it each
    goes under its own name (a GET or DELETE has no body: to the query). `also` adds texts to the
    body, such as {"metadata.operation_id": "{operation_id}"}; `headers` are sent as they are.

    `result` reads the answer, which else is the result as it came; `external_ref` is the place
    of the provider's reference in it. `succeeded` are the statuses that prove the effect,
    `refused` the answers documented as "refused, no effect". `declared` is what `@tool` takes.

    Raises InvalidTool for what could not be recovered, or could change the address.
    """
    names = tuple(arguments.model_fields)
    check_declaration(
        name=name,
        api=api,
        effect_type=effect_type,
        method=method,
        succeeded=succeeded,
        refused=refused,
    )
    if look_up is not None:
        check_look_up(name=name, look_up=look_up, names=names)
    try:
        request = plan_request(
            method=method, path=path, names=names, query=query, body=body, also=also or {}
        )
    except (BadPlan, InvalidTemplate) as error:
        raise InvalidTool(name, problem=str(error), fix="correct the declaration") from error
    endpoint = _Endpoint(
        api=api,
        request=request,
        is_write=effect_type.is_write,
        headers=headers or {},
        result=result,
        external_ref=external_ref,
        succeeded=succeeded,
        refused=refused,
    )

    def act(call: Call, /, **_: Any) -> Any:
        return endpoint.act(call)

    def find(call: Call) -> Reconciled[Any]:
        assert look_up is not None
        return endpoint.find(look_up, call, spec=act.spec)  # type: ignore[attr-defined]

    checks = (request.checks, look_up_checks(look_up, names=names))
    sign(act, name=name, description=description, arguments=arguments, checks=checks)
    return tool(
        name=name,
        provider=api.provider,
        effect_type=effect_type,
        reconcile_handler=None if look_up is None else find,
        **declared,
    )(act)


@dataclass(frozen=True, kw_only=True)
class _Endpoint:
    """One declared tool: what it asks, and how it reads what comes back."""

    api: HttpApi
    request: Request
    is_write: bool
    headers: Mapping[str, str]
    result: type[BaseModel] | None
    external_ref: str
    succeeded: Collection[int]
    refused: Sequence[Says]

    def act(self, call: Call) -> Any:
        token = self._token()
        try:
            url = base_url(self.api) + self.request.address(call)
            content = self.request.content(call)
        except NotSent:
            raise
        except Exception as error:
            raise NotSent(f"the request could not be built: {describe(error)}") from error
        headers = self._headers(token) | dict(self.headers)
        if self.is_write:
            headers |= self._protection(call)
        if content is not None:
            headers |= {"Content-Type": "application/json"}
        answer = send(call, method=self.request.method, url=url, headers=headers, content=content)
        self._raise_unless_succeeded(answer, call=call, token=token)
        said = answer.json()
        if reference := read_reference(said, self.external_ref):
            note_reference(reference)
        return self._read(said)

    def find(self, look_up: LookUp, call: Call, *, spec: ToolSpec) -> Reconciled[Any]:
        token = self._token()
        url = base_url(self.api) + look_up_address(look_up, call)
        answer = send(call, method="GET", url=url, headers=self._headers(token))
        if isinstance(look_up, FindOne) and any(says.fits(answer) for says in look_up.missing):
            return Reconciled.not_found()
        if answer.status != 200:
            raise UnexpectedAnswer(answer, token=token)
        match look_up:
            case FindOne():
                found = judge_one(
                    look_up, answer.json(), call=call, spec=spec, reference=self.external_ref
                )
            case FindInList():
                found = judge_list(
                    look_up, answer.json(), call=call, spec=spec, reference=self.external_ref
                )
            case _:
                assert_never(look_up)
        if found.verdict != "committed":
            return found
        return Reconciled.committed(self._read(found.result), found.external_ref, also=found.also)

    def _token(self) -> str:
        return read_secret(self.api.token_env) if self.api.token_env else ""

    def _headers(self, token: str) -> dict[str, str]:
        headers = {"Accept": "application/json", **self.api.headers}
        if token:
            headers[self.api.token_header] = f"{self.api.token_scheme} {token}".strip()
        return headers

    def _protection(self, call: Call) -> dict[str, str]:
        """The headers by which a provider knows a repeat, and a sender that was replaced."""
        headers = {}
        if self.api.key_header:
            key = call.idempotency_key
            headers[self.api.key_header] = f'"{key}"' if self.api.quoted_key else key
        if self.api.fence_header:
            headers[self.api.fence_header] = str(call.fence_token)
        return headers

    def _raise_unless_succeeded(self, answer: Answer, *, call: Call, token: str) -> None:
        if any(says.fits(answer) for says in self.api.mismatch):
            raise KeyMismatch(call.idempotency_key, answer, token=token)
        for says in self.api.not_executed:
            if says.fits(answer):
                raise NotSent(f"not executed: {says.words(answer, token=token)}")
        for says in self.refused:
            if says.fits(answer):
                raise Rejected(says.words(answer, token=token))
        if answer.status not in self.succeeded:
            raise UnexpectedAnswer(answer, token=token)

    def _read(self, said: Any) -> Any:
        return said if self.result is None else self.result.model_validate(said)

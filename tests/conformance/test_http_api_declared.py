"""What an HTTP tool's declaration may hold, where its arguments go, and what a look-up proves."""

import json
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from examples.shop.provider_process import ProviderProcess, provider_process
from tests.conformance.calls import Operation
from tests.conformance.targets.fault_proxy import AnswerInstead, FaultProxy
from tools import EffectType, Provider, Reconciled
from tools.catalog.http_api import FindInList, FindOne, HttpApi, Says, http_tool
from tools.errors import InvalidArguments, InvalidTool
from tools.outcome import Committed
from tools.registry import isolated_registry

KEYED = Provider(name="api", account="a", idempotency_support="key")


class Thing(BaseModel):
    """Make a thing."""

    name: str
    size: int = 1
    note: str | None = None


class OneOrder(BaseModel):
    """Look an order up."""

    order_id: Annotated[str, Field(min_length=1, description="as on the invoice")]


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProviderProcess]:
    with provider_process(tmp_path_factory.mktemp("provider") / "ledger.sqlite3") as process:
        yield process


@pytest.fixture
def proxy(provider: ProviderProcess) -> Iterator[FaultProxy]:
    with FaultProxy(provider.url) as fault_proxy:
        yield fault_proxy


def declare(base_url: str = "http://127.0.0.1:1", **changed: Any) -> Any:
    api = {"provider": KEYED, "base_url": base_url} | changed.pop("api", {})
    declared = {
        "api": HttpApi(**api),
        "name": "make",
        "effect_type": EffectType.IDEMPOTENT_WRITE,
        "method": "POST",
        "path": "/things/{name}",
        "arguments": Thing,
    }
    return http_tool(**declared | changed)


# -- Where the arguments go -----------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(name=st.text(max_size=30) | st.sampled_from(["..", ".", "a/b", "%2e%2e", "a?b#c", "@x:1"]))
def test_no_argument_changes_host_or_path(provider: ProviderProcess, name: str) -> None:
    with isolated_registry(), FaultProxy(provider.url) as proxy:
        declare(proxy.url)
        try:
            make = Operation("make", {"name": name})
        except InvalidArguments:
            return
        make.send()
        (seen,) = proxy.seen()
    path = seen.path
    assert path.startswith("/things/")
    assert unquote(path.removeprefix("/things/")) == name
    assert path.count("/") == 2
    assert not {"?", "#", "\\"} & set(path)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\nb", "a\x7f"])
def test_what_a_server_could_read_as_structure_is_no_argument_of_a_path(name: str) -> None:
    declare()
    with pytest.raises(InvalidArguments, match="name"):
        Operation("make", {"name": name})


def test_arguments_go_where_they_are_declared(proxy: FaultProxy) -> None:
    declare(
        proxy.url,
        query=("note",),
        body={"box.size": "size", "box.name": "name"},
        also={"box.of": "{operation_id}", "kind": "fixed"},
        headers={"X-Kind": "thing"},
    )
    make = Operation("make", {"name": "a b", "size": 3, "note": "x&y=z"})
    make.send()
    Operation("make", {"name": "c"}).send()
    first, second = proxy.seen()
    assert first.path == "/things/a%20b?note=x%26y%3Dz"
    assert json.loads(first.body) == {
        "box": {"size": 3, "name": "a b", "of": make.id},
        "kind": "fixed",
    }
    assert first.headers["X-Kind"] == "thing"
    assert second.path == "/things/c"


def test_without_a_body_declared_the_rest_goes_under_its_own_names(proxy: FaultProxy) -> None:
    declare(proxy.url)
    declare(proxy.url, name="drop", method="DELETE")
    Operation("make", {"name": "a", "size": 2}).send()
    Operation("drop", {"name": "a", "size": 2}).send()
    post, delete = proxy.seen()
    assert json.loads(post.body) == {"size": 2, "note": None}
    assert (delete.path, delete.body) == ("/things/a?size=2", b"")


def test_a_read_carries_no_key_and_is_described_by_its_model(proxy: FaultProxy) -> None:
    read = declare(
        proxy.url,
        name="order",
        effect_type=EffectType.READ,
        method="GET",
        path="/orders/{order_id}",
        arguments=OneOrder,
    )
    outcome = Operation("order", {"order_id": "17"}).send()
    assert isinstance(outcome, Committed)
    assert isinstance(outcome.result, dict)
    assert outcome.result["paid"] == "42.00"
    (seen,) = proxy.seen()
    assert "Idempotency-Key" not in seen.headers
    assert read.spec.description == "Look an order up."
    declared = read.spec.arguments_schema()["properties"]["order_id"]
    assert declared == {"type": "string", "minLength": 1, "description": "as on the invoice"}


# -- What is refused when it is declared ----------------------------------------------


class WithValidator(Thing):
    @field_validator("name")
    @classmethod
    def check(cls, name: str) -> str:
        return name


class WithAlias(BaseModel):
    name: Annotated[str, Field(alias="Name")]


class WithFactory(BaseModel):
    name: str = Field(default_factory=lambda: uuid.uuid4().hex)


LOOK_UP = {"path": "/things", "ours": {"id": "{operation_id}"}, "more": None}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"api": {"base_url": ""}}, "no one address"),
        ({"api": {"base_url_env": "URL"}}, "no one address"),
        ({"api": {"base_url": "api.example"}}, "no address like"),
        ({"api": {"base_url": "https://user:word@api.example"}}, "more than scheme"),
        ({"api": {"base_url": "https://api.example/?a=b"}}, "more than scheme"),
        ({"api": {"not_executed": (Says(500),)}}, "nothing was executed"),
        ({"method": "GET"}, "may be repeated by anybody"),
        ({"path": "things/{name}"}, "is no path"),
        ({"path": "/things?n={name}"}, "is no path"),
        ({"path": "/things/{nobody}"}, "no such argument"),
        ({"path": "/things/{name!r}"}, "no such argument"),
        ({"path": "/things/{name.real}"}, "no such argument"),
        ({"path": "/things/{name}{size}"}, "one argument and no dots"),
        ({"path": "/things/.{name}"}, "one argument and no dots"),
        ({"query": ("nobody",)}, "no argument nobody"),
        ({"body": {"size": "nobody"}}, "no argument nobody"),
        ({"body": {"size": "size"}}, "nothing sends note"),
        ({"body": {"a": "size", "a.b": "note"}}, "two things go to a"),
        ({"also": {"size": "x"}}, "two things go to size"),
        ({"also": {"x": "{nobody}"}}, "no such argument"),
        ({"method": "DELETE", "also": {"x": "y"}}, "has no body"),
        ({"succeeded": (200, 404)}, "only a 2xx"),
        ({"succeeded": ()}, "only a 2xx"),
        ({"refused": (Says(409),)}, "key is in use"),
        ({"refused": (Says(429),)}, "of the moment"),
        ({"refused": (Says(500, {"error": "no"}),)}, "nothing was done"),
        ({"refused": (Says(302),)}, "nothing was done"),
        ({"refused": (Says(200),)}, "is a success"),
        ({"look_up": FindInList(**LOOK_UP | {"ours": {}})}, "any item"),
        ({"look_up": FindInList(**LOOK_UP | {"same": {"size": "nobody"}})}, "compares with no"),
        ({"look_up": FindOne(path="/things/{nobody}")}, "no such argument"),
        ({"arguments": WithValidator}, "validators of its own"),
        ({"arguments": WithAlias}, "has an alias"),
        ({"arguments": WithFactory}, "default factory"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_could_not_be_recovered_or_sent_is_refused_at_declaration(
    changed: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidTool, match=why):
        declare(**changed)


def test_a_conflict_that_a_field_tells_from_a_key_in_use_may_be_a_refusal() -> None:
    declare(refused=(Says(409, {"error": "sold_out"}),))


# -- What a look-up proves ------------------------------------------------------------


def look_up(
    proxy: FaultProxy, find: FindInList | FindOne, said: Any, *, status: int = 200
) -> tuple[Reconciled[Any], Operation]:
    """The verdict when the API answers so; `said` may be a function of the operation's id."""
    declare(proxy.url, look_up=find, external_ref="ref")
    make = Operation("make", {"name": "a", "size": 2})
    body = said(make.id) if callable(said) else said
    answer = body if isinstance(body, bytes) else json.dumps(body).encode()
    proxy.next(AnswerInstead(status=status, body=answer, forward=False))
    return make.look_up(), make


PAGED = FindInList(
    path="/things",
    items="data",
    more="has_more",
    ours={"meta.op": "{operation_id}"},
    same={"size": "size"},
)


def thing(operation_id: str, ref: str = "t1", size: object = 2) -> dict[str, Any]:
    return {"ref": ref, "size": size, "meta": {"op": operation_id}}


def page(*things: Any, **more: Any) -> dict[str, Any]:
    return {"data": list(things), "has_more": False} | more


def test_others_things_are_not_ours(proxy: FaultProxy) -> None:
    found, _ = look_up(proxy, PAGED, page(thing("another"), {"ref": "t9"}, None))
    assert found.verdict == "not_found"


@pytest.mark.parametrize("more", [{"has_more": True}, {"has_more": "cursor"}])
def test_an_incomplete_page_is_no_negative(more: dict[str, Any], proxy: FaultProxy) -> None:
    found, _ = look_up(proxy, PAGED, page(thing("another"), **more))
    assert found.verdict == "indeterminate"


@pytest.mark.parametrize(
    "said", [{"data": []}, {"has_more": False}, [], {"data": {}, "has_more": False}, b"<html>"]
)
def test_a_page_without_what_is_declared_is_no_negative(said: Any, proxy: FaultProxy) -> None:
    found, _ = look_up(proxy, PAGED, said)
    assert found.verdict == "indeterminate"


@pytest.mark.parametrize("status", [204, 301, 403, 404, 429, 500])
def test_another_status_is_a_look_up_that_failed(status: int, proxy: FaultProxy) -> None:
    found, _ = look_up(proxy, PAGED, page(), status=status)
    assert found.failed


def test_what_is_ours_counts_also_on_an_incomplete_page(proxy: FaultProxy) -> None:
    found, _ = look_up(proxy, PAGED, lambda op: page(thing(op), has_more=True))
    assert (found.verdict, found.external_ref) == ("committed", "t1")
    assert isinstance(found.result, dict)


def test_a_second_effect_of_one_operation_is_told(proxy: FaultProxy) -> None:
    found, _ = look_up(proxy, PAGED, lambda op: page(thing(op), thing(op, "t2")))
    assert (found.external_ref, found.also) == ("t1", ("t2",))


def test_what_is_ours_and_not_what_was_asked_for_goes_to_a_person(proxy: FaultProxy) -> None:
    found, _ = look_up(proxy, PAGED, lambda op: page(thing(op), thing(op, "t2", size=3)))
    assert found.verdict == "indeterminate"
    assert "size differ" in found.why
    assert not found.failed


@pytest.mark.parametrize(("size", "verdict"), [("2.00", "committed"), (2.5, "indeterminate")])
def test_numbers_are_compared_as_numbers(
    size: object, verdict: Literal["committed", "indeterminate"], proxy: FaultProxy
) -> None:
    found, _ = look_up(proxy, PAGED, lambda op: page(thing(op, size=size)))
    assert found.verdict == verdict


def test_names_are_compared_letter_by_letter(proxy: FaultProxy) -> None:
    find = FindOne(path="/things/{name}", same={"code": "note"})
    declare(proxy.url, look_up=find)
    make = Operation("make", {"name": "a", "note": "007"})
    proxy.next(AnswerInstead(status=200, body=b'{"code": 7}', forward=False))
    assert make.look_up().verdict == "indeterminate"


def test_one_thing_is_found_by_name_missing_or_somebody_elses(proxy: FaultProxy) -> None:
    find = FindOne(
        path="/things/{name}",
        item="thing",
        missing=(Says(404, {"error": "no_thing"}),),
        same={"size": "size"},
    )
    declare(proxy.url, look_up=find, external_ref="ref")
    make = Operation("make", {"name": "a", "size": 2})

    def ask(status: int, said: Any) -> Reconciled[Any]:
        body = json.dumps(said).encode()
        proxy.next(AnswerInstead(status=status, body=body, forward=False))
        return make.look_up()

    assert ask(200, {"thing": {"size": 2, "ref": "t1"}}).external_ref == "t1"
    assert ask(200, {"thing": {"size": 3, "ref": "t1"}}).verdict == "indeterminate"
    assert ask(404, {"error": "no_thing"}).verdict == "not_found"
    # A gateway's page for "nothing is routed here".
    assert ask(404, {"error": "?"}).failed
    assert ask(200, {}).failed


def test_a_result_without_a_model_is_what_the_api_said(proxy: FaultProxy) -> None:
    declare(proxy.url)
    proxy.next(AnswerInstead(status=204, body=b"", forward=False))
    assert Operation("make", {"name": "a"}).send() == Committed(None)
    proxy.next(AnswerInstead(status=201, body=b'{"any": 1}', forward=False))
    assert Operation("make", {"name": "a"}).send() == Committed({"any": 1})

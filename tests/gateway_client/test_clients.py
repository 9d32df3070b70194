"""A call is made once per key, whatever becomes of the connection, and its answer is typed."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import httpx2
import pytest

from agentops.client import (
    ActionReused,
    AsyncClient,
    CallDenied,
    Client,
    Committed,
    Denied,
    KeyReused,
    NotAGateway,
    NotAllowed,
    OutcomeUncertain,
    Pending,
    Refused,
    StillPending,
    Uncertain,
    Unreachable,
)
from tests.frameworks.conftest import Shop
from tests.processes import ROOT

pytestmark = pytest.mark.django_db
Refunds = Callable[[], list[str]]
PART = {"order_id": "18", "amount": "5.00"}


@pytest.fixture
def key() -> str:
    return uuid4().hex


def test_the_client_needs_neither_django_nor_celery() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, agentops.client; "
            "print({'django', 'celery', 'langgraph', 'agents', 'pydantic_ai'} & set(sys.modules))",
        ],
        env={},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "set()"


def test_a_key_is_carried_out_once_and_answered_each_time(
    client: Client, refunds: Refunds, key: str
) -> None:
    first = client.operation("refund_customer", PART, key=key)
    again = client.operation("refund_customer", PART, key=key)
    assert isinstance(first, Committed)
    assert isinstance(again, Committed)
    assert (first.replayed, again.replayed) == (False, True)
    assert first.value() == again.value()
    assert first.external_ref == first.value()["refund_id"]
    assert refunds() == ["5.00"]


def test_a_key_or_an_action_does_not_name_two_calls(
    client: Client, refunds: Refunds, key: str, thread_id: str
) -> None:
    other = PART | {"amount": "6.00"}
    client.operation("refund_customer", PART, key=key)
    with pytest.raises(KeyReused):
        client.operation("refund_customer", other, key=key)
    place = {"thread": thread_id, "step": 1, "action": "refund"}
    first = client.operation("refund_customer", PART, key=f"{key}-1", **place)
    with pytest.raises(ActionReused) as reused:
        client.operation("refund_customer", other, key=f"{key}-2", **place)
    assert reused.value.operation_id == first.operation_id
    assert client.operation("refund_customer", PART, key=f"{key}-3", **place).replayed
    assert refunds() == ["5.00", "5.00"]


def test_an_answer_that_is_lost_is_asked_for_again(shop: Shop, refunds: Refunds, key: str) -> None:
    with Client(shop.url, shop.token, transport=_LosesAnswers(2)) as client:
        operation = client.operation("refund_customer", PART, key=key)
    assert isinstance(operation, Committed)
    assert operation.replayed
    assert refunds() == ["5.00"]


class _LosesAnswers(httpx2.HTTPTransport):
    """A network that brings requests to the gateway, and loses the first answers."""

    def __init__(self, lost: int) -> None:
        super().__init__()
        self._lost = lost

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = super().handle_request(request)
        if self._lost:
            self._lost -= 1
            answer.read()
            raise httpx2.RemoteProtocolError("the connection was cut")
        return answer


def test_whoever_repeats_a_call_in_flight_is_told_what_it_came_to(
    shop: Shop, client: Client, refunds: Refunds, key: str
) -> None:
    shop.provider.fault("hold", after_commit=True)
    heard = _Hears()
    with ThreadPoolExecutor() as threads, Client(shop.url, shop.token, transport=heard) as second:
        first = threads.submit(client.operation, "refund_customer", PART, key=key)
        shop.provider.wait_until_held()
        looked = second.operation("refund_customer", PART, key=key, wait=0)
        again = threads.submit(second.operation, "refund_customer", PART, key=key)
        shop.provider.release()
        told = [first.result(), again.result()]
    assert isinstance(looked, Pending)
    assert looked.replayed
    assert heard.statuses[:2] == [409, 200]
    assert all(isinstance(one, Committed) for one in told)
    assert {one.operation_id for one in told} == {looked.operation_id}
    assert refunds() == ["5.00"]


class _Hears(httpx2.HTTPTransport):
    """Notes how the gateway answered."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: list[int] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = super().handle_request(request)
        self.statuses.append(answer.status_code)
        return answer


def test_a_call_that_takes_longer_than_its_caller_waits_is_pending(
    shop: Shop, client: Client, refunds: Refunds, key: str
) -> None:
    shop.provider.fault("hold", after_commit=True)
    operation = client.operation("refund_customer", PART, key=key, wait=0)
    assert isinstance(operation, Pending)
    with pytest.raises(StillPending, match="not finished"):
        operation.value()
    shop.provider.wait_until_held()
    shop.provider.release()
    assert isinstance(client.look(operation.operation_id, wait=30), Committed)
    assert refunds() == ["5.00"]


def test_what_needs_a_signature_waits_and_is_not_done(
    client: Client, refunds: Refunds, key: str
) -> None:
    operation = client.operation("refund_customer", {"order_id": "20", "amount": "600"}, key=key)
    assert isinstance(operation, Pending)
    assert operation.status == "AWAITING_APPROVAL"
    assert operation.approval is not None
    assert refunds() == []


def test_refusals_name_the_field_and_the_fix(shop: Shop, client: Client, key: str) -> None:
    with pytest.raises(NotAllowed) as unknown:
        client.operation("refund_costumer", PART, key=key)
    assert (unknown.value.status, unknown.value.field) == (403, "Authorization")
    with pytest.raises(Refused) as unfit:
        client.operation("refund_customer", {"order_id": "18", "amount": "much"}, key=key)
    assert (unfit.value.status, unfit.value.kind) == (400, "invalid-arguments")
    assert unfit.value.fix
    for given in ("", "a\nb", "k" * 256, "schlüssel"):
        with pytest.raises(ValueError, match="key:"):
            client.operation("refund_customer", PART, key=given)
    with pytest.raises(ValueError, match="arguments:"):
        client.operation("refund_customer", {"order_id": float("nan")}, key=key)
    with Client(shop.url, "aot_00000000_wrong") as stranger, pytest.raises(NotAllowed):
        stranger.operation("refund_customer", PART, key=key)
    # None of them has used the key.
    assert not client.operation("refund_customer", PART, key=key).replayed


def test_a_gateway_that_is_not_there_is_named_with_what_to_do(key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        Client(f"http://127.0.0.1:{port}", "t", patience=0.3) as client,
        pytest.raises(Unreachable, match="same key") as met,
    ):
        client.operation("refund_customer", PART, key=key)
    assert met.value.key == key


@pytest.fixture
def not_a_gateway() -> Iterator[str]:
    """A server that answers everything with a page."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            caller, _ = server.accept()
            with caller:
                caller.recv(65536)
                caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_page_is_not_taken_for_an_answer(not_a_gateway: str, key: str) -> None:
    with Client(not_a_gateway, "t") as client, pytest.raises(NotAGateway):
        client.operation("refund_customer", PART, key=key)


def test_an_async_client_does_the_same(shop: Shop, refunds: Refunds, key: str) -> None:
    async def call() -> set[str]:
        async with AsyncClient(shop.url, shop.token) as client:
            made = await asyncio.gather(
                *(client.operation("refund_customer", PART, key=key) for _ in range(5))
            )
            looked = await client.look(made[0].operation_id)
            assert all(isinstance(one, Committed) for one in (*made, looked))
            return {one.operation_id for one in made}

    assert len(asyncio.run(call())) == 1
    assert refunds() == ["5.00"]


def test_a_run_that_was_finished_takes_no_more_calls(
    client: Client, key: str, thread_id: str
) -> None:
    operation = client.operation("refund_customer", PART, key=key, thread=thread_id)
    client.finish(operation.run, result={"refunded": "5.00"})
    with pytest.raises(Refused):
        client.finish("not-a-run")


def test_what_the_provider_refuses_is_denied(client: Client, key: str) -> None:
    operation = client.operation("refund_customer", PART | {"order_id": "none"}, key=key)
    assert isinstance(operation, Denied)
    with pytest.raises(CallDenied, match="no order none"):
        operation.value()


def test_what_nobody_knows_is_uncertain(
    shop: Shop, client: Client, refunds: Refunds, key: str
) -> None:
    shop.provider.fault("lose_answer")
    operation = client.operation("refund_customer", PART, key=key)
    assert isinstance(operation, Uncertain)
    with pytest.raises(OutcomeUncertain, match="may or may not"):
        operation.value()
    assert refunds() == ["5.00"]

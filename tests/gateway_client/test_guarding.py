"""A program that is started again with its thread is told what it did, and does the rest."""

import asyncio
from collections.abc import Callable
from decimal import Decimal

import pytest
from pydantic import BaseModel

from agentops.client import ActionReused, AsyncClient, Client, NoPlace, guarded, thread
from tests.frameworks.conftest import Shop

pytestmark = pytest.mark.django_db
Refunds = Callable[[], list[str]]


class Refund(BaseModel):
    refund_id: str
    amount: Decimal


class Died(Exception):
    pass


def test_a_program_that_is_started_again_does_the_rest(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    @guarded(client)
    def refund_customer(order_id: str, amount: Decimal = Decimal("5.00")) -> Refund:
        raise AssertionError("the gateway carries it out")

    def program(*, dies_after: int) -> list[Refund]:
        made = []
        with thread(thread_id):
            for number in range(3):
                if number == dies_after:
                    raise Died
                made.append(refund_customer("18"))
        return made

    with pytest.raises(Died):
        program(dies_after=2)
    made = program(dies_after=9)
    assert made == program(dies_after=9)
    assert [one.amount for one in made] == [Decimal("5.00")] * 3
    assert refunds() == ["5.00"] * 3


def test_a_program_that_asks_for_something_else_in_its_place_is_stopped(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    @guarded(client, tool="refund_customer")
    def refund(order_id: str, amount: str) -> Refund:
        raise AssertionError("the gateway carries it out")

    with thread(thread_id):
        refund("18", "5.00")
    with thread(thread_id), pytest.raises(ActionReused):
        refund("18", "6.00")
    assert refunds() == ["5.00"]


def test_a_key_names_the_call_wherever_it_is_made(
    shop: Shop, refunds: Refunds, thread_id: str
) -> None:
    async def program() -> list[Refund]:
        async with AsyncClient(shop.url, shop.token) as client:

            @guarded(client, key=f"{thread_id} {{order_id}}")
            async def refund_customer(order_id: str, amount: str) -> Refund:
                raise AssertionError("the gateway carries it out")

            return [await refund_customer(order_id="18", amount="5.00") for _ in range(2)]

    first, second = asyncio.run(program())
    assert first == second
    assert refunds() == ["5.00"]


def test_a_call_that_nothing_names_is_refused(client: Client, refunds: Refunds) -> None:
    @guarded(client)
    def refund_customer(order_id: str, amount: str) -> Refund:
        raise AssertionError("the gateway carries it out")

    with pytest.raises(NoPlace, match="thread"):
        refund_customer("18", "5.00")
    with pytest.raises(ValueError, match="no name"), thread(""):
        pass
    with pytest.raises(TypeError, match="AsyncClient"):

        @guarded(client)
        async def refund(order_id: str) -> Refund:
            raise AssertionError("the gateway carries it out")

    assert refunds() == []

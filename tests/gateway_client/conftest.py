"""The client against a real web process, whose tools call a real provider."""

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from agentops.client import Client
from tests.frameworks.conftest import Shop
from tests.frameworks.conftest import shop as shop


@pytest.fixture(scope="package")
def client(shop: Shop) -> Iterator[Client]:
    with Client(shop.url, shop.token) as made:
        yield made


@pytest.fixture(autouse=True)
def _provider_without_faults(shop: Shop) -> Iterator[None]:
    yield
    shop.provider.clear_faults()
    shop.provider.release()


@pytest.fixture
def refunds(shop: Shop) -> Callable[[], list[str]]:
    """The amounts that the provider has refunded in this test, oldest first."""
    before = len(shop.provider.effects())
    return lambda: [f"{one.cents / 100:.2f}" for one in shop.provider.effects()[before:]]


@pytest.fixture
def thread_id() -> str:
    """Of this test alone: one gateway serves the whole package."""
    return f"thread-{uuid4().hex}"
